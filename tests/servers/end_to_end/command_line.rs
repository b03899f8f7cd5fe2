//! What the commands have in common: exit codes, JSON, and what a reader that goes away does to them.

use std::io::Write as _;
use std::process::Stdio;

use lapsed::task::State;
use serde_json::{Value, json};

use crate::support::program::lapsed;
use crate::support::rig::Rig;
use crate::support::shell::Shell;
use crate::support::tasks::create;
use crate::support::wait::until;

/// What `schedule --file` makes of these lines.
fn schedule_file(shell: &Shell, lines: &str) -> (i32, String, String) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(lines.as_bytes()).unwrap();
    shell.run(&["schedule", "--file", file.path().to_str().unwrap()])
}

#[tokio::test]
async fn usage_errors_exit_with_2_and_ledger_refusals_with_1() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let long = "x".repeat(300);
    let short = tempfile::NamedTempFile::new().unwrap();
    fn schedule<'a>(more: &[&'a str]) -> Vec<&'a str> {
        [&["schedule", "C@m@1", "--in", "1h"], more].concat()
    }
    for (args, says) in [
        (schedule(&["--payload", "{"]), "payload is not JSON"),
        (schedule(&["--payload", "@/nowhere"]), "open payload"),
        (schedule(&["--tag", ""]), "tag is empty"),
        (schedule(&["--tag", &long]), "tag has 300 characters"),
        (
            schedule(&["--sign-with", short.path().to_str().unwrap()]),
            "is empty, expected a secret",
        ),
        (vec!["schedule", "C@m@1", "--in", "100000d"], "expected"),
        (vec!["reschedule", "C@m@1", "--in", "100000d"], "expected"),
        (vec!["schedule", "--file", "/nowhere"], "open `/nowhere`"),
        (
            vec!["list", "--cursor", "x"],
            "expected the value that the previous page",
        ),
    ] {
        let (code, _, stderr) = shell.run(&args);
        assert_eq!(code, 2, "{args:?}: {stderr}");
        assert!(stderr.contains(says), "{args:?}: {stderr}");
    }
    assert_eq!(shell.run(&schedule(&["--if-pending", "refuse"])).0, 0);
    let other = ["schedule", "C@m@1", "--in", "2h", "--if-pending", "refuse"];
    for args in [&other[..], &["run", "C@m@2"], &["redrive", "C@m@1"]] {
        assert_eq!(shell.run(args).0, 1, "{args:?}");
    }
}

#[tokio::test]
async fn cancelling_twice_succeeds() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    create(&rig.client().await.into(), "C@m@1", 60_000).await;
    assert_eq!(shell.run(&["cancel", "C@m@1"]).0, 0);
    let (code, stdout, _) = shell.run(&["cancel", "C@m@1"]);
    assert_eq!((code, &stdout[..]), (0, "`C@m@1` is cancelled already\n"));
    let report = shell.json(&["cancel", "C@m@1"]);
    assert_eq!(
        (&report["cancelled"], &report["running"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(shell.run(&["cancel", "C@m@2"]).0, 1);
    assert_eq!(rig.state("C@m@1").await, State::Cancelled);
}

#[tokio::test]
async fn the_last_line_of_a_key_wins() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let (code, _, stderr) = schedule_file(
        &shell, // Some programs begin their files with a byte order mark.
        "\u{feff}{\"key\": \"C@m@1\", \"in\": \"1h\"}\n{\"key\": \"C@m@1\", \"every\": \"15m\"}\n\
         {\"key\": \"C@m@2\", \"every\": \"15m\"}\n{\"key\": \"C@m@2\", \"in\": \"1h\"}\n\
         {\"key\": \"C@m@3\", \"in\": \"1h\", \"tag\": \"one\"}\n{\"key\": \"C@m@3\", \"in\": \"2h\", \"tag\": \"two\"}\n",
    );
    assert_eq!(code, 0, "{stderr}");
    assert!(rig.record("C@m@1").await.recurrence.is_some());
    assert!(rig.record("C@m@2").await.recurrence.is_none());
    assert_eq!(rig.record("C@m@3").await.tag.as_deref(), Some("two"));
}

#[tokio::test]
async fn a_field_of_a_line_that_does_not_fit_is_named() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    for (field, says) in [
        (
            "\"tag\": 7",
            "line 1: `tag`: invalid type: integer `7`, expected a string",
        ),
        (
            "\"in\": \"-5m\"",
            "line 1: `-5m` is negative, expected a duration",
        ),
        (
            "\"max_attempts\": 70000",
            "line 1: `max_attempts`: invalid value: integer `70000`, expected a whole number up to 65535",
        ),
        (
            "\"every\": \"1m\", \"catch_up\": \"some\"",
            "line 1: `catch_up`: unknown variant `some`, expected one of `skip`, `once`, `all`",
        ),
        (
            "\"every\": \"1m\", \"times\": 3, \"until\": \"2099-01-01T00:00:00Z\"",
            "line 1: expected at most one of `times` and `until`",
        ),
        (
            "\"every\": \"1m\", \"catch_up\": \"all\", \"catch_up_max\": 0",
            "line 1: `catch_up_max` does not fit, expected 1 to 10000",
        ),
    ] {
        let (code, _, stderr) = schedule_file(&shell, &format!("{{\"key\": \"C@m@1\", {field}}}"));
        assert_eq!(code, 1, "{field}");
        assert!(stderr.starts_with(says), "{field}: {stderr}");
    }
    let (_, _, stderr) = schedule_file(&shell, "[1]");
    assert!(
        stderr.contains("expected a JSON object such as"),
        "{stderr}"
    );
}

#[tokio::test]
async fn commands_that_make_or_move_a_paused_task_say_that_it_stays() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    assert_eq!(shell.run(&["pause", "C", "--reason", "why"]).0, 0);
    let (_, stdout, _) = shell.run(&["schedule", "C@m@1", "--in", "1h"]);
    assert!(
        stdout.contains(", but stays pending: `C` is paused, since 20"),
        "{stdout}"
    );
    let moved = shell.json(&["reschedule", "C@m@1", "--in", "2h"]);
    assert_eq!(
        (&moved["key"], &moved["armed"], &moved["kept_back"]),
        (&json!("C@m@1"), &json!(true), &json!("paused"))
    );
    let other = shell.json(&["schedule", "D@m@1", "--in", "1h"]);
    assert_eq!(other["kept_back"], Value::Null);

    rig.run_sql("UPDATE tb_time_limit_task SET status = 2, finished_at = end_time")
        .await;
    rig.run_sql("UPDATE tb_time_limit_task_pauses SET since = since - 10")
        .await;
    let (code, stdout, stderr) = shell.run(&["redrive", "--class", "C"]);
    assert_eq!((code, &stdout[..]), (0, "1 redriven\n"));
    assert!(
        stderr.starts_with("warning: `C` is paused, since 20"),
        "{stderr}"
    );
    let (code, _, stderr) = shell.run(&["redrive", "--class", "D"]);
    assert_eq!((code, &stderr[..]), (0, ""));
}

#[tokio::test]
async fn a_name_that_no_route_knows_is_pointed_out() {
    let rig = Rig::new("[[routes]]\nmatch = '^Order@close(@|$)'\nlog = {}").await;
    let shell = Shell::of(&rig);
    for (args, noted) in [
        (&["schedule", "Ordr@close@1", "--in", "1h"][..], true),
        (&["schedule", "Order@close@1", "--in", "1h"], false),
        (&["pause", "Ordr"], true),
        (&["pause", "Order@clos"], true),
        (&["pause", "Order"], false),
        (&["pause", "Order@close"], false),
        (&["pause", "--all"], false),
    ] {
        let (code, _, stderr) = shell.run(args);
        assert_eq!(code, 0, "{args:?}: {stderr}");
        let found = stderr.starts_with("note: no route of this configuration ");
        assert_eq!(found, noted, "{args:?}: {stderr}");
    }
    let rig = Rig::new("").await;
    let (_, _, stderr) = Shell::of(&rig).run(&["schedule", "Any@m@1", "--in", "1h"]);
    assert_eq!(stderr, "", "a producer's configuration has no routes");
}

#[tokio::test]
async fn a_payload_is_shown_as_the_json_that_it_is() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    create(&rig.client().await.into(), "C@m@1", 60_000).await;
    rig.run_sql("UPDATE tb_time_limit_task SET payload = '{\"amount\":\n12345678901234567890.10}'")
        .await;
    for command in [&["show", "C@m@1"][..], &["list"]] {
        let (_, stdout, _) = shell.run(&[&["--json"], command].concat());
        assert!(
            stdout.contains("\"payload\":{\"amount\": 12345678901234567890.10}"),
            "{stdout}"
        );
        assert_eq!(stdout.lines().count(), 1, "{stdout}");
    }
    rig.run_sql("UPDATE tb_time_limit_task SET payload = 'no JSON'")
        .await;
    assert_eq!(shell.json(&["show", "C@m@1"])["payload"], "no JSON");
}

#[tokio::test]
async fn a_migration_tells_programs_what_it_does() {
    let rig = Rig::new("").await;
    rig.run_sql("ALTER TABLE tb_time_limit_task DROP INDEX ix_tag")
        .await;
    let shell = Shell::of(&rig);
    let plan = shell.json(&["migrate", "--dry-run"]);
    assert_eq!(
        (&plan["dry_run"], &plan["steps"][0]["done"]),
        (&json!(true), &json!(false))
    );
    let done = shell.json(&["migrate"]);
    let step = &done["steps"][0];
    assert_eq!(done["steps"].as_array().unwrap().len(), 1, "{done}");
    assert_eq!(step["step"], "add key `ix_tag`");
    assert!(
        step["sql"].as_str().unwrap().starts_with("ALTER TABLE"),
        "{step}"
    );
    assert_eq!(
        (&step["algorithm"], &step["lock"], &step["done"]),
        (&json!("INPLACE"), &json!("NONE"), &json!(true))
    );
    assert_eq!(shell.json(&["migrate"])["steps"], json!([]));
}

#[test]
fn completions_do_not_mind_a_reader_that_goes_away() {
    let mut command = lapsed();
    command.args(["completions", "bash"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[tokio::test]
async fn stats_lists_classes_and_methods_and_watches_until_interrupted() {
    let rig = Rig::new("").await;
    let client = rig.client().await;
    create(&client, "Order@close@1", 60_000).await;
    create(&client, "Order@close@2", 0).await;
    create(&client, "Mail@send@1", 0).await;
    rig.run_sql("UPDATE tb_time_limit_task SET end_time = end_time - 90 WHERE `key` LIKE 'Mail%'")
        .await;
    let shell = Shell::of(&rig);
    let (code, text, _) = shell.run(&["stats"]);
    assert_eq!(code, 0);
    let of = |name: &str| -> Vec<String> {
        let line = text
            .lines()
            .map(str::trim)
            .find(|line| line.starts_with(name));
        let words = line
            .unwrap_or_else(|| panic!("no {name} in\n{text}"))
            .split_whitespace();
        words.map(str::to_owned).collect()
    };
    assert_eq!(of("pending")[1], "3");
    assert_eq!(of("overdue")[1], "2");
    assert_eq!(of("Order@close")[1..5], ["2", "0", "0", "1"]);
    let oldest: f64 = of("Mail@send")[5].parse().unwrap();
    assert!((90.0..180.0).contains(&oldest), "{text}");
    let json = shell.json(&["stats"]);
    assert_eq!(
        (&json["pending"], &json["at_least"]),
        (&json!(3), &json!([]))
    );
    assert_eq!(json["methods"][1]["name"], "Order@close");
    assert_eq!(shell.run(&["stats", "--watch", "1"]).0, 2, "no unit");

    let pages = tempfile::NamedTempFile::new().unwrap();
    let mut command = lapsed();
    command.arg("--config").arg(shell.config());
    command.args(["--json", "stats", "--watch", "150ms"]);
    let mut watching = command.stdout(pages.reopen().unwrap()).spawn().unwrap();
    let lines = || std::fs::read_to_string(pages.path()).unwrap();
    until("it has looked three times", async || {
        lines().lines().count() >= 3
    })
    .await;
    let pid = rustix::process::Pid::from_raw(watching.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(watching.wait().unwrap().code(), Some(0));
    for line in lines().lines() {
        assert_eq!(serde_json::from_str::<Value>(line).unwrap()["overdue"], 2);
    }
}
