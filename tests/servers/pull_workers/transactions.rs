//! The statement of `docs/pull-workers.md` that completes a task in the worker's own transaction.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lapsed::engine::{Leased, PullError, Report};
use lapsed::ledger::Settled;
use lapsed::task::State;
use lapsed::{Recurrence, TaskKey};
use tokio::time::sleep;
use url::Url;

use crate::support::daemon::Daemon;
use crate::support::registry;
use crate::support::rig::Rig;

const PROGRAMS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/servers/pull_workers"
);

const MAIL: &str = "[[routes]]\nmatch = '^Mail@'\npull = { queue = 'mail', visibility = '2s' }\n";

fn php() -> Command {
    let mut command = Command::new("php");
    command.arg(Path::new(PROGRAMS).join("complete.php"));
    command
}

fn python() -> Command {
    let home = registry::pip(&Path::new(PROGRAMS).join("python"));
    let mut command = Command::new("python3");
    command.arg(home.join("complete.py"));
    command.env("PYTHONPATH", home.join("packages"));
    command
}

/// Runs a program on the database of a rig. Returns what it prints.
fn complete(mut program: Command, rig: &Rig, claim: &str) -> String {
    let url = Url::parse(rig.config().ledger.url.expose()).unwrap();
    program.arg(url.host_str().unwrap());
    program.arg(url.port().unwrap_or(3306).to_string());
    program
        .arg(url.username())
        .arg(url.password().unwrap_or(""));
    program.arg(url.path().trim_start_matches('/')).arg(claim);
    let name = program.get_program().to_owned();
    let output = program.stdin(Stdio::null()).output();
    let output = output
        .unwrap_or_else(|error| panic!("{name:?}: {error}; run `scripts/install-servers --tests`"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name:?}: {errors}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

async fn take(daemon: &Daemon) -> Leased {
    let block = Some(Duration::from_secs(60));
    let taken = daemon.status.pull().take("mail", 1, block, "w").await;
    taken.unwrap().keep().remove(0)
}

async fn check(program: fn() -> Command) {
    let rig = Rig::new(MAIL).await;
    let daemon = rig.daemon();
    let done = || Report::Done { result: None };
    let effects = async || rig.number("SELECT COUNT(*) FROM effects").await;

    daemon.create("Mail@send@1", 0).await;
    let leased = take(&daemon).await;
    let claim = leased.claim.to_string();
    assert_eq!(complete(program(), &rig, &claim), "committed");
    assert_eq!(rig.state("Mail@send@1").await, State::Done);
    assert_eq!(complete(program(), &rig, &claim), "lost", "a second time");
    let settled = daemon.status.pull().settle(&leased.claim, done()).await;
    assert_eq!(settled.unwrap(), Settled::Applied);
    assert_eq!((rig.with_status(1).await, effects().await), (1, 1));

    // Its lease ends, and another worker has the task.
    daemon.create("Mail@send@2", 0).await;
    let first = take(&daemon).await.claim.to_string();
    let second = take(&daemon).await.claim.to_string();
    assert_eq!(complete(program(), &rig, &first), "lost");
    assert_eq!(complete(program(), &rig, &second), "committed");
    assert_eq!(effects().await, 2);

    // The key is created again during the run.
    daemon.create("Mail@send@3", 0).await;
    let leased = take(&daemon).await;
    daemon.create("Mail@send@3", 3_600_000).await;
    assert_eq!(complete(program(), &rig, &leased.claim.to_string()), "lost");
    let settled = daemon.status.pull().settle(&leased.claim, done()).await;
    assert!(matches!(
        settled,
        Err(PullError::Fenced(Settled::Superseded))
    ));
    assert_eq!(rig.state("Mail@send@3").await, State::Pending);

    // A recurring task needs its next due time.
    let every = Recurrence::every(Duration::from_secs(1)).unwrap();
    let digest = TaskKey::parse("Mail@digest").unwrap();
    daemon.tasks.create_recurring(digest, every).await.unwrap();
    let leased = take(&daemon).await;
    assert_eq!(complete(program(), &rig, &leased.claim.to_string()), "lost");
    let settled = daemon.status.pull().settle(&leased.claim, done()).await;
    assert_eq!(settled.unwrap(), Settled::Applied);
    assert_ne!(rig.state("Mail@digest").await, State::Done);
    assert_eq!(effects().await, 2);

    // A daemon that is killed while a worker has a task: the claim is valid at the next one.
    daemon.create("Mail@send@4", 0).await;
    let leased = loop {
        let leased = take(&daemon).await;
        if leased.task.key().method() == "send" {
            break leased;
        }
    };
    daemon.kill();
    let daemon = rig.daemon();
    sleep(Duration::from_millis(500)).await;
    let settled = daemon.status.pull().settle(&leased.claim, done()).await;
    assert_eq!(settled.unwrap(), Settled::Applied);
    let record = rig.record("Mail@send@4").await;
    assert_eq!(
        (record.state, record.attempt, record.crashes),
        (State::Done, 1, 0)
    );
    daemon.stop().await;
}

#[tokio::test]
async fn a_task_is_completed_in_a_transaction_of_php() {
    check(php).await;
}

#[tokio::test]
async fn a_task_is_completed_in_a_transaction_of_python() {
    check(python).await;
}
