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
