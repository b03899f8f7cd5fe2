use super::*;

/// The keys of a route.
const ROUTE_KEYS: [&str; 23] = [
    "match",
    "exec",
    "webhook",
    "stream",
    "list",
    "publish",
    "log",
    "pull",
    "allow_dash",
    "cwd",
    "env",
    "keep_result",
    "timeout",
    "concurrency",
    "rate",
    "burst",
    "priority",
    "retry",
    "adopt",
    "expire_after",
    "slow_after",
    "payload_secret",
    "payload_secret_file",
];

/// The keys of other sections that have no defaults, without the numbers of their entries.
const SECTION_KEYS: [(&str, &[&str]); 8] = [
    ("routes.pull", &["queue", "visibility"]),
    (
        "routes.webhook",
        &[
            "url",
            "url_file",
            "secret",
            "secret_file",
            "headers",
            "allow",
            "ca_file",
            "connect_timeout",
            "max_response",
        ],
    ),
    ("routes.stream", &["key", "maxlen", "url", "url_file"]),
    ("routes.list", &["key", "url", "url_file"]),
    (
        "routes.publish",
        &["channel", "require_receivers", "url", "url_file"],
    ),
    (
        "routes.retry",
        &[
            "backoff",
            "ladder",
            "base",
            "max",
            "delay",
            "max_attempts",
            "jitter",
            "deadline",
        ],
    ),
    (
        "http.clients",
        &[
            "name",
            "token_sha256",
            "token_sha256_file",
            "user",
            "scopes",
            "classes",
        ],
    ),
    (
        "resp.users",
        &["name", "password", "password_file", "scopes"],
    ),
];

#[test]
fn every_key_of_a_route_is_one_that_can_be_suggested() {
    for key in ROUTE_KEYS {
        let beside = match key {
            "match" => "log = {}",
            "exec" | "webhook" | "stream" | "list" | "publish" | "log" | "pull" => "match = 'a'",
            _ => "match = 'a'\nexec = ['x']",
        };
        let found = problems(&format!("[[routes]]\n{beside}\n{key} = [[]]\n")).join("\n");
        assert!(!found.contains("is not the name"), "{key}: {found}");
        let wrong = format!("[[routes]]\nmatch = 'a'\nlog = {{}}\n{key}x = 1\n");
        let found = problems(&wrong).join("\n");
        assert!(
            found.contains(&format!("did you mean `{key}`?")),
            "{key}: {found}"
        );
    }
}

#[test]
fn every_key_of_an_entry_is_one_that_can_be_suggested() {
    for (section, keys) in SECTION_KEYS {
        let (list, table) = section.split_once('.').unwrap();
        for key in keys {
            let with = |key: &str| match list {
                "routes" => format!("[[routes]]\nmatch = 'a'\n[routes.{table}]\n{key} = [[]]\n"),
                _ => format!("[[{section}]]\n{key} = [[]]\n"),
            };
            let found = problems(&with(key)).join("\n");
            assert!(
                !found.contains("is not the name"),
                "{section}.{key}: {found}"
            );
            let found = problems(&with(&format!("{key}x"))).join("\n");
            let meant = format!("did you mean `{key}`?");
            assert!(found.contains(&meant), "{section}.{key}: {found}");
        }
    }
}

#[test]
fn a_key_that_is_nearly_one_of_its_section_is_suggested() {
    for (text, meant) in [
        ("engin.lease = '5s'", Some("engine")),
        ("[[route]]\nmatch = '.'", Some("routes")),
        ("engine.concurency = 3", Some("concurrency")),
        ("[[routes]]\nmach = '.'\nlog = {}", Some("match")),
        ("engine.speed = 3", None),
        ("engine.match = 3", None),
        ("[[routes]]\nmatch = '.'\nwebhook = { mach = '.' }", None),
        (
            "[[routes]]\nmatch = '.'\npull = { queue = 'a', visibilty = '5s' }",
            Some("visibility"),
        ),
        ("[[http.clients]]\nscope = ['read']", Some("scopes")),
        ("[[recurring]]\ntags = 'a'", Some("tag")),
        ("[[import]]\nkeys = 'a'", Some("key")),
    ] {
        let found = problems(text).join("\n");
        assert!(
            found.contains("is not the name of a setting"),
            "{text}: {found}"
        );
        match meant {
            Some(meant) => assert!(
                found.contains(&format!("did you mean `{meant}`?")),
                "{text}: {found}"
            ),
            None => assert!(!found.contains("did you mean"), "{text}: {found}"),
        }
    }
}
