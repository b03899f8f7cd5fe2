//! Pull queues of several daemons: tasks go to the daemon that workers ask.

use std::sync::Arc;
use std::time::Duration;

use lapsed::Config;
use lapsed::engine::{PullQueues, Report};
use lapsed::ledger::{Admin, Ledger, NewTask, Producer};
use lapsed::membership::AskedQueue;
use lapsed::task::{TaskKey, UnixMs};
use lapsed::timer::ledger_poll::LedgerPoll;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::membership::rig::{Daemon, Ground};
use crate::support::wait::until;

const MAIL: &str = "[[routes]]\nmatch = '^Mail@'\npull = { queue = 'mail', visibility = '10s' }\n";

fn daemon(ground: &Ground) -> Daemon {
    let timer = Arc::new(LedgerPoll::new(ground.ledger.clock().clone()));
    ground.daemon_by(timer, &Config::from_toml(MAIL).unwrap())
}

/// Creates tasks that fall due 10 ms apart, from `first` on.
async fn mail(ground: &Ground, prefix: &str, count: i64, first: Duration) {
    let now = ground.ledger.clock().now().plus(first);
    let tasks: Vec<NewTask> = (0..count)
        .map(|n| {
            let key = TaskKey::build("Mail", "send", [format!("{prefix}{n}")]).unwrap();
            NewTask::new(key, UnixMs(now.0 + 10 * n))
        })
        .collect();
    ground.ledger.create(&tasks).await.unwrap();
}

/// A worker that takes tasks one at a time and completes them; returns how late it got each, in milliseconds.
fn worker(queues: PullQueues, tasks: usize) -> JoinHandle<Vec<u64>> {
    tokio::spawn(async move {
        let mut late = Vec::new();
        while late.len() < tasks {
            let block = Some(Duration::from_secs(60));
            for leased in queues.take("mail", 1, block, "").await.unwrap().keep() {
                let done = Report::Done { result: None };
                queues.settle(&leased.claim, done).await.unwrap();
                late.push(leased.task.lateness_ms());
            }
        }
        late
    })
}

#[tokio::test(start_paused = true)]
async fn tasks_go_to_the_daemon_with_waiting_workers() {
    let ground = Ground::new();
    let daemons = [daemon(&ground), daemon(&ground), daemon(&ground)];
    for daemon in &daemons {
        daemon.until_members(3).await;
    }
    for (turn, daemon) in daemons.iter().enumerate() {
        let worker = worker(daemon.status.pull(), 100);
        // The others learn of it from the next heartbeat, and of the last taker's end.
        sleep(Duration::from_secs(8)).await;
        mail(&ground, &format!("{turn}-"), 100, Duration::from_secs(2)).await;
        let late = worker.await.unwrap();
        assert!(
            late.iter().all(|late| *late < 100),
            "worker {turn}: {late:?}"
        );
    }
    assert_eq!(ground.ledger.stats().await.unwrap().done, 300);
}

#[tokio::test(start_paused = true)]
async fn tasks_go_elsewhere_when_the_last_worker_of_a_daemon_leaves() {
    let ground = Ground::new();
    let daemons = [daemon(&ground), daemon(&ground)];
    for daemon in &daemons {
        daemon.until_members(2).await;
    }
    let staying = worker(daemons[0].status.pull(), usize::MAX);
    let leaving = worker(daemons[1].status.pull(), usize::MAX);
    sleep(Duration::from_secs(5)).await;
    mail(&ground, "", 2_000, Duration::from_secs(1)).await;
    sleep(Duration::from_secs(8)).await;
    let shares = daemons
        .each_ref()
        .map(|daemon| daemon.metric("lapsed_claims_total{result=\"won\"}"));
    assert!(shares.iter().all(|won| *won > 100), "{shares:?}");
    leaving.abort();
    until("all tasks are done", async || {
        ground.ledger.stats().await.unwrap().done == 2_000
    })
    .await;
    // The tasks of the worker that left waited two seconds at most; the later ones were on time.
    mail(&ground, "later", 100, Duration::from_secs(2)).await;
    let fresh = ground.ledger.clock().now().plus(Duration::from_secs(3));
    until("the later tasks are done", async || {
        ground.ledger.stats().await.unwrap().done == 2_100
    })
    .await;
    assert!(ground.ledger.clock().now().since(fresh) < Duration::from_millis(500));
    staying.abort();
}

#[tokio::test(start_paused = true)]
async fn a_token_is_settled_by_another_daemon() {
    let ground = Ground::new();
    let daemons = [daemon(&ground), daemon(&ground)];
    mail(&ground, "", 1, Duration::ZERO).await;
    let block = Some(Duration::from_secs(5));
    let taken = daemons[0].status.pull().take("mail", 1, block, "w").await;
    let leased = taken.unwrap().keep().remove(0);
    let settled = daemons[1].status.pull();
    let report = Report::Snoozed(Duration::from_secs(3));
    settled.settle(&leased.claim, report).await.unwrap();
    let taken = daemons[0].status.pull().take("mail", 1, block, "w").await;
    let again = taken.unwrap().keep().remove(0);
    assert_eq!(
        (again.task.id(), again.task.attempt()),
        (leased.task.id(), 1)
    );
}

#[tokio::test(start_paused = true)]
async fn daemons_tell_each_other_how_many_workers_ask_them_and_when_one_asked_last() {
    let ground = Ground::new();
    let daemons = [daemon(&ground), daemon(&ground)];
    for daemon in &daemons {
        daemon.until_members(2).await;
    }
    let told = |to: usize| {
        let members = daemons[to].status.daemons().into_iter();
        let other = members.into_iter().find(|member| !member.is_this).unwrap();
        let queues = other.queues.list().iter();
        let queue = |queue: &AskedQueue| (queue.name.clone(), queue.workers, queue.waiting);
        queues.map(queue).collect::<Vec<_>>()
    };
    let worker = worker(daemons[0].status.pull(), usize::MAX);
    until("the other daemon has heard of the worker", async || {
        told(1) == [("mail".to_owned(), 1, 1)]
    })
    .await;
    assert_eq!(told(0), [], "no worker has asked the other daemon");
    let asked = ground.ledger.clock().now();
    worker.abort();
    until(
        "the other daemon has heard that it waits no more",
        async || told(1) == [("mail".to_owned(), 1, 0)],
    )
    .await;
    // After the length of a lease, it is busy with no task either.
    until("the other daemon has heard that it is gone", async || {
        told(1) == [("mail".to_owned(), 0, 0)]
    })
    .await;
    let members = daemons[1].status.daemons();
    let last = members[1].queues.list()[0].asked;
    let distance = last.since(asked).max(asked.since(last));
    assert!(distance < Duration::from_secs(3), "{last} {asked}");
}
