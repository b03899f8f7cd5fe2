//! `lapsed take`: due tasks are printed and completed, each once.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::process::Stdio;

use lapsed::task::State;
use lapsed::{Due, Task};
use serde_json::Value;

use crate::support::rig::Rig;
use crate::support::shell::Shell;
use crate::support::tasks::{create, create_many, key};
use crate::support::wait::until;

/// The keys of tasks that a command printed.
fn keys_of(lines: &[Value]) -> Vec<String> {
    let key = |line: &Value| line["key"].as_str().unwrap().to_owned();
    lines.iter().map(key).collect()
}

fn lines_of(text: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(text).unwrap();
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().unwrap()
}

#[tokio::test]
async fn due_tasks_are_printed_in_order_and_completed_and_others_stay() {
    let rig = Rig::new("").await;
    let tasks = rig.client().await.into();
    create_many(&tasks, "Order@close@", 3, 0, -1_000).await;
    create(&tasks, "Order@close@later", 60_000).await;
    create(&tasks, "Mail@send@1", 0).await;
    let shell = Shell::of(&rig);

    let of_order = ["take", "--class", "Order", "--method", "close"];
    let peeked = shell.json_lines(&[&of_order[..], &["--peek"]].concat());
    let all = ["Order@close@2", "Order@close@1", "Order@close@0"];
    assert_eq!(keys_of(&peeked), all);
    assert_eq!(rig.state("Order@close@2").await, State::Pending);

    let first = shell.json_lines(&[&of_order[..], &["--limit", "2"]].concat());
    assert_eq!(keys_of(&first), all[..2]);
    let task = &first[0];
    assert_eq!(task["id"], rig.record("Order@close@2").await.id);
    assert_eq!(
        (&task["class"], &task["args"][0], &task["attempt"]),
        (&"Order".into(), &"2".into(), &1.into())
    );
    assert!(task["lateness_ms"].is_u64(), "{task}");
    assert_eq!(rig.with_status(1).await, 2);
    assert_eq!(keys_of(&shell.json_lines(&of_order)), all[2..]);
    assert_eq!(keys_of(&shell.json_lines(&of_order)), [""; 0]);
    for name in ["Order@close@later", "Mail@send@1"] {
        assert_eq!(rig.state(name).await, State::Pending, "{name}");
    }
}

#[tokio::test]
async fn a_time_and_a_tag_restrict_what_is_taken() {
    let rig = Rig::new("").await;
    let tasks = rig.client().await;
    let now = rig.now_ms().await;
    for (name, ago, tag) in [("1", 3_000, "a"), ("2", 2_000, "b"), ("3", 1_000, "a")] {
        let task = Task::from(key(&format!("Order@close@{name}"))).tag(tag);
        let due = Due::at(lapsed::UnixMs(now - ago)).unwrap();
        tasks.create(task, due).await.unwrap();
    }
    let moment = |ago: i64| lapsed::UnixMs(now - ago).to_string();
    let shell = Shell::of(&rig);
    let take = |more: &[&str]| keys_of(&shell.json_lines(&[&["take"], more].concat()));
    let (early, late) = (moment(2_500), moment(1_500));
    let between = ["--due-after", &early, "--due-before", &late, "--peek"];
    assert_eq!(take(&between), ["Order@close@2"]);
    assert_eq!(take(&["--due-before", &early]), ["Order@close@1"]);
    assert_eq!(take(&["--tag", "a"]), ["Order@close@3"]);
    assert_eq!(take(&[]), ["Order@close@2"]);
}

#[tokio::test]
async fn concurrent_take_commands_never_take_a_task_twice() {
    const TASKS: i64 = 400;
    let rig = Rig::new("").await;
    create_many(&rig.client().await.into(), "Job@record@", TASKS, 0, 0).await;
    let shell = Shell::of(&rig);
    let takers: Vec<_> = (0..4)
        .map(|_| {
            let mut command = shell.command(&["take", "--limit", "1000"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    let mut taken = Vec::new();
    for taker in takers {
        let output = taker.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        taken.extend(keys_of(&lines_of(&output.stdout)));
    }
    let distinct: BTreeSet<&String> = taken.iter().collect();
    assert_eq!(
        (taken.len(), distinct.len()),
        (TASKS as usize, TASKS as usize)
    );
    assert_eq!(rig.with_status(1).await, TASKS);
}

#[tokio::test]
async fn tasks_that_cannot_be_printed_are_pending_again() {
    let rig = Rig::new("").await;
    create_many(&rig.client().await.into(), "Job@record@", 5, 0, 0).await;
    let shell = Shell::of(&rig);
    let mut command = shell.command(&["take"]);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let output = command.stdout(full.unwrap()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("5 are pending again"), "{stderr}");
    assert_eq!(rig.with_status(0).await, 5);
    let record = rig.record("Job@record@0").await;
    assert_eq!((record.state, record.attempt), (State::Pending, 0));
    assert_eq!(shell.json_lines(&["take"]).len(), 5);
}

#[tokio::test]
async fn tasks_of_a_killed_take_command_can_be_taken_after_their_lease() {
    let rig = Rig::new("engine.lease = '1s'").await;
    let tasks = rig.client().await;
    // More than a pipe holds, so that printing does not end.
    let payload = format!("\"{}\"", "x".repeat(60_000));
    for number in 0..5 {
        let task = Task::from(key(&format!("Job@record@{number}"))).payload(payload.clone());
        tasks.create(task, Due::after_ms(0).unwrap()).await.unwrap();
    }
    let shell = Shell::of(&rig);
    let mut command = shell.command(&["take"]);
    let mut taker = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0];
    taker
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut first)
        .unwrap();
    // Longer than its lease, which it renews while it waits for its reader.
    let leased = rig.now_ms().await + 2_000;
    rig.until_clock(lapsed::UnixMs(leased)).await;
    assert_eq!(shell.json_lines(&["take"]), [Value::Null; 0]);
    taker.kill().unwrap();
    taker.wait().unwrap();
    assert_eq!(rig.with_status(0).await, 5);
    let mut taken = BTreeSet::new();
    while taken.len() < 5 {
        for line in shell.json_lines(&["take"]) {
            assert_eq!(line["attempt"], 2, "{}", line["key"]);
            assert!(taken.insert(line["key"].as_str().unwrap().to_owned()));
        }
    }
    until("they are done", async || rig.with_status(1).await == 5).await;
}

#[tokio::test]
async fn a_recurring_task_continues_and_a_paused_one_stays() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    create(&rig.client().await.into(), "Mail@send@1", 0).await;
    let every = ["schedule", "Job@record@1", "--in", "0s", "--every", "1h"];
    assert_eq!(shell.run(&every).0, 0);
    assert_eq!(shell.run(&["run", "Job@record@1"]).0, 0);
    assert_eq!(shell.run(&["pause", "Mail"]).0, 0);
    let (code, stdout, stderr) = shell.run(&["take"]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(keys_of(&lines_of(stdout.as_bytes())), ["Job@record@1"]);
    assert_eq!(stderr, "note: 1 due tasks are paused or held, and stay\n");
    let next = rig.record("Job@record@1").await;
    assert_eq!((next.state, next.attempt), (State::Pending, 0));
    assert!(next.due.0 > rig.now_ms().await, "{next:?}");
    assert_eq!(rig.state("Mail@send@1").await, State::Pending);
    assert!(rig.pttl("Job@record@1").await > 0, "its key is armed");
}
