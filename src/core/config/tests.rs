mod routes;
mod suggestions;

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
fn a_line_that_is_not_toml_is_named_and_not_shown() {
    let found = problems("[redis]\n\nurl = \"redis://:s3cret@h\n");
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("line 3 is not TOML: "), "{found:?}");
    assert!(!found[0].contains("s3cret"), "{found:?}");
}
