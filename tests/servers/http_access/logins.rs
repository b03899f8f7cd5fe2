//! People who log in with a browser.

use crate::http_access::rig::{Answer, Site, bearer, client};

fn clients() -> String {
    client("ops", "t-ops", "['read', 'operate']", "") + &client("viewer", "t-read", "'read'", "")
}

fn log_in(site: &Site, token: &str) -> Answer {
    site.log_in(
        "/login",
        &[],
        &format!("token={token}&next=%2Ftasks%3Fclass%3DOrder"),
    )
}

#[track_caller]
fn assert_in(site: &Site, cookie: &str) {
    site.get("/v1/stats", &[("Cookie", cookie)]).assert_ok();
}

#[track_caller]
fn assert_out(site: &Site, cookie: &str) {
    site.get("/v1/stats", &[("Cookie", cookie)])
        .assert_problem(401, "unauthenticated");
}

#[test]
fn only_pages_lead_to_the_login() {
    let site = Site::start(&clients());
    let browser = [("Accept", "text/html,application/xhtml+xml")];
    for path in ["/", "/tasks?class=Order", "/panels/counts"] {
        assert_eq!(site.get(path, &browser).status, 303, "{path}");
    }
    for path in ["/v1/tasks", "/v1/stats", "/v1/events", "/metrics"] {
        let answer = site.get(path, &browser);
        answer.assert_problem(401, "unauthenticated");
        assert_eq!(answer.header("content-type"), "application/problem+json");
    }
}

#[test]
fn a_person_logs_in_works_and_logs_out() {
    let site = Site::start(&clients());
    let page = site.get("/tasks?class=Order", &[("Accept", "text/html")]);
    assert_eq!(page.status, 303);
    assert_eq!(
        page.header("location"),
        "/login?next=%2Ftasks%3Fclass%3DOrder"
    );
    let wrong = log_in(&site, "wrong");
    assert_eq!(wrong.status, 303);
    assert_eq!(
        wrong.header("location"),
        "/login?failed=token&next=%2Ftasks%3Fclass%3DOrder"
    );
    assert_eq!(wrong.header("set-cookie"), "");

    let right = log_in(&site, "t-ops");
    assert_eq!(
        (right.status, right.header("location")),
        (303, "/tasks?class=Order")
    );
    let set = right.header("set-cookie");
    assert!(
        set.ends_with("; Path=/; HttpOnly; SameSite=Lax; Max-Age=43200"),
        "{set}"
    );
    assert!(!set.contains("t-ops"));
    let cookie = right.cookie();
    assert_in(&site, &cookie);
    assert_in(&site, &format!("other=1; {cookie}; another=2"));
    let pause = r#"{"class": "Order"}"#;
    site.post("/v1/pauses", &[("Cookie", &cookie)], pause)
        .assert_ok();
    let forged = [("Cookie", &*cookie), ("Sec-Fetch-Site", "cross-site")];
    site.post("/v1/pauses", &forged, pause)
        .assert_problem(403, "other-site");
    site.create("Order@close@1", &[("Cookie", &cookie)])
        .assert_problem(403, "forbidden");
    assert_out(&site, &cookie[..cookie.len() - 1]);
    // Another credential is not made up for by a cookie.
    let (name, value) = bearer("wrong");
    site.get("/v1/stats", &[("Cookie", &cookie), (name, &value)])
        .assert_problem(401, "unauthenticated");

    let other = log_in(&site, "t-ops").cookie();
    let out = site.log_in("/logout", &[("Cookie", &cookie)], "");
    assert_eq!((out.status, out.header("location")), (303, "/login"));
    assert_eq!(
        out.header("set-cookie"),
        "lapsed=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0"
    );
    assert_out(&site, &cookie);
    assert_in(&site, &other);
}

#[test]
fn the_login_page_says_what_went_wrong_and_repeats_nothing_as_html() {
    let site = Site::start(&clients());
    let page = site.get(
        "/login?next=%22%3E%3Cscript%3E1%3C/script%3E&failed=%3Cb%3E",
        &[],
    );
    page.assert_ok();
    assert!(!page.body.contains("<script>") && !page.body.contains("<b>"));
    assert!(page.body.contains("There is no client with this token."));
    let first = site.get("/login", &[]);
    assert!(!first.body.contains("role=\"alert\""));
    let cookie = log_in(&site, "t-read").cookie();
    let overview = site.get("/", &[("Cookie", &cookie)]);
    assert!(overview.body.contains("action=\"/logout\""));
    // Without tokens there is nothing to log in with.
    let open = Site::start("").get("/login", &[]);
    assert_eq!((open.status, open.header("location")), (303, "/"));
}

#[test]
fn a_login_leads_to_no_other_site() {
    let site = Site::start(&clients());
    for next in [
        "//evil.example",
        "https://evil.example",
        "/%5Cevil.example",
        "javascript:1",
    ] {
        let right = site.log_in("/login", &[], &format!("token=t-ops&next={next}"));
        assert_eq!(right.header("location"), "/", "{next}");
    }
    let large = "x".repeat(20_000);
    let refused = site.log_in("/login", &[], &format!("token={large}"));
    assert_eq!(refused.status, 413);
}

#[test]
fn a_session_outlives_its_daemon_but_not_its_token() {
    let mut site = Site::start(&clients());
    let cookie = log_in(&site, "t-ops").cookie();
    let ended = log_in(&site, "t-ops").cookie();
    site.log_in("/logout", &[("Cookie", &ended)], "");
    site.restart(&clients());
    assert_in(&site, &cookie);
    assert_out(&site, &ended);
    let replaced = client("ops", "t-new", "'read'", "");
    site.restart(&replaced);
    assert_out(&site, &cookie);
    site.restart(&client("viewer", "t-read", "'read'", ""));
    assert_out(&site, &cookie);
}

#[test]
fn a_session_ends_after_its_time() {
    let site = Site::start(&format!("session_length = '1m'\n{}", clients()));
    let right = log_in(&site, "t-read");
    assert!(right.header("set-cookie").contains("Max-Age=60"));
}
