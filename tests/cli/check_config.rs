//! `lapsed check-config`: what it shows, and what it keeps to itself.

use std::path::Path;
use std::process::Output;

use crate::support::program::{lapsed, said};

fn check(config: &str, arguments: &[&str]) -> Output {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), config).unwrap();
    check_file(&file, arguments)
}

fn check_file(file: &tempfile::NamedTempFile, arguments: &[&str]) -> Output {
    let mut command = lapsed();
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
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), ROUTES).unwrap();
    let path = file.path().display();
    let output = check_file(&file, &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    let expected = format!(
        "the configuration is valid, 3 routes: file `{path}`\n  \
         ^Order@  ->  webhook https://shop.example, signed with 2 keys\n  \
         ^Mail@  ->  stream lapsed:{{class}} on redis://u:[redacted]@h:6380/1\n  \
         ^Run@  ->  exec php\n"
    );
    assert_eq!(text, expected);
    let output = check_file(&file, &["--json"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["file"], file.path().to_str().unwrap());
    assert_eq!(value["routes"], 3);
    assert_eq!(value["targets"][2]["match"], "^Run@");
    assert_eq!(value["targets"][2]["target"], "exec php");
}

#[test]
fn every_configuration_error_is_reported_at_once_with_exit_code_2() {
    let config = "[[routes]]\nmatch = 'a'\nwebhook = { url = 'http://10.0.0.1/', secret = 's3cret' }\n[[routes]]\nmatch = 'b'\nlist = { key = 'Order@x' }";
    let output = check(config, &[]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    let (note, problems) = lines.split_last().unwrap();
    assert!(note.starts_with("note: configuration: file `/"), "{text}");
    assert_eq!(problems.len(), 3, "{text}");
    assert!(
        problems
            .iter()
            .all(|line| line.starts_with("error: `routes[")),
        "{text}"
    );
    assert!(!text.contains("s3cret"), "{text}");
}

#[test]
fn a_recurring_task_that_never_runs_causes_a_warning() {
    let config = "[[routes]]\nmatch = '^C@'\nlog = {}\n\
                  [[recurring]]\nkey = 'C@fine'\nevery = '1h'\n\
                  [[recurring]]\nkey = 'D@m'\nevery = '1h'\n\
                  [[recurring]]\nkey = 'C@over'\ncron = '@daily'\nuntil = '2020-01-01T00:00:00Z'\n\
                  [[recurring]]\nkey = 'C@never'\nevery = '1h'\nstart = '2099-01-02T00:00:00Z'\nuntil = '2099-01-01T00:00:00Z'\n";
    let output = check(config, &[]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let expected = "warning: `D@m` of `[[recurring]]` matches no route: only a program with a handler for it runs it\n\
                    warning: `C@over` of `[[recurring]]` has ended: its last occurrence has passed\n\
                    warning: `C@never` of `[[recurring]]` never runs: it has no occurrence between `start` and `until`\n";
    assert_eq!(text, expected);
    let output = check(config, &["--json"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["warnings"].as_array().unwrap().len(), 3);
}

#[test]
fn an_unreachable_route_causes_a_warning() {
    let config = "[[routes]]\nmatch = '^Order@'\nlog = {}\n\
                  [[routes]]\nmatch = '^Order@close(@|$)'\nlog = {}\n\
                  [[routes]]\nmatch = '^Mail@'\nlog = {}\n\
                  [[routes]]\nmatch = '^Mail@'\nlog = {}\n";
    let output = check(config, &[]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(
        text,
        "warning: `routes[1]` (`^Order@close(@|$)`) is never used: `routes[0]` (`^Order@`) matches its keys first\n\
         warning: `routes[3]` (`^Mail@`) is never used: `routes[2]` (`^Mail@`) matches its keys first\n"
    );
}

/// Exit code, stdout and stderr of a command in a directory, with nothing but these variables.
fn run_in(home: &Path, env: &[(&str, &str)], args: &[&str]) -> (i32, String, String) {
    let mut command = lapsed();
    command
        .current_dir(home)
        .env_clear()
        .envs(env.iter().copied());
    said(command.args(args).output().unwrap())
}

/// A server that refuses connections.
const NOWHERE: (&str, &str) = ("LAPSED__LEDGER__URL", "mysql://root@127.0.0.1:1/lapsed");

#[test]
fn check_config_names_the_configuration_file_in_use() {
    let home = tempfile::tempdir().unwrap();
    let (code, stdout, stderr) = run_in(home.path(), &[], &["check-config"]);
    assert_eq!((code, &stderr[..]), (0, ""));
    assert!(
        stdout.contains("0 routes: built-in defaults (no --config, no LAPSED_CONFIG, none of `./config/lapsed.toml`,"),
        "{stdout}"
    );
    let (code, _, stderr) = run_in(home.path(), &[NOWHERE], &["list"]);
    assert_eq!(code, 1, "{stderr}");
    assert!(
        stderr.contains("note: configuration: built-in defaults"),
        "{stderr}"
    );
    let (_, stdout, _) = run_in(home.path(), &[NOWHERE], &["doctor"]);
    assert!(stdout.starts_with("note     configuration "), "{stdout}");
    let (code, _, stderr) = run_in(home.path(), &[NOWHERE], &["listen"]);
    assert_eq!(code, 1, "{stderr}");
    assert!(
        stderr.contains("configuration=built-in defaults"),
        "{stderr}"
    );

    // Found in the directory, behind the one in `config`.
    std::fs::write(
        home.path().join("lapsed.toml"),
        "[[routes]]\nmatch = 'a'\nlog = {}",
    )
    .unwrap();
    let (_, stdout, _) = run_in(home.path(), &[], &["check-config"]);
    assert!(stdout.contains("1 route: file `./lapsed.toml`"), "{stdout}");
    std::fs::create_dir(home.path().join("config")).unwrap();
    std::fs::write(home.path().join("config/lapsed.toml"), "redis = \n").unwrap();
    let (code, _, stderr) = run_in(home.path(), &[], &["check-config"]);
    assert_eq!(code, 2, "{stderr}");
    assert!(
        stderr.starts_with("error: `./config/lapsed.toml`: line 1 is not TOML: "),
        "{stderr}"
    );
    let named = [("LAPSED_CONFIG", "lapsed.toml"), NOWHERE];
    let (_, _, stderr) = run_in(home.path(), &named, &["list"]);
    assert!(
        stderr.ends_with("note: configuration: file `lapsed.toml`\n"),
        "{stderr}"
    );
}

#[test]
fn an_environment_variable_with_too_few_underscores_causes_a_warning() {
    let home = tempfile::tempdir().unwrap();
    let env = [
        ("LAPSED_REDIS_URL", "redis://h:6379/0"),
        ("LAPSED_PHP_REDIS", "x"),
    ];
    let (code, _, stderr) = run_in(home.path(), &env, &["check-config"]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(
        stderr,
        "warning: the variable `LAPSED_REDIS_URL` is not read: did you mean `LAPSED__REDIS__URL`?\n"
    );
}
