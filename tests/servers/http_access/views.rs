//! What the configuration hides and refuses for all.

use crate::http_access::rig::Site;

#[test]
fn a_daemon_for_reading_changes_nothing() {
    let mut site = Site::start("");
    site.create("Order@close@1", &[]).assert_ok();
    site.restart("read_only = true");
    site.create("Order@close@2", &[])
        .assert_problem(403, "read-only");
    for (method, path) in [
        ("DELETE", "/v1/tasks/Order@close@1"),
        ("PATCH", "/v1/tasks/Order@close@1"),
        ("POST", "/v1/tasks/Order@close@1/run"),
        ("POST", "/v1/pauses"),
        ("POST", "/v1/cancel"),
    ] {
        let refused = site.send(method, path, &[("Content-Type", "application/json")], "{}");
        refused.assert_problem(403, "read-only");
    }
    assert!(site.has("Order@close@1") && !site.has("Order@close@2"));
    site.get("/v1/tasks/Order@close@1", &[]).assert_ok();
}

#[test]
fn no_answer_contains_masked_arguments() {
    let site = Site::start("mask_payloads = 'Mail@send'\nmask_arguments = 'Mail'");
    for key in ["Mail@send@ann", "Mail@read@bob", "Order@close@eve"] {
        site.create(key, &[]).assert_ok();
    }
    let hidden = site.get("/v1/tasks/Mail@send@ann", &[]);
    hidden.assert_ok();
    assert!(!hidden.body.contains("p4yl0ad"), "{}", hidden.body);
    assert!(hidden.body.contains("\"masked\":true"));
    let shown = site.get("/v1/tasks/Order@close@eve", &[]);
    assert!(shown.body.contains("p4yl0ad") && shown.body.contains("\"masked\":false"));
    let page = site.get("/task?key=Mail@send@ann", &[]);
    assert!(!page.body.contains("p4yl0ad"));
    for path in ["/v1/tasks", "/tasks"] {
        let list = site.get(path, &[]);
        list.assert_ok();
        for argument in ["ann", "bob"] {
            assert!(!list.body.contains(&format!("@{argument}")), "{path}");
        }
        assert!(
            list.body.contains("Mail@send@hidden"),
            "{path}: {}",
            list.body
        );
    }
}
