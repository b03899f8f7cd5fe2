//! What a page of another site has the browser of an operator send.

use crate::http_access::rig::Site;

#[test]
fn another_site_cannot_change_anything() {
    let site = Site::start("");
    let own = format!("http://{}", site.address);
    for headers in [
        &[("Sec-Fetch-Site", "cross-site")][..],
        &[("Sec-Fetch-Site", "same-site")],
        &[("Origin", "https://evil.example")],
        &[("Origin", "null")],
        &[("Origin", &own), ("Sec-Fetch-Site", "cross-site")],
        &[("Origin", "http://localhost:1"), ("Sec-Fetch-Site", "")],
        &[
            ("Sec-Fetch-Site", "cross-site"),
            ("Sec-Fetch-Mode", "navigate"),
            ("Sec-Fetch-Dest", "document"),
        ],
    ] {
        site.create("Order@close@1", headers)
            .assert_problem(403, "other-site");
        for (method, path) in [
            ("PUT", "/v1/tasks/Order@close@1"),
            ("DELETE", "/v1/tasks/Order@close@1"),
            ("POST", "/v1/pauses"),
            ("POST", "/login"),
            ("POST", "/logout"),
        ] {
            let refused = site.send(method, path, headers, "{}");
            refused.assert_problem(403, "other-site");
        }
    }
    assert!(!site.has("Order@close@1"));
    let of_dashboard = [("Sec-Fetch-Site", "same-origin"), ("Origin", &*own)];
    site.create("Order@close@1", &of_dashboard).assert_ok();
    let of_old_browser = [("Origin", &*own)];
    site.create("Order@close@2", &of_old_browser).assert_ok();
    site.create("Order@close@3", &[]).assert_ok();
    assert!(site.has("Order@close@1") && site.has("Order@close@3"));
}

#[test]
fn another_site_cannot_read_anything() {
    let site = Site::start("");
    for dest in ["script", "image", "iframe", "empty"] {
        let headers = [
            ("Sec-Fetch-Site", "cross-site"),
            ("Sec-Fetch-Mode", "no-cors"),
            ("Sec-Fetch-Dest", dest),
        ];
        for path in ["/v1/tasks", "/v1/stats", "/", "/metrics", "/v1/events"] {
            site.get(path, &headers).assert_problem(403, "other-site");
        }
    }
    let framed = [
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Mode", "navigate"),
        ("Sec-Fetch-Dest", "iframe"),
    ];
    site.get("/", &framed).assert_problem(403, "other-site");
    let link = [
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Mode", "navigate"),
        ("Sec-Fetch-Dest", "document"),
    ];
    let followed = site.get("/", &link);
    followed.assert_ok();
    let no_cors = site.get("/v1/stats", &[("Origin", "https://evil.example")]);
    assert_eq!(no_cors.header("access-control-allow-origin"), "");
}

#[test]
fn a_name_that_another_site_has_resolve_to_this_machine_is_refused() {
    let site = Site::start("hosts = 'lapsed.example.com'");
    for host in [
        "evil.example",
        "evil.example:8787",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "",
    ] {
        for path in ["/", "/v1/tasks", "/metrics", "/v1/events", "/openapi.json"] {
            site.get(path, &[("Host", host)])
                .assert_problem(421, "unknown-host");
        }
        site.create("Order@close@1", &[("Host", host)])
            .assert_problem(421, "unknown-host");
        // An orchestrator asks by any name, and gets nothing that is confidential.
        assert_ne!(site.get("/healthz", &[("Host", host)]).status, 421);
    }
    let twice = [("Host", "localhost"), ("Host", "evil.example")];
    assert_eq!(site.create("Order@close@1", &twice).status, 400);
    let absolute = site.get("http://evil.example/v1/stats", &[("Host", "localhost")]);
    absolute.assert_problem(421, "unknown-host");
    assert!(!site.has("Order@close@1"));
    for host in [
        "localhost",
        "127.0.0.1:1",
        "[::1]:1",
        "Lapsed.Example.com:443",
    ] {
        site.get("/v1/stats", &[("Host", host)]).assert_ok();
    }
}

#[test]
fn every_answer_tells_browsers_to_load_nothing_else() {
    let token = "http.tokens";
    let site = Site::start("");
    let refused = site.get("/v1/stats", &[("Host", "evil.example")]);
    let answers = [
        site.get("/", &[]),
        site.get("/v1/stats", &[]),
        site.get("/no/such/page", &[]),
        site.get("/healthz", &[]),
        refused,
    ];
    for answer in &answers {
        let policy = answer.header("content-security-policy");
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'self'",
        ] {
            assert!(policy.contains(part), "{part} is not in {answer:?}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("x-frame-options"), "DENY");
        assert_eq!(answer.header("cache-control"), "no-store");
        assert!(!answer.body.contains(token));
    }
    let page = &answers[0].body;
    assert!(!page.contains(" style=") && !page.contains("<style") && !page.contains(" onclick="));
}
