use std::path::Path;
use std::time::Duration;

use super::*;

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
fn the_directory_of_a_program_is_an_absolute_path() {
    let exec = "[[routes]]\nmatch = 'x'\nexec = ['sh']\n";
    assert_eq!(
        problems(&format!("{exec}cwd = 'srv/shop'")),
        ["`routes[0].cwd`: expected an absolute path"]
    );
    let config = Config::from_toml(&format!("{exec}cwd = '/srv/shop'")).unwrap();
    let TargetConfig::Exec(exec) = &config.routes[0].target else {
        panic!("{:?}", config.routes[0].target);
    };
    assert_eq!(exec.cwd.as_deref(), Some(Path::new("/srv/shop")));
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
