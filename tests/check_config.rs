//! `lapsed check-config`: what it shows, and what it keeps to itself.

use std::process::{Command, Output};

fn check(config: &str, arguments: &[&str]) -> Output {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lapsed"));
    command.arg("--config").arg(file.path()).arg("check-config");
    command.args(arguments).output().unwrap()
}

const ROUTES: &str = r#"
[[routes]]
match = "^Order@"
webhook = { url = "https://shop.example/T0/s3cret?k=s3cret", secret = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"], headers = { authorization = "Bearer s3cret" } }
[[routes]]
match = "^Mail@"
stream = { key = "lapsed:{class}", url = "redis://u:s3cret@h:6380/1" }
[[routes]]
match = "^Run@"
exec = ["php", "task.php", "s3cret"]
"#;

#[test]
fn routes_are_shown_with_their_targets_and_without_their_secrets() {
    let output = check(ROUTES, &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        text,
        "the configuration is in order, 3 routes\n  \
         ^Order@  ->  webhook https://shop.example, signed with 2 keys\n  \
         ^Mail@  ->  stream lapsed:{class} on redis://u:[redacted]@h:6380/1\n  \
         ^Run@  ->  exec php\n"
    );
    let output = check(ROUTES, &["--json"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["routes"], 3);
    assert_eq!(value["targets"][2]["match"], "^Run@");
    assert_eq!(value["targets"][2]["target"], "exec php");
}

#[test]
fn all_that_is_wrong_is_said_at_once_and_the_exit_code_says_so() {
    let config = "[[routes]]\nmatch = 'a'\nwebhook = { url = 'http://10.0.0.1/', secret = 's3cret' }\n[[routes]]\nmatch = 'b'\nlist = { key = 'Order@x' }";
    let output = check(config, &[]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(
        text.lines().all(|line| line.starts_with("error: `routes[")),
        "{text}"
    );
    assert!(!text.contains("s3cret"), "{text}");
}

#[test]
fn a_series_that_will_never_run_is_warned_of() {
    let config = "[[routes]]\nmatch = '^C@'\nlog = {}\n\
                  [[recurring]]\nkey = 'C@fine'\nevery = '1h'\n\
                  [[recurring]]\nkey = 'D@m'\nevery = '1h'\n\
                  [[recurring]]\nkey = 'C@over'\ncron = '@daily'\nuntil = '2020-01-01T00:00:00Z'\n\
                  [[recurring]]\nkey = 'C@never'\nevery = '1h'\nstart = '2099-01-02T00:00:00Z'\nuntil = '2099-01-01T00:00:00Z'\n";
    let output = check(config, &[]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let expected = "warning: `D@m` of `[[recurring]]` matches no route: only a program with a handler for it runs it\n\
                    warning: `C@over` of `[[recurring]]` is over: its last occurrence has passed\n\
                    warning: `C@never` of `[[recurring]]` never comes: no occurrence lies between `start` and `until`\n";
    assert_eq!(text, expected);
    let output = check(config, &["--json"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["warnings"].as_array().unwrap().len(), 3);
}
