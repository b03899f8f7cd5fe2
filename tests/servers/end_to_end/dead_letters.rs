//! Dead tasks from the command line: found, brought back, thrown away.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::support::maria::numbers;
use crate::support::rig::Rig;
use crate::support::shell::Shell;
use crate::support::wait::until;

/// Ten dead tasks: `Mail@send@1` to `5`, `Bill@print@1` to `5`, one of each an hour apart.
async fn dead() -> (Rig, Shell) {
    let rig = Rig::new("").await;
    for (name, reason, error) in [
        ("Mail@send", "exhausted", "connection refused"),
        ("Bill@print", "permanent", "permanent failure: no paper"),
    ] {
        let numbers = numbers(5);
        rig.run_sql(&format!(
            "INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time, run_end, attempt, reason, last_error, tag, finished_at, history) \
             SELECT CONCAT('{name}@', seq), 2, UNIX_TIMESTAMP() - 86400, UNIX_TIMESTAMP() - 86400, UNIX_TIMESTAMP() - 86400, 3, '{reason}', '{error}', \
               CONCAT('shop-', seq), UNIX_TIMESTAMP() - 3600 * seq + 60, \
               '{{\"how\":\"failed\",\"attempt\":3,\"at\":\"2026-11-21T20:00:00.250Z\",\"error\":\"{error}\",\"daemon\":\"host:1\"}}' \
             FROM {numbers}"
        ))
        .await;
    }
    let shell = Shell::of(&rig);
    (rig, shell)
}

#[tokio::test]
async fn dead_tasks_are_listed_with_reason_and_time() {
    let (_rig, shell) = dead().await;
    let (code, table, _) =
        shell.run(&["list", "--state", "dead", "--class", "Bill", "--limit", "2"]);
    assert_eq!(code, 0);
    let lines: Vec<&str> = table.lines().map(str::trim).collect();
    let heads: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(heads, ["KEY", "REASON", "DIED", "ATTEMPT", "TAG", "ERROR"]);
    assert_eq!(lines.len(), 3);
    assert!(
        lines[1].starts_with("Bill@print@1") && lines[1].contains("permanent"),
        "{table}"
    );

    let count = |args: &[&str]| {
        shell
            .json_lines(&[&["list", "--state", "dead"], args].concat())
            .len()
    };
    for (args, expected) in [
        (&["--reason", "exhausted"][..], 5),
        (&["--error", "REFUSED"], 5),
        (&["--tag", "shop-1"], 2),
        (&["--older-than", "3h"], 4),
        (&["--newer-than", "2h"], 4),
        (
            &[
                "--method",
                "send",
                "--newer-than",
                "2h",
                "--error",
                "refused",
            ],
            2,
        ),
        (&["--class", "Bil"], 0),
    ] {
        assert_eq!(count(args), expected, "{args:?}");
    }
    let shown = &shell.json_lines(&["show", "Mail@send@2"])[0];
    assert_eq!(shown["reason"], "exhausted");
    assert_eq!(
        shown["history"],
        json!([{ "how": "failed", "attempt": 3, "at": "2026-11-21T20:00:00.250Z", "error": "connection refused", "daemon": "host:1" }])
    );
    let (_, text, _) = shell.run(&["show", "Mail@send@2"]);
    let expected = "dead because  exhausted\nlast error    connection refused\n\
                    history       2026-11-21T20:00:00.250Z  attempt 3  failed: connection refused  (host:1)\n";
    assert!(text.ends_with(expected), "{text}");
}

#[tokio::test]
async fn bulk_redrive_and_discard_require_a_filter() {
    let (rig, shell) = dead().await;
    for verb in ["redrive", "discard"] {
        for args in [
            &[verb][..],
            &[verb, "--state", "dead"],
            &[verb, "--limit", "3"],
        ] {
            let (code, _, stderr) = shell.run(args);
            assert_eq!(code, 2, "{args:?}");
            assert!(stderr.contains("give a filter (`--class`"), "{stderr}");
        }
        let wrong = [
            &[verb, "--reason", "bad"][..],
            &[verb, "--older-than", "7"],
            &[verb, "--state", "done", "--all"],
            &[verb, "Mail@send@1", "--all"],
            &[verb, "Mail@send@1", "--prefix", "Mail@"],
            &[verb, "Mail@send@1", "--recurring"],
            &[verb, "--class", "Mail", "--older-than", "0s"],
        ];
        for args in wrong {
            assert_eq!(shell.run(args).0, 2, "{args:?}");
        }
        // As of a variable that is not set: it would be every dead task.
        for filter in ["--class", "--method", "--tag", "--prefix", "--error"] {
            for args in [&[verb, filter, ""][..], &[verb, "--all", filter, ""]] {
                let (code, _, stderr) = shell.run(args);
                assert_eq!(code, 2, "{args:?}");
                assert!(stderr.contains("expected some text"), "{stderr}");
            }
        }
    }
    assert_eq!(shell.run(&["redrive", "--all", "--rate", "0/s"]).0, 2);
    for args in [&["list", "--prefix", ""][..], &["cancel", "--tag", ""]] {
        let (code, _, stderr) = shell.run(args);
        assert_eq!(code, 2, "{args:?}");
        assert!(stderr.contains("expected some text"), "{stderr}");
    }
    let dry = shell.json_lines(&["redrive", "--class", "Mail", "--dry-run"]);
    assert_eq!(dry, [json!({ "redriven": 5, "dry_run": true })]);
    assert_eq!(rig.with_status(2).await, 10);

    let some = shell.json_lines(&[
        "redrive", "--state", "dead", "--class", "Mail", "--limit", "2", "--rate", "100/s",
    ]);
    assert_eq!(some, [json!({ "redriven": 2, "dry_run": false })]);
    let (code, stdout, _) = shell.run(&["redrive", "--error", "refused"]);
    assert_eq!((code, &stdout[..]), (0, "3 redriven\n"));
    let record = rig.record("Mail@send@1").await;
    assert_eq!((record.attempt, record.history.len()), (0, 1));

    let dry = shell.json_lines(&["discard", "--older-than", "2h", "--dry-run"]);
    assert_eq!(dry, [json!({ "discarded": 3, "dry_run": true })]);
    let (code, stdout, _) = shell.run(&["discard", "--all"]);
    assert_eq!((code, &stdout[..]), (0, "5 discarded\n"));
    assert_eq!((rig.with_status(0).await, rig.with_status(2).await), (5, 0));
    assert_eq!(
        shell.json_lines(&["discard", "--all"]),
        [json!({ "discarded": 0, "dry_run": false })]
    );
}

#[tokio::test]
async fn redrive_and_discard_by_key_require_a_dead_task() {
    let (rig, shell) = dead().await;
    let (code, stdout, _) = shell.run(&["redrive", "Mail@send@1", "--dry-run"]);
    assert_eq!((code, &stdout[..]), (0, "1 would be redriven\n"));
    let (code, stdout, _) = shell.run(&["redrive", "Mail@send@1"]);
    assert!(
        code == 0 && stdout.starts_with("Mail@send@1 is due now"),
        "{stdout}"
    );
    let (code, stdout, _) = shell.run(&["discard", "Bill@print@1"]);
    assert_eq!((code, &stdout[..]), (0, "Bill@print@1 is discarded\n"));
    for (args, complaint) in [
        (
            ["discard", "Mail@send@1"],
            "is pending and cannot be discarded",
        ),
        (
            ["redrive", "Mail@send@1"],
            "is pending and cannot be redriven",
        ),
        (["discard", "Bill@print@1"], "there is no task"),
    ] {
        let (code, _, stderr) = shell.run(&args);
        assert_eq!(code, 1, "{args:?}");
        assert!(stderr.contains(complaint), "{stderr}");
    }
    until("one of each is gone", async || {
        rig.with_status(2).await == 8
    })
    .await;
}

#[tokio::test]
async fn a_discarded_task_does_not_come_back_by_a_key_that_was_left_behind() {
    let (rig, shell) = dead().await;
    let daemon = rig.listening_daemon().await;
    // Their rows say that the tasks ended after these were armed.
    let [by_key, of_many] = ["Mail@send@1", "Bill@print@1"];
    rig.run_sql("UPDATE tb_time_limit_task SET changed_at = UNIX_TIMESTAMP() + 60")
        .await;
    for name in [by_key, of_many] {
        rig.arm(name, 60_000).await;
    }
    assert_eq!(shell.run(&["discard", by_key]).0, 0);
    assert_eq!(shell.run(&["discard", "--all"]).0, 0);
    for name in [by_key, of_many] {
        assert_eq!(rig.pttl(name).await, -2, "{name}");
    }
    rig.arm("Job@record@marker", 60_000).await;
    rig.until_adopted("Job@record@marker").await;
    let rows = rig.number("SELECT COUNT(*) FROM tb_time_limit_task").await;
    assert_eq!(rows, 1, "only the marker");
    drop(daemon);
}

#[tokio::test]
async fn discarding_waits_for_redis() {
    let (mut rig, shell) = dead().await;
    rig.redis.kill();
    for args in [&["discard", "Mail@send@1"][..], &["discard", "--all"]] {
        assert_eq!(shell.run(args).0, 1, "{args:?}");
    }
    assert_eq!(rig.with_status(2).await, 10);
}

#[tokio::test]
async fn an_interrupted_redrive_reports_progress_and_can_be_resumed() {
    let (rig, shell) = dead().await;
    let mut command = shell.command(&["redrive", "--all", "--rate", "2/s"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    until("some are redriven", async || rig.with_status(0).await >= 2).await;
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let redriven = rig.with_status(0).await;
    assert!((2..10).contains(&redriven), "{redriven}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(stdout, format!("{redriven} redriven\n"));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("of 10 redriven; the rest is unchanged"),
        "{stderr}"
    );
    let rest = shell.json_lines(&["redrive", "--all"]);
    assert_eq!(
        rest,
        [json!({ "redriven": 10 - redriven, "dry_run": false })]
    );
}
