//! A proxy in front of the daemon, and those who pretend to be one.

use crate::http_access::rig::{Site, client};

const FORWARDED: [(&str, &str); 3] = [
    ("X-Forwarded-For", "203.0.113.7"),
    ("X-Forwarded-Proto", "https"),
    ("X-Forwarded-Host", "lapsed.example.com"),
];

fn with<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [&FORWARDED[..], more].concat()
}

#[test]
fn without_clients_nobody_comes_in_through_a_proxy() {
    let site = Site::start("");
    site.get("/v1/stats", &[]).assert_ok();
    for header in [
        ("X-Forwarded-For", "127.0.0.1"),
        ("X-Real-IP", "127.0.0.1"),
        ("Forwarded", "for=127.0.0.1"),
        ("Via", "1.1 proxy"),
    ] {
        site.get("/v1/stats", &[header])
            .assert_problem(403, "forbidden");
        site.create("Order@close@1", &[header])
            .assert_problem(403, "forbidden");
    }
    assert!(!site.has("Order@close@1"));
}

#[test]
fn a_cookie_is_sent_over_https_alone() {
    let clients = client("ops", "t-ops", "'read'", "");
    let trusting = "hosts = 'lapsed.example.com'\nproxy.networks = '127.0.0.1'";
    let site = Site::start(&format!("{trusting}\n{clients}"));
    let right = site.log_in("/login", &FORWARDED, "token=t-ops");
    let set = right.header("set-cookie");
    assert!(
        set.starts_with("__Host-lapsed=") && set.ends_with("; Secure"),
        "{set}"
    );
    let cookie = right.cookie();
    site.get("/v1/stats", &with(&[("Cookie", &cookie)]))
        .assert_ok();
    // Another host of the same domain can set only a cookie without the prefix.
    let plain = cookie.replace("__Host-", "");
    site.get("/v1/stats", &with(&[("Cookie", &plain)]))
        .assert_problem(401, "unauthenticated");
    let http = [
        ("X-Forwarded-For", "203.0.113.7"),
        ("X-Forwarded-Proto", "http"),
    ];
    let refused = site.log_in("/login", &http, "token=t-ops");
    assert_eq!(
        refused.header("location"),
        "/login?failed=insecure&next=%2F"
    );
    assert_eq!(refused.header("set-cookie"), "");

    // From an address that is not trusted, the headers are worth nothing.
    let site = Site::start(&format!("proxy.networks = '192.0.2.0/24'\n{clients}"));
    let refused = site.log_in("/login", &FORWARDED, "token=t-ops");
    assert_eq!(
        refused.header("location"),
        "/login?failed=insecure&next=%2F"
    );
    assert_eq!(refused.header("set-cookie"), "");
}

fn single_sign_on(networks: &str) -> Site {
    Site::start(&format!(
        "hosts = 'lapsed.example.com'\n\
         proxy = {{ networks = '{networks}', user_header = 'X-Forwarded-User' }}\n\
         [[http.clients]]\nname = 'admins'\nuser = 'root@example.com'\nscopes = 'admin'\n\
         [[http.clients]]\nname = 'people'\nuser = '*@example.com'\nscopes = 'read'\n{}",
        client("shop", "t-shop", "'schedule'", "")
    ))
}

#[test]
fn the_users_of_a_trusted_proxy_come_in() {
    let site = single_sign_on("127.0.0.0/8");
    let as_user = |user| with(&[("X-Forwarded-User", user)]);
    site.create("Order@close@1", &as_user("root@example.com"))
        .assert_ok();
    site.get("/v1/stats", &as_user("ann@example.com"))
        .assert_ok();
    for user in ["ann@example.com", "xroot@example.com", "ROOT@example.com"] {
        site.create("Order@close@2", &as_user(user))
            .assert_problem(403, "forbidden");
    }
    for user in ["ann@evil.example", "root@example.com.evil.example"] {
        site.get("/v1/stats", &as_user(user))
            .assert_problem(403, "forbidden");
    }
    site.get("/v1/stats", &FORWARDED)
        .assert_problem(401, "unauthenticated");
    let twice = with(&[
        ("X-Forwarded-User", "ann@example.com"),
        ("X-Forwarded-User", "root@example.com"),
    ]);
    site.create("Order@close@2", &twice)
        .assert_problem(400, "invalid");
    let another_site = with(&[
        ("X-Forwarded-User", "root@example.com"),
        ("Sec-Fetch-Site", "cross-site"),
    ]);
    site.create("Order@close@2", &another_site)
        .assert_problem(403, "other-site");
    assert!(!site.has("Order@close@2"));
}

#[test]
fn only_a_trusted_proxy_names_a_user() {
    let site = single_sign_on("192.0.2.0/24");
    for name in ["X-Forwarded-User", "x-forwarded-user", "X_Forwarded_User"] {
        let claims = with(&[(name, "root@example.com"), ("Host", "localhost")]);
        site.create("Order@close@1", &claims)
            .assert_problem(401, "unauthenticated");
    }
    assert!(!site.has("Order@close@1"));
}

#[test]
fn the_dashboard_works_below_a_path() {
    let clients = client("ops", "t-ops", "'read'", "");
    let site = Site::start(&format!("base_path = '/ops/lapsed'\n{clients}"));
    let page = [("Accept", "text/html")];
    // A proxy passes the path on, or takes it off.
    for path in ["/ops/lapsed/tasks?class=Order", "/tasks?class=Order"] {
        let to_login = site.get(path, &page);
        let expected = "/ops/lapsed/login?next=%2Ftasks%3Fclass%3DOrder";
        assert_eq!(to_login.header("location"), expected);
    }
    for path in ["/ops/lapsed/login", "/login"] {
        let right = site.log_in(path, &[], "token=t-ops&next=%2Ftasks");
        assert_eq!(right.header("location"), "/ops/lapsed/tasks");
        let cookie = right.cookie();
        for base in ["/ops/lapsed", ""] {
            let headers = [("Cookie", &*cookie)];
            site.get(&format!("{base}/v1/stats"), &headers).assert_ok();
            let page = site.get(&format!("{base}/"), &headers);
            page.assert_ok();
            for link in page.body.split("href=\"").skip(1) {
                let link = link.split('"').next().unwrap_or_default();
                assert!(
                    link.starts_with("/ops/lapsed/") || link.starts_with('#'),
                    "{link}"
                );
            }
        }
    }
    site.get("/ops/lapsed/healthz", &[]).assert_ok();
    assert_eq!(site.get("/ops/lapsedhealthz", &[]).status, 404);
}
