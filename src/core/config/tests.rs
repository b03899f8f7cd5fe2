use std::time::Duration;

use super::*;
use crate::task::Limits;

fn problems(text: &str) -> Vec<String> {
    let error = Config::from_toml(text).unwrap_err();
    error.to_string().lines().map(str::to_owned).collect()
}

fn with_env(env: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let env = env
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    Config::from_toml_and_env("", &env)
}

#[test]
fn the_embedded_file_is_the_defaults() {
    let config = Config::default();
    assert_eq!(config.retry, RetryPolicy::default());
    assert_eq!(config.engine.concurrency, 256);
    assert_eq!(config.sentinel.interval, Duration::from_secs(900));
    assert!(config.routes.is_empty());
}

#[test]
fn all_problems_are_reported_at_once() {
    let found = problems(
        "engin = 1\n[engine]\nconcurrency = 0\nlease = 30\nspeed = 9\n[redis]\nurl = \"http://x\"\n",
    );
    assert_eq!(
        found,
        [
            "`redis.url`: expected redis://, rediss://, redis+sentinel://, redis+cluster:// or unix://",
            "`engine.concurrency`: expected 1 to 100000, found 0",
            "`engine.lease`: expected a duration with a unit, such as \"1500ms\", \"30s\" or \"15m\", found 30",
            "`engine.speed`: is not the name of a setting",
            "`engin`: is not the name of a setting, did you mean `engine`?",
        ]
    );
}

#[test]
fn the_environment_stands_over_the_file_and_never_guesses_types() {
    let config = with_env(&[
        ("LAPSED__REDIS__KEY_PREFIX", "007"),
        ("LAPSED__ENGINE__LEASE", "7s"),
        ("LAPSED__NUDGE__ENABLED", "false"),
    ])
    .unwrap();
    assert_eq!(config.redis.key_prefix, "007");
    assert_eq!(config.engine.lease, Duration::from_secs(7));
    assert!(!config.nudge.enabled);
}

#[test]
fn an_unknown_variable_is_refused() {
    let error = with_env(&[("LAPSED__REDIS__URI", "x")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`LAPSED__REDIS__URI`: is not the name of a setting, did you mean `LAPSED__REDIS__URL`?"
    );
}

#[test]
fn one_bracket_instead_of_two_is_named() {
    let found = problems("[routes]\nmatch = '.'\nlog = {}\n[recurring]\nkey = 'C@m'\n");
    assert_eq!(
        found,
        [
            "`routes`: expected `[[routes]]`, with two brackets, above each entry",
            "`recurring`: expected `[[recurring]]`, with two brackets, above each entry",
        ]
    );
}

/// The keys of a route.
const ROUTE_KEYS: [&str; 22] = [
    "match",
    "exec",
    "webhook",
    "stream",
    "list",
    "publish",
    "log",
    "pull",
    "allow_dash",
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

#[test]
fn a_url_that_ends_in_its_password_is_refused_without_showing_it() {
    for (section, url) in [
        ("ledger", "mysql://lapsed:p@ss/w#rd@127.0.0.1:3306/x"),
        ("ledger", "mysql://lapsed:p@s#rd@127.0.0.1:3306/x"),
        ("redis", "redis://:p@ss/w@127.0.0.1:6379/0"),
    ] {
        assert_eq!(
            problems(&format!("{section}.url = '{url}'")),
            [format!(
                "`{section}.url`: has an `@` behind the host: in a user or password write `@` as %40, `#` as %23, `/` as %2F, `?` as %3F, `:` as %3A and `%` as %25"
            )]
        );
    }
    for (section, url) in [
        (
            "ledger",
            "mysql://lapsed:p@ss@127.0.0.1:3306/x?ssl-ca=/a@b.pem",
        ),
        ("ledger", "mysql://lapsed:p%40ss%2Fw%23rd@127.0.0.1:3306/x"),
        ("redis", "unix:///run/a@b.sock?db=2"),
    ] {
        assert!(
            Config::from_toml(&format!("{section}.url = '{url}'")).is_ok(),
            "{url}"
        );
    }
}

#[test]
fn a_secret_may_come_from_a_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "mysql://app:s3cret@db/app\n").unwrap();
    let config = with_env(&[("LAPSED__LEDGER__URL_FILE", file.path().to_str().unwrap())]).unwrap();
    assert_eq!(config.ledger.url.expose(), "mysql://app:s3cret@db/app");
    assert_eq!(
        config.ledger.url.to_string(),
        "mysql://app:[redacted]@db/app"
    );
    assert!(!format!("{config:?}").contains("s3cret"));
}

#[test]
fn tasks_are_armed_however_far_ahead_unless_there_is_a_horizon() {
    assert_eq!(Config::default().redis.arm_horizon, None);
    let hour = Config::from_toml("redis.arm_horizon = '1h'").unwrap();
    assert_eq!(hour.redis.arm_horizon, Some(Duration::from_secs(3_600)));
    for refused in ["'59s'", "'0s'", "'forever'", "60", "false"] {
        assert_eq!(
            problems(&format!("redis.arm_horizon = {refused}")),
            [
                "`redis.arm_horizon`: expected \"unlimited\", or a duration of at least a minute, such as \"6h\""
            ],
            "{refused}"
        );
    }
}

#[test]
fn a_password_is_enough_for_redis_clients_of_a_private_network() {
    let settings = |plaintext: &str| {
        format!(
            "resp.listen = '0.0.0.0:6380'\nresp.password = '$argon2id$x'\nresp.plaintext = '{plaintext}'"
        )
    };
    let config = Config::from_toml(&settings("private-network")).unwrap();
    assert_eq!(config.resp.tls, None);
    for (address, served) in [("172.17.0.2", true), ("::1", true), ("8.8.8.8", false)] {
        let address = address.parse().unwrap();
        assert_eq!(config.resp.plaintext.serves(address), served, "{address}");
        assert_eq!(Plaintext::Loopback.serves(address), address.is_loopback());
    }
    assert!(problems(&settings("loopback"))[0].contains("`resp.tls_cert`: expected a certificate"));
    let unknown = &problems(&settings("everyone"))[0];
    assert!(
        unknown.contains("expected `loopback` or `private-network`"),
        "{unknown}"
    );
    let without_password = "resp.listen = '0.0.0.0:6380'\nresp.plaintext = 'private-network'";
    assert!(problems(without_password)[0].contains("`resp.password`: expected one"));
}

#[test]
fn plaintext_is_served_to_addresses_that_no_router_of_the_internet_knows() {
    let private = [
        "10.1.2.3",
        "127.0.0.1",
        "169.254.9.9",
        "172.17.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "::1",
        "fd00::1",
        "fe80::1",
        "::ffff:172.17.0.1",
    ];
    for address in private {
        assert!(
            Plaintext::PrivateNetwork.serves(address.parse().unwrap()),
            "{address}"
        );
    }
    let others = [
        "8.8.8.8",
        "172.32.0.1",
        "192.0.2.1",
        "0.0.0.0",
        "2606:4700::1111",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
    ];
    for address in others {
        assert!(
            !Plaintext::PrivateNetwork.serves(address.parse().unwrap()),
            "{address}"
        );
    }
}

#[test]
fn a_public_address_needs_a_token() {
    assert_eq!(
        problems("http.listen = \"0.0.0.0:8787\""),
        [
            "`http.tokens`: expected at least one, or `[[http.clients]]`, because `0.0.0.0:8787` is not a loopback address"
        ]
    );
}

#[test]
fn a_token_for_a_public_address_is_not_short() {
    let with = |address: &str, token: &str| {
        problems(&format!(
            "http = {{ listen = '{address}', tokens = ['{token}'] }}"
        ))
    };
    assert_eq!(
        with("0.0.0.0:8787", "0123456789abcde"),
        [
            "`http.tokens`: expected at least 16 characters in each, because `0.0.0.0:8787` is not a loopback address, found fewer"
        ]
    );
    Config::from_toml("http = { listen = '0.0.0.0:8787', tokens = ['0123456789abcdef'] }").unwrap();
    Config::from_toml("http = { listen = '127.0.0.1:8787', tokens = ['short'] }").unwrap();
}

#[test]
fn routes_are_read_in_order() {
    let text = r#"
        [[routes]]
        match = "^Auction@end(@|$)"
        exec = ["php", "task.php", "{class}", "{method}", "{args}"]
        timeout = "30s"
        retry = { max_attempts = 5, backoff = "exponential", base = "2s", max = "1h" }
        [[routes]]
        match = "."
        log = {}
    "#;
    let routes = Config::from_toml(text).unwrap().routes;
    assert_eq!(routes[0].limits.timeout, Some(Duration::from_secs(30)));
    assert_eq!(routes[0].retry.as_ref().unwrap().max_attempts, 5);
    assert_eq!(routes[1].target, TargetConfig::Log);
}

#[test]
fn a_route_may_warn_of_slow_runs_and_ask_for_signatures() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        file.path(),
        "the new secret of it\n\n the old secret of it \n",
    )
    .unwrap();
    let text = format!(
        "[[routes]]\nmatch = 'a'\nlog = {{}}\nslow_after = '5s'\npayload_secret = 'sixteen bytes or'\n\
         [[routes]]\nmatch = 'b'\nlog = {{}}\npayload_secret = ['sixteen bytes or', 'more than sixteen']\nadopt = false\n\
         [[routes]]\nmatch = 'c'\nlog = {{}}\npayload_secret_file = '{}'\n",
        file.path().display()
    );
    let config = Config::from_toml(&text).unwrap();
    let secrets = |route: usize| -> Vec<&str> {
        let secrets = config.routes[route].payload_secrets.iter();
        secrets.map(Secret::expose).collect()
    };
    assert_eq!(config.routes[0].slow_after, Some(Duration::from_secs(5)));
    assert_eq!(secrets(0), ["sixteen bytes or"]);
    assert_eq!(secrets(1), ["sixteen bytes or", "more than sixteen"]);
    assert_eq!(secrets(2), ["the new secret of it", "the old secret of it"]);
    assert!(!format!("{config:?}").contains("sixteen bytes or"));
}

#[test]
fn what_is_wrong_with_slow_after_and_secrets_is_said_all_at_once() {
    let found = problems(
        "[[routes]]\nmatch = 'a'\nlog = {}\nslow_after = 5\npayload_secret = 'short'\n\
         [[routes]]\nmatch = 'b'\nlog = {}\npayload_secret = 'sixteen bytes or'\npayload_secret_file = 'x'\n\
         [[routes]]\nmatch = 'c'\nlog = {}\npayload_secret_file = '/nowhere'\n\
         [[routes]]\nmatch = 'd'\nlog = {}\npayload_secret = 'sixteen bytes or'\nadopt = true\n\
         [[routes]]\nmatch = 'e'\nlog = {}\npayload_secret = []\n\
         [[routes]]\nmatch = 'f'\nlog = {}\npayload_secret = 7\n",
    );
    assert_eq!(
        found,
        [
            "`routes[0].slow_after`: expected a duration with a unit, such as \"1500ms\", \"30s\" or \"15m\", found 5",
            "`routes[0].payload_secret`: expected secrets of at least 16 bytes, found one of 5",
            "`routes[1]`: expected one of `payload_secret` and `payload_secret_file`",
            "`routes[2].payload_secret_file`: cannot read `/nowhere`: No such file or directory (os error 2)",
            "`routes[3].adopt`: expected false beside `payload_secret`: a key that another program sets is not signed",
            "`routes[4].payload_secret`: expected at least one secret",
            "`routes[5].payload_secret`: expected a text or a list of texts",
        ]
    );
}

#[test]
fn a_recurring_task_that_nobody_signs_does_not_go_to_a_route_that_wants_it_signed() {
    let text = "[[recurring]]\nkey = 'Bill@nightly'\nevery = '1h'\n\
         [[recurring]]\nkey = 'Feed@pull'\nevery = '1h'\n\
         [[routes]]\nmatch = '^Feed@'\nlog = {}\n\
         [[routes]]\nmatch = '.'\nlog = {}\npayload_secret = 'sixteen bytes or'\n";
    assert_eq!(
        problems(text),
        [
            "`recurring[0].key`: `Bill@nightly` goes to the route `match = \".\"`, which runs only what is signed with its \
             `payload_secret`: expected another route, or a program that signs it and creates it"
        ]
    );
}

#[test]
fn a_route_may_have_limits() {
    let text = "[[routes]]\nmatch = 'x'\nlog = {}\nconcurrency = 32\nrate = '100/s'\nburst = 20\npriority = -3\n";
    let limits = Config::from_toml(text).unwrap().routes[0].limits;
    let rate = "100/s".parse::<crate::task::Rate>().unwrap();
    let expected = Limits::new().concurrency(32).priority(-3);
    assert_eq!(limits, expected.rate(rate.with_burst(20).unwrap()));
    let plain = Config::from_toml("[[routes]]\nmatch = 'x'\nlog = {}\n").unwrap();
    assert_eq!(plain.routes[0].limits, Limits::new());
}

#[test]
fn broken_limits_say_what_was_expected() {
    let broken = |line: &str| problems(&format!("[[routes]]\nmatch = 'x'\nlog = {{}}\n{line}\n"));
    let number = "expected a number and a unit, such as \"100/s\", \"30/m\" or \"5/h\"";
    let told = [
        ("rate = '100'", format!("`routes[0].rate`: {number}")),
        ("rate = 100", format!("`routes[0].rate`: {number}")),
        (
            "rate = '0/s'",
            "`routes[0].rate`: expected 1 to 1000000 in the unit".to_owned(),
        ),
        (
            "burst = 3",
            "`routes[0].burst`: expected `rate` beside it".to_owned(),
        ),
        (
            "rate = '1/s'\nburst = 0",
            "`routes[0].burst`: expected 1 to 1000000".to_owned(),
        ),
        (
            "concurrency = 0",
            "`routes[0].concurrency`: expected 1 to 100000".to_owned(),
        ),
        (
            "priority = 128",
            "`routes[0].priority`: expected -128 to 127".to_owned(),
        ),
        (
            "priority = 'high'",
            "`routes[0].priority`: expected -128 to 127".to_owned(),
        ),
    ];
    for (line, message) in told {
        assert_eq!(broken(line), [message], "{line}");
    }
    let all = broken("rate = 'x'\nburst = 0\nconcurrency = -1\npriority = 1000\ntimeout = '0s'");
    assert_eq!(all.len(), 5, "{all:?}");
}

#[test]
fn broken_routes_say_what_was_expected() {
    let found = problems(
        "[[routes]]\nmatch = \"(\"\n[[routes]]\nmatch = \"x\"\nexec = [\"sh\", \"-c\", \"run {key}\"]\nlogg = 1\n",
    );
    assert!(
        found[0].starts_with("`routes[0].match`: is not a regular expression"),
        "{found:?}"
    );
    assert!(
        found
            .iter()
            .any(|p| p == "`routes[0]`: has no target, expected one of `exec`, `webhook`, `stream`, `list`, `publish`, `log`, `pull`"),
        "{found:?}"
    );
    assert!(
        found
            .iter()
            .any(|p| p.starts_with("`routes[1].exec`: `run {key}` holds no whole placeholder")),
        "{found:?}"
    );
    assert!(
        found
            .iter()
            .any(|p| p == "`routes[1].logg`: is not the name of a setting, did you mean `log`?"),
        "{found:?}"
    );
}

#[test]
fn a_route_has_exactly_one_target_and_each_is_looked_at() {
    let found = problems(
        "[[routes]]\nmatch = 'x'\nexec = ['/bin/true']\nlog = {}\nlist = {}\nallow_dash = true\n[[routes]]\nmatch = 'x'\nlog = {}\nallow_dash = true",
    );
    assert_eq!(
        found,
        [
            "`routes[0].list.key`: is missing",
            "`routes[0]`: has 3 targets (`exec`, `list`, `log`), expected one of `exec`, `webhook`, `stream`, `list`, `publish`, `log`, `pull`",
            "`routes[1].allow_dash`: belongs to `exec`: this target has no such key",
        ]
    );
}

#[test]
fn a_key_beside_a_target_it_does_not_belong_to_says_where_it_does() {
    let found = problems(
        "[[routes]]\nmatch = 'x'\nlog = {}\nkeep_result = true\nenv = ['PATH']\n\
         [[routes]]\nmatch = 'x'\nwebhook = { url = 'https://shop.example/' }\nkeep_result = true\nallow_dash = true\n",
    );
    assert_eq!(
        found,
        [
            "`routes[0].env`: belongs to `exec`: this target has no such key",
            "`routes[0].keep_result`: belongs to `exec` and `webhook`: this target has no such key",
            "`routes[1].allow_dash`: belongs to `exec`: this target has no such key",
        ]
    );
}

#[test]
fn a_placeholder_that_does_not_exist_is_refused() {
    let exec = |arg: &str| format!("[[routes]]\nmatch = 'x'\nexec = ['sh', '{arg}']\n");
    assert_eq!(
        problems(&exec("{bogus}")),
        [
            "`routes[0].exec`: `{bogus}` is no placeholder, expected one of {key} {class} {method} {args} {id}, or plain text"
        ]
    );
    for text in ["{}", "{\"a\": 1}", "{ print }", "a{b}", "{a,b}"] {
        assert!(Config::from_toml(&exec(text)).is_ok(), "{text}");
    }
}

#[test]
fn a_line_that_is_not_toml_is_named_and_not_shown() {
    let found = problems("[redis]\n\nurl = \"redis://:s3cret@h\n");
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("line 3 is not TOML: "), "{found:?}");
    assert!(!found[0].contains("s3cret"), "{found:?}");
}
