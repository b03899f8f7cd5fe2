//! What becomes of a task that is asked for again, and what tells tasks of one key apart: from the library and the
//! command line.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use lapsed::client::{CreateResult, NotArmed};
use lapsed::task::State;
use lapsed::{ClientError, IfPending, Task};
use serde_json::{Value, json};

use crate::support::program::said;
use crate::support::rig::Rig;
use crate::support::scene::Scene;
use crate::support::shell::Shell;
use crate::support::tasks::key;
use crate::support::wait::until;

/// `lapsed --json` with these words and this input: exit code, lines of data, errors.
fn run(rig: &Rig, words: &[&str], input: &str) -> (i32, Vec<Value>, String) {
    let shell = Shell::of(rig);
    let mut command = shell.command(&[&["--json"], words].concat());
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A program that refuses its arguments reads no input.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let (code, text, errors) = said(child.wait_with_output().unwrap());
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (code, lines.collect(), errors)
}

fn task(name: &str, policy: IfPending) -> Task {
    Task::from(key(name)).if_pending(policy)
}

#[tokio::test]
async fn a_throttled_task_runs_once_for_all_requests_until_it_starts() {
    throttled_requests_run_a_task_once(&Rig::new("").await).await;
}

pub async fn throttled_requests_run_a_task_once(scene: &impl Scene) {
    let daemon = scene.ready_daemon().await;
    let name = "Job@record@throttled";
    let first = daemon
        .tasks
        .create(task(name, IfPending::Keep), Duration::from_secs(1))
        .await
        .unwrap();
    for delay_ms in [500, 1_000, 60_000] {
        let delay = Duration::from_millis(delay_ms);
        let made = daemon
            .tasks
            .create(task(name, IfPending::Keep), delay)
            .await
            .unwrap();
        assert_eq!((made.id(), made.result()), (first.id(), CreateResult::Kept));
        assert_eq!(made.not_armed(), Some(NotArmed::LeftAsItIs));
    }
    scene.until_done(1).await;
    // The next request begins the next stretch.
    let next = daemon
        .tasks
        .create(task(name, IfPending::Keep), Duration::from_millis(300))
        .await
        .unwrap();
    assert_eq!(next.result(), CreateResult::Written);
    until("it has run again", async || {
        scene.runs_of(name).await.len() == 2
    })
    .await;
    let runs = scene.runs_of(name).await;
    let dues: Vec<i64> = runs.iter().map(|run| run.due_ms).collect();
    assert_eq!(dues, [first.due().0, next.due().0]);
    assert!(runs.iter().all(|run| run.at_ms >= run.due_ms));
}

#[tokio::test]
async fn a_debounced_task_runs_once_after_the_last_request() {
    debounced_requests_run_a_task_once(&Rig::new("").await).await;
}

pub async fn debounced_requests_run_a_task_once(scene: &impl Scene) {
    let daemon = scene.ready_daemon().await;
    let name = "Job@record@debounced";
    let mut last = None;
    for _ in 0..5 {
        let made = daemon
            .tasks
            .create(task(name, IfPending::Move), Duration::from_secs(1))
            .await;
        last = Some(made.unwrap().due());
    }
    scene.until_done(1).await;
    let runs = scene.runs_of(name).await;
    assert_eq!(runs.len(), 1);
    assert_eq!(Some(runs[0].due_ms), last.map(|due| due.0));
}

#[tokio::test]
async fn a_refused_creation_reports_the_existing_task_and_writes_nothing() {
    let rig = Rig::new("").await;
    let client = rig.client().await;
    let name = "Job@record@one";
    let hour = Duration::from_secs(3_600);
    let made = client
        .create(task(name, IfPending::Refuse), hour)
        .await
        .unwrap();
    let again = client
        .create(task(name, IfPending::Refuse).tag("t"), 2 * hour)
        .await;
    match again {
        Err(ClientError::Exists {
            key,
            state,
            since,
            due,
        }) => {
            assert_eq!(
                (key.as_str(), state, due),
                (name, State::Pending, made.due())
            );
            assert_eq!(since, rig.record(name).await.created);
        }
        other => panic!("{other:?}"),
    }
    // In the caller's own transaction, too; which can go on.
    let mut tx = rig.sql.begin().await.unwrap();
    let again = client
        .create_in(&mut tx, task(name, IfPending::Refuse), 3 * hour)
        .await;
    assert!(matches!(again, Err(ClientError::Exists { .. })));
    let kept = client
        .create_in(&mut tx, task(name, IfPending::Keep), 3 * hour)
        .await
        .unwrap();
    assert_eq!(kept.arming(), made.arming());
    let new = task("Job@record@other", IfPending::Refuse);
    let new = client.create_in(&mut tx, new, hour).await.unwrap();
    tx.commit().await.unwrap();
    assert!(new.arm().await.armed);
    assert_eq!(kept.arm().await.not_armed(), Some(NotArmed::LeftAsItIs));
    assert_eq!(rig.record(name).await.due, made.due());
    assert_eq!(rig.record("Job@record@other").await.state, State::Pending);

    // Of many, only the one that is refused is.
    let many = [name, "Job@record@third"].map(|name| {
        (
            task(name, IfPending::Refuse),
            lapsed::Due::after(2 * hour).unwrap(),
        )
    });
    let made = client.create_many(many.to_vec()).await.unwrap();
    assert_eq!(
        made.iter().map(|made| made.result()).collect::<Vec<_>>(),
        [CreateResult::Refused, CreateResult::Written]
    );
}

#[tokio::test]
async fn tasks_with_a_suffix_are_many_of_one_kind() {
    let rig = Rig::new("").await;
    let mut handlers = lapsed::Handlers::new();
    handlers.on(
        ("Mail", "send"),
        |task: lapsed::TaskContext, user: u64| async move {
            assert_eq!(user, 42, "the suffix is no argument");
            crate::support::handlers::write_down(&task).await
        },
    );
    let daemon = rig.daemon_with(handlers);
    for _ in 0..20 {
        let task = Task::new("Mail", "send", [42]).unwrap().unique().unwrap();
        daemon
            .tasks
            .create(task, Duration::from_millis(300))
            .await
            .unwrap();
    }
    rig.until_done(20).await;
    rig.each_ran_once(20).await;
}

#[tokio::test]
async fn the_command_keeps_refuses_and_makes_unique() {
    let rig = Rig::new("").await;
    let name = "Order@close@42";
    let (code, first, _) = run(
        &rig,
        &["schedule", name, "--in", "1h", "--if-pending", "keep"],
        "",
    );
    assert_eq!(
        (code, &first[0]["kept"], &first[0]["armed"]),
        (0, &json!(false), &json!(true))
    );
    let (code, again, errors) = run(
        &rig,
        &["schedule", name, "--in", "2h", "--if-pending", "keep"],
        "",
    );
    assert_eq!((code, errors.as_str()), (0, ""));
    assert_eq!(
        (&again[0]["id"], &again[0]["kept"]),
        (&first[0]["id"], &json!(true))
    );
    let (code, _, errors) = run(
        &rig,
        &["schedule", name, "--in", "2h", "--if-pending", "refuse"],
        "",
    );
    let due = first[0]["due"].as_str().unwrap();
    let expected = format!("error: `{name}` is pending since ");
    assert!(
        code == 1 && errors.starts_with(&expected),
        "{code}: {errors}"
    );
    assert!(
        errors.contains(&format!("due {due}: not created again")),
        "{errors}"
    );
    let (code, _, errors) = run(
        &rig,
        &["schedule", name, "--in", "2h", "--if-pending", "merge"],
        "",
    );
    assert_eq!(code, 2);
    assert!(
        errors.contains("`merge` is none of `move`, `keep`, `refuse`"),
        "{errors}"
    );
    let (code, moved, _) = run(&rig, &["schedule", name, "--in", "2h"], "");
    assert_eq!(code, 0);
    assert_ne!(moved[0]["id"], first[0]["id"]);

    for _ in 0..2 {
        let words = ["schedule", "Mail@send@42", "--in", "1h", "--unique-suffix"];
        assert_eq!(run(&rig, &words, "").0, 0);
    }
    let (_, listed, _) = run(&rig, &["list", "--prefix", "Mail@send@42@~"], "");
    assert_eq!(listed.len(), 2);

    let lines = format!(
        "{}\n{}\n{}\n{}\n{}\n",
        json!({ "key": name, "in": "3h", "if_pending": "keep" }),
        json!({ "key": name, "in": "3h", "if_pending": "refuse" }),
        json!({ "key": "Mail@send@42", "in": "1h", "unique": true }),
        json!({ "key": "Mail@send@42", "in": "1h", "unique": true }),
        json!({ "key": "Mail@send@42", "in": "1h", "if_pending": "replace" }),
    );
    let (code, said, errors) = run(&rig, &["schedule", "--file", "-"], &lines);
    assert_eq!(code, 1);
    assert_eq!(
        said,
        [json!({ "scheduled": 2, "kept": 1, "refused": 2, "unarmed": 0 })]
    );
    assert!(
        errors.contains("line 2: `Order@close@42` is pending since"),
        "{errors}"
    );
    assert!(
        errors.contains("line 5: `if_pending`: unknown variant `replace`, expected one of"),
        "{errors}"
    );
}

#[tokio::test]
async fn a_payload_comes_from_the_command_line_a_file_or_standard_input_as_it_is() {
    let rig = Rig::new("").await;
    let exact = r#"{"z":1,"a":[12345678901234567890123456789,1.10]}"#;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), exact).unwrap();
    let at_file = format!("@{}", file.path().display());
    for (name, payload, input) in [("a", exact, ""), ("b", &at_file, ""), ("c", "-", exact)] {
        let name = format!("Job@record@{name}");
        let (code, _, errors) = run(
            &rig,
            &["schedule", &name, "--in", "1h", "--payload", payload],
            input,
        );
        assert_eq!(code, 0, "{errors}");
        assert_eq!(rig.record(&name).await.payload.as_deref(), Some(exact));
    }
    let lines = format!(
        "{{\"key\":\"Job@record@d\",\"in\":\"1h\",\"payload\":{exact}}}\n{{\"key\":\"Job@record@e\",\"in\":\"1h\",\"payload\":null}}\n{{\"key\":\"Job@record@f\",\"in\":\"1h\",\"payload\":\"text\"}}"
    );
    assert_eq!(run(&rig, &["schedule", "--file", "-"], &lines).0, 0);
    let payload = async |name: &str| rig.record(name).await.payload;
    assert_eq!(payload("Job@record@d").await.as_deref(), Some(exact));
    assert_eq!(payload("Job@record@e").await, None);
    assert_eq!(payload("Job@record@f").await.as_deref(), Some("\"text\""));

    let long = format!("\"{}\"", "x".repeat(65_535));
    std::fs::write(file.path(), &long).unwrap();
    for (payload, input, said) in [
        ("{oops", "", "payload is not JSON"),
        (
            &at_file,
            "",
            "payload has 65537 bytes, expected at most 65536",
        ),
        (
            "-",
            &long,
            "payload has more than 65536 bytes, expected at most 65536",
        ),
    ] {
        let (code, _, errors) = run(
            &rig,
            &[
                "schedule",
                "Job@record@x",
                "--in",
                "1h",
                "--payload",
                payload,
            ],
            input,
        );
        assert!(code == 2 && errors.contains(said), "{code}: {errors}");
    }
}

#[tokio::test]
async fn a_payload_that_somebodys_sql_made_too_long_ends_its_task_and_no_other() {
    let rig = Rig::new("").await;
    rig.run_sql(
        "INSERT INTO tb_time_limit_task (`key`, start_time, end_time, payload) VALUES \
         ('Job@record@long', UNIX_TIMESTAMP(), UNIX_TIMESTAMP(), CONCAT('\"', REPEAT('x', 4000000), '\"')), \
         ('Job@record@fits', UNIX_TIMESTAMP(), UNIX_TIMESTAMP(), '7')",
    )
    .await;
    let _daemon = rig.daemon();
    rig.until_state("Job@record@long", State::Dead).await;
    rig.until_state("Job@record@fits", State::Done).await;
    let dead = rig.record("Job@record@long").await;
    assert_eq!(
        dead.last_error.as_deref(),
        Some("permanent failure: payload has 4000002 bytes, expected at most 65536")
    );
    assert_eq!(
        (dead.attempt, dead.payload.as_deref()),
        (1, Some("\"(4000002 bytes, too many to read)\""))
    );
    assert_eq!(rig.runs().await.len(), 1);
}

/// How a program without lapsed's library asks once for many requests, as `docs/tasks.md` shows it.
const KEEP_IN_SQL: &str = "INSERT INTO tb_time_limit_task (`key`, start_time, end_time) \
     VALUES ('Job@record@sql', UNIX_TIMESTAMP(NOW(3)), UNIX_TIMESTAMP(NOW(3)) + 2) \
     ON DUPLICATE KEY UPDATE \
       end_time = IF(status = 0 AND sts = 0 AND NOT (run_end = end_time AND lease_until >= UNIX_TIMESTAMP(NOW(3))), \
                     end_time, VALUES(end_time)), \
       sts = 0, status = 0";

#[tokio::test]
async fn a_program_without_the_library_debounces_and_throttles_too() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    // Debounce: the last SETEX counts.
    rig.arm("Job@record@setex", 3_000).await;
    rig.until_adopted("Job@record@setex").await;
    rig.arm("Job@record@setex", 5_000).await;
    let armed_at = rig.now_ms().await;
    // Throttle: the first one does, if it is the only one that writes.
    let nx = ["SET", "Job@record@nx", "", "PX", "3000", "NX"];
    let first: Option<String> = rig.redis_says(&nx).await;
    let second: Option<String> = rig.redis_says(&nx).await;
    assert_eq!((first.as_deref(), second), (Some("OK"), None));
    rig.run_sql(KEEP_IN_SQL).await;
    let due = rig.record("Job@record@sql").await.due;
    rig.run_sql(KEEP_IN_SQL).await;
    assert_eq!(rig.record("Job@record@sql").await.due, due);
    rig.until_done(3).await;
    rig.each_ran_once(3).await;
    let ran = rig.runs_of("Job@record@setex").await;
    assert!(
        ran[0].at_ms >= armed_at + 4_900,
        "{ran:?}, armed at {armed_at}"
    );
    // The next stretch.
    rig.run_sql(KEEP_IN_SQL).await;
    until("it has run again", async || {
        rig.runs_of("Job@record@sql").await.len() == 2
    })
    .await;
    drop(daemon);
}
