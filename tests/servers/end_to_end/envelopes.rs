//! What travels with a payload, from the producers through the table to programs: traces and signatures.

use std::io::Write;
use std::process::Command;

use lapsed::task::State;
use lapsed::{Due, Handlers, Task};
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::support::program::said;
use crate::support::rig::Rig;
use crate::support::shell::Shell;
use crate::support::tasks::key;
use crate::support::wait::until;

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const OTHER: &str = "00-11111111111111111111111111111111-2222222222222222-00";
const SECRET: &str = "a secret of sixteen bytes or more";

/// The payload column as it is.
async fn stored(rig: &Rig, name: &str) -> Option<String> {
    let query = "SELECT payload FROM tb_time_limit_task WHERE `key` = ?";
    let row = sqlx::query_scalar(query).bind(name).fetch_one(&rig.sql);
    row.await.unwrap()
}

/// The program, which is to succeed; what it printed.
fn printed(command: &mut Command) -> String {
    let (code, stdout, stderr) = said(command.output().unwrap());
    assert_eq!(code, 0, "{stdout}{stderr}");
    stdout
}

fn file_with(text: &str) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    file.as_file().write_all(text.as_bytes()).unwrap();
    file
}

#[tokio::test]
async fn a_payload_is_stored_as_it_is_unless_something_travels_with_it() {
    let rig = Rig::new("").await;
    let tasks = rig.client().await;
    let (payload, due) = (r#"{ "b":1,  "a":"é" }"#, Due::parse_delay("1h").unwrap());
    for name in ["C@m@plain", "C@m@traced", "C@m@signed"] {
        let mut task = Task::from(key(name)).payload(payload);
        if name.ends_with("traced") {
            task = task.traceparent(TRACE).unwrap();
        }
        if name.ends_with("signed") {
            task = task.sign(SECRET);
        }
        tasks.create(task, due).await.unwrap();
        assert_eq!(rig.record(name).await.payload.as_deref(), Some(payload));
    }
    let bare = Task::from(key("C@m@bare"));
    tasks.create(bare.clone(), due).await.unwrap();
    let traced = Task::from(key("C@m@bare@traced"))
        .traceparent(TRACE)
        .unwrap();
    tasks.create(traced, due).await.unwrap();

    assert_eq!(stored(&rig, "C@m@plain").await.as_deref(), Some(payload));
    assert_eq!(stored(&rig, "C@m@bare").await, None);
    let envelope = format!(r#"{{"$lapsed":{{"traceparent":"{TRACE}"}},"payload":{payload}}}"#);
    assert_eq!(stored(&rig, "C@m@traced").await, Some(envelope));
    let envelope = format!(r#"{{"$lapsed":{{"traceparent":"{TRACE}"}}}}"#);
    assert_eq!(stored(&rig, "C@m@bare@traced").await, Some(envelope));
    let record = rig.record("C@m@bare@traced").await;
    assert_eq!(
        (record.payload, record.traceparent),
        (None, TRACE.parse().ok())
    );
    let signed = stored(&rig, "C@m@signed").await.unwrap();
    assert!(
        signed.starts_with(r#"{"$lapsed":{"signature":"v1,"#),
        "{signed}"
    );
    assert!(
        signed.ends_with(&format!(r#""payload":{payload}}}"#)),
        "{signed}"
    );
}

#[tokio::test]
async fn the_limit_of_a_payload_is_about_the_users_own() {
    let rig = Rig::new("").await;
    let tasks = rig.client().await;
    let payload = format!("\"{}\"", "x".repeat(lapsed::task::PAYLOAD_BYTES_MAX - 2));
    let task = Task::from(key("C@m@1")).payload(payload.clone());
    let task = task.sign(SECRET).traceparent(TRACE).unwrap();
    tasks.create(task, Due::NOW).await.unwrap();
    assert_eq!(rig.record("C@m@1").await.payload, Some(payload));
}

#[tokio::test]
async fn a_program_receives_the_trace_of_its_run() {
    let out = tempfile::tempdir().unwrap();
    let rig = Rig::new(&format!(
        "[[routes]]\nmatch = '^Run@'\nexec = ['/bin/sh', '-c', '''cat > \"$0/$1.json\"; env > \"$0/$1.env\"; echo over > \"$0/$1\"''', '{}', '{{args}}']",
        out.path().display()
    ))
    .await;
    let daemon = rig.daemon_with(Handlers::new());
    let traced = Task::from(key("Run@it@traced"))
        .payload("[7]")
        .traceparent(TRACE);
    daemon
        .tasks
        .create(traced.unwrap(), Due::NOW)
        .await
        .unwrap();
    daemon.create("Run@it@plain", 0).await;
    // As a program that knows only SQL says it.
    rig.run_sql(&format!(
        r#"INSERT INTO tb_time_limit_task (`key`, start_time, end_time, payload)
           VALUES ('Run@it@sql', UNIX_TIMESTAMP(), UNIX_TIMESTAMP(), '{{"order":7,"traceparent":"{OTHER}"}}')"#
    ))
    .await;
    rig.until_done(3).await;
    let read = |name: &str| std::fs::read_to_string(out.path().join(name)).unwrap();
    let parent_of = |name: &str| {
        let env = read(&format!("{name}.env"));
        let line = env
            .lines()
            .find_map(|line| line.strip_prefix("TRACEPARENT="));
        let json: Value = serde_json::from_str(&read(&format!("{name}.json"))).unwrap();
        let parent = line.map(str::to_owned);
        assert_eq!(
            json.get("traceparent").cloned(),
            parent.clone().map(Value::from)
        );
        (parent, json["payload"].clone())
    };
    assert_eq!(parent_of("plain"), (None, Value::Null));
    let (parent, payload) = parent_of("traced");
    let parent = parent.unwrap();
    assert!(
        parent.starts_with(&TRACE[..36]) && parent != TRACE,
        "{parent}"
    );
    assert_eq!(payload, json!([7]));
    let (parent, payload) = parent_of("sql");
    assert!(parent.unwrap().starts_with(&OTHER[..36]));
    assert_eq!(payload, json!({"order": 7, "traceparent": OTHER}));
}

#[tokio::test]
async fn a_route_with_a_secret_runs_only_what_was_signed_with_it() {
    let rig = Rig::new(&format!(
        "[[routes]]\nmatch = '^Pay@'\nlog = {{}}\npayload_secret = ['the one that comes next', '{SECRET}']\nslow_after = '1m'"
    ))
    .await;
    let daemon = rig.daemon_with(Handlers::new());
    daemon.hears_events().await;
    let signed = Task::from(key("Pay@out@signed"))
        .payload("[100]")
        .sign(SECRET);
    daemon.tasks.create(signed, Due::NOW).await.unwrap();
    daemon.create("Pay@out@unsigned", 0).await;
    rig.arm("Pay@out@armed", 300).await;
    // The signature of another amount.
    let payload = stored(&rig, "Pay@out@signed").await.unwrap();
    let forged = payload.replace("[100]", "[999]");
    assert_ne!(forged, payload);
    rig.run_sql(&format!(
        "INSERT INTO tb_time_limit_task (`key`, start_time, end_time, payload) \
         VALUES ('Pay@out@forged', UNIX_TIMESTAMP(), UNIX_TIMESTAMP(), '{forged}')"
    ))
    .await;
    rig.until_state("Pay@out@signed", State::Done).await;
    for name in ["Pay@out@unsigned", "Pay@out@forged"] {
        rig.until_state(name, State::Dead).await;
        let record = rig.record(name).await;
        let error = record.last_error.unwrap_or_default();
        assert!(
            error.starts_with("permanent failure: payload is not authentic"),
            "{error}"
        );
        assert_eq!(record.attempt, 1);
    }
    until("the key has expired", async || {
        rig.pttl("Pay@out@armed").await == -2
    })
    .await;
    assert_eq!(
        rig.number("SELECT COUNT(*) FROM tb_time_limit_task").await,
        3
    );
}

#[tokio::test]
async fn the_command_line_traces_and_signs() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let secret = file_with(&format!("{SECRET}\nan older secret of it\n"));
    let schedule = |args: &[&str]| shell.command(&[&["schedule"], args].concat());
    let one = [
        "C@m@1",
        "--in",
        "1h",
        "--payload",
        "{\"a\": 1}",
        "--traceparent",
        TRACE,
    ];
    printed(schedule(&one).arg("--sign-with").arg(secret.path()));
    let lines = file_with(&format!(
        "{{\"key\": \"C@m@2\", \"in\": \"1h\", \"traceparent\": \"{OTHER}\"}}\n{{\"key\": \"C@m@3\", \"in\": \"1h\"}}\n"
    ));
    printed(
        schedule(&["--sign-with"])
            .arg(secret.path())
            .arg("--file")
            .arg(lines.path()),
    );
    for (name, payload) in [
        ("C@m@1", Some("{\"a\": 1}")),
        ("C@m@2", None),
        ("C@m@3", None),
    ] {
        let signature = lapsed::task::sign(SECRET.as_bytes(), &key(name), payload);
        let envelope = stored(&rig, name).await.unwrap();
        assert!(envelope.contains(&signature), "{name}: {envelope}");
    }

    let show = |args: &[&str]| shell.text(args);
    let shown: Value = serde_json::from_str(&show(&["--json", "show", "C@m@1"])).unwrap();
    assert_eq!(
        (&shown["payload"], &shown["traceparent"]),
        (&json!({ "a": 1 }), &json!(TRACE))
    );
    assert!(show(&["show", "C@m@2"]).contains(&format!("traceparent   {OTHER}")));
    let listed = show(&["--json", "list"]);
    assert!(!listed.contains("$lapsed"), "{listed}");
    let third: Value = serde_json::from_str(listed.lines().nth(2).unwrap()).unwrap();
    assert!(third.get("traceparent").is_none(), "{third}");

    // What is refused.
    let refused = |command: &mut Command| {
        let (code, _, stderr) = said(command.output().unwrap());
        (code, stderr)
    };
    let (code, stderr) = refused(&mut schedule(&[
        "C@m@4",
        "--in",
        "1h",
        "--traceparent",
        "00-1",
    ]));
    assert_eq!(code, 2);
    assert!(stderr.contains("expected `00-<32 hex digits>-"), "{stderr}");
    let short = file_with("short\n");
    let (code, stderr) =
        refused(schedule(&["C@m@4", "--in", "1h", "--sign-with"]).arg(short.path()));
    assert_eq!(code, 2);
    assert!(
        stderr.contains("has 5 bytes, expected at least 16"),
        "{stderr}"
    );
    let (code, stderr) = refused(&mut schedule(&[
        "C@m@4",
        "--in",
        "1h",
        "--payload",
        "{\"$lapsed\":1}",
    ]));
    assert_eq!(code, 2);
    assert!(stderr.contains("`$lapsed`, which is reserved"), "{stderr}");
    let bad = file_with("{\"key\": \"C@m@5\", \"in\": \"1h\", \"traceparent\": \"x\"}\n");
    let (code, stderr) = refused(schedule(&["--file"]).arg(bad.path()));
    assert_eq!(code, 1);
    assert!(
        stderr.starts_with("line 1: `x` is not a traceparent: it is too short"),
        "{stderr}"
    );
    assert_eq!(
        rig.number("SELECT COUNT(*) FROM tb_time_limit_task").await,
        3
    );
}
