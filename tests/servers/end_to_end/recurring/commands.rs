//! Series on the command line.

use lapsed::task::State;

use crate::support::rig::Rig;
use crate::support::shell::Shell;
use crate::support::wait::until;

#[tokio::test]
async fn the_command_line_begins_shows_moves_and_ends_a_series() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let args = "schedule Job@record@1 --cron";
    let args: Vec<&str> = args.split(' ').chain(["0 9 * * Mon-Fri"]).collect();
    let made = shell.json(&[&args[..], &["--tz", "Europe/Berlin", "--catch-up", "once"]].concat());
    let shown = shell.json(&["show", "Job@record@1"]);
    assert_eq!(
        shown["recurrence"],
        serde_json::json!({"cron": "0 9 * * Mon-Fri", "tz": "Europe/Berlin", "catch_up": "once"})
    );
    let occurrences = shown["occurrences"].as_array().unwrap();
    assert_eq!(occurrences.len(), 3);
    assert_eq!(occurrences[0], made["due"]);
    let (_, text, _) = shell.run(&["show", "Job@record@1"]);
    let line = "recurrence    cron 0 9 * * Mon-Fri (Europe/Berlin), catches up once";
    assert!(text.lines().any(|found| found == line), "{text}");
    let (_, text, _) = shell.run(&["list", "--recurring"]);
    assert!(text.contains("cron 0 9 * * Mon-Fri"), "{text}");

    // The same once more changes nothing.
    let again = shell.json(&[&args[..], &["--tz", "Europe/Berlin", "--catch-up", "once"]].concat());
    assert_eq!(again["id"], made["id"]);

    // Moved to an earlier time, it does not come at its own, too.
    shell.json(&["reschedule", "Job@record@1", "--in", "1s"]);
    let moved = shell.json(&["show", "Job@record@1"]);
    assert_eq!(moved["occurrences"][1], occurrences[1]);
    assert_eq!(moved["latest_occurrence"], serde_json::Value::Null);
    let _daemon = rig.daemon();
    until("it has run", async || rig.runs().await.len() == 1).await;
    until("it goes on", async || {
        shell.json(&["show", "Job@record@1"])["due"] == occurrences[1]
    })
    .await;
    let latest = &shell.json(&["show", "Job@record@1"])["latest_occurrence"];
    let succeeded = serde_json::json!({"due": moved["due"], "outcome": "succeeded"});
    assert_eq!(latest, &succeeded);
    let due = moved["due"].as_str().unwrap();
    let (_, text, _) = shell.run(&["show", "Job@record@1"]);
    let line = format!("latest ended  {due} succeeded");
    assert!(text.lines().any(|found| found == line), "{text}");
    let (_, text, _) = shell.run(&["list", "--recurring"]);
    assert!(text.contains(&format!("{due} succeeded")), "{text}");

    // Run now, it comes at its own time all the same.
    shell.json(&["run", "Job@record@1"]);
    until("it has run", async || rig.runs().await.len() == 2).await;
    until("it goes on", async || {
        shell.json(&["show", "Job@record@1"])["due"] == occurrences[1]
    })
    .await;
    shell.json(&["cancel", "Job@record@1"]);
    assert_eq!(rig.state("Job@record@1").await, State::Cancelled);
    let shown = shell.json(&["show", "Job@record@1"]);
    assert_eq!(shown["occurrences"], serde_json::json!([]));
}

#[tokio::test]
async fn the_command_line_rejects_invalid_recurrences_with_the_expected_form() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let refused: [(&[&str], &str); 10] = [
        (
            &["--every", "1s", "--catch-up-max", "3"],
            "`catch_up_max` requires `catch_up` = `all`",
        ),
        (
            &["--cron", "@daily", "--until", "2020-01-01T00:00:00Z"],
            "no occurrence lies ahead",
        ),
        (&[], "or `every` or `cron` for a recurring task"),
        (
            &["--every", "10ms"],
            "expected a duration from 1s to 10 years",
        ),
        (
            &["--cron", "61 * * * *"],
            "minute `61` does not fit, expected 0 to 59",
        ),
        (
            &["--cron", "@daily", "--tz", "Mars"],
            "`Mars` is not a time zone",
        ),
        (
            &["--in", "1s", "--until", "2030-01-01T00:00:00Z"],
            "expected `every` or `cron`",
        ),
        (
            &["--every", "1s", "--times", "0"],
            "`times` does not fit, expected 1 to 10000",
        ),
        (
            &["--every", "1h", "--at", "2290-01-01T00:00:00Z"],
            "too far ahead, expected at most 10 years",
        ),
        (
            &["--every", "1s", "--catch-up", "some"],
            "possible values: skip, once, all",
        ),
    ];
    for (args, reason) in refused {
        let (code, _, err) = shell.run(&[&["schedule", "Job@record@1"], args].concat());
        assert_eq!(code, 2, "{args:?}: {err}");
        assert!(err.contains(reason), "{args:?}: {err}");
    }
    assert_eq!(
        rig.number("SELECT COUNT(*) FROM tb_time_limit_task").await,
        0
    );

    let broken = "[[recurring]]\nkey = 'Job'\nevery = '1s'\n[[recurring]]\nkey = 'C@m'\ncron = 'x'\ntz = 'UTC'\nwhen = 1\n\
                  [[recurring]]\nkey = 'C@n'\nevery = '1m'\ncatch_up = 'never'\nuntil = 'later'\n\
                  [[recurring]]\nkey = 'C@o'\nevery = '1m'\ncatch_up = 'all'\ncatch_up_max = 0\n\
                  [[recurring]]\nkey = 'C@p'\nevery = '1m'\ncatch_up_max = 3";
    std::fs::write(shell.config(), broken).unwrap();
    let (code, _, err) = shell.run(&["check-config"]);
    assert_eq!(code, 2, "{err}");
    let expected = [
        "`recurring[0].key`: key has no `@`",
        "`recurring[1]`: cron `x`: has 1 fields, expected 5",
        "`recurring[1].when`: is not the name of a setting",
        "`recurring[2].until`: `later` is not a time",
        "`recurring[2].catch_up`: ",
        "`recurring[3]`: `catch_up_max` does not fit, expected 1 to 10000",
        "`recurring[4]`: `catch_up_max` requires `catch_up` = `all`",
    ];
    for reason in expected {
        assert!(err.contains(reason), "`{reason}` is missing in: {err}");
    }
}

#[tokio::test]
async fn a_line_of_a_file_begins_a_series() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    let file = tempfile::NamedTempFile::new().unwrap();
    let lines = r#"{"key": "Job@record@1", "every": "15m", "in": "5s", "tag": "t"}
{"key": "Job@record@2", "cron": "0 9 * * *", "tz": "Europe/Berlin", "overlap": "allow"}
{"key": "Job@record@3", "cron": "0 9 * *"}
{"key": "Job@record@4", "tz": "UTC", "in": "5s"}
{"key": "Job@record@5"}
"#;
    std::fs::write(file.path(), lines).unwrap();
    let (code, out, err) = shell.run(&["schedule", "--file", file.path().to_str().unwrap()]);
    assert_eq!((code, out.trim()), (1, "2 scheduled, 3 refused"), "{err}");
    for reason in [
        "line 3: cron `0 9 * *`: has 4 fields, expected 5",
        "line 4: expected `every` or `cron` with the other options of a recurring task",
        "line 5: expected `in` or `at`, or `every` or `cron` for a recurring task",
    ] {
        assert!(err.contains(reason), "{err}");
    }
    let shown = shell.json(&["show", "Job@record@1"]);
    let occurrences: Vec<i64> = shown["occurrences"]
        .as_array()
        .unwrap()
        .iter()
        .map(|at| at.as_str().unwrap().parse::<jiff::Timestamp>().unwrap())
        .map(|at| at.as_millisecond())
        .collect();
    assert_eq!(occurrences[1] - occurrences[0], 900_000);
    let ahead = occurrences[0] - rig.now_ms().await;
    assert!((-20_000..=5_000).contains(&ahead), "{ahead} ms");
    let second = shell.json(&["show", "Job@record@2"]);
    assert_eq!(second["recurrence"]["overlap"], "allow");
}
