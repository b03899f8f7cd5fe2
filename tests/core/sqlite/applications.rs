//! Tasks in the application's own transactions on the ledger's file.

use std::sync::Arc;
use std::time::Duration;

use lapsed::ledger::sqlite::SqliteLedger;
use lapsed::ledger::{Admin as _, CancelAnswer, Ledger as _, LedgerError};
use lapsed::rusqlite::{Connection, TransactionBehavior};
use lapsed::task::State;
use lapsed::timer::Timer;
use lapsed::timer::ledger_poll::LedgerPoll;
use lapsed::{
    ClientError, Config, Due, Engine, HandlerError, Handlers, IfPending, SqliteTask as _,
    SqliteTaskClient, Task, TaskContext, TaskKey,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::engine::rig;
use crate::sqlite::Place;
use crate::support::wait::until;

fn key(name: &str) -> TaskKey {
    TaskKey::build("Order", "close", [name]).unwrap()
}

fn timer(ledger: &SqliteLedger) -> Arc<dyn Timer> {
    Arc::new(LedgerPoll::exact(ledger.clock().clone()))
}

fn client(ledger: &Arc<SqliteLedger>) -> SqliteTaskClient {
    SqliteTaskClient::with_parts(Arc::clone(ledger), timer(ledger))
}

/// The file of a shop, with a ledger in it.
async fn shop() -> (Place, Arc<SqliteLedger>, Connection) {
    let (place, ledger) = Place::migrated().await;
    let shop = place.application();
    shop.execute_batch("CREATE TABLE effects (task TEXT NOT NULL)")
        .unwrap();
    (place, ledger, shop)
}

fn effects(shop: &Connection) -> Vec<String> {
    let mut list = shop
        .prepare("SELECT task FROM effects ORDER BY task")
        .unwrap();
    let found = list.query_map([], |row| row.get(0)).unwrap();
    found.collect::<Result<_, _>>().unwrap()
}

async fn state(ledger: &SqliteLedger, name: &str) -> Option<State> {
    let found = ledger.find(&key(name)).await.unwrap();
    found.map(|task| task.state)
}

struct Daemon {
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

impl Daemon {
    fn start(ledger: &Arc<SqliteLedger>, handlers: Handlers) -> Self {
        let config =
            Config::from_toml("timer = 'ledger_poll'\nretry = { ladder = ['50ms'], jitter = 0.0 }");
        let config = config.unwrap();
        let parts = rig::parts(Arc::clone(ledger) as _, timer(ledger), handlers, &config);
        let engine = Engine::with_parts(parts, &config);
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(async move {
            let run = engine.run_until(async {
                let _ = stopped.await;
            });
            run.await.unwrap();
        });
        Self { stop, running }
    }

    async fn stop(self) {
        let _ = self.stop.send(());
        self.running.await.unwrap();
    }
}

/// Creates tasks `0`, `1`, .. that are due at once, and returns when a daemon with these handlers has completed them.
async fn run_all(ledger: &Arc<SqliteLedger>, handlers: Handlers, count: usize) {
    let daemon = Daemon::start(ledger, handlers);
    let all = (0..count).map(|number| {
        let task = Task::from(key(&number.to_string()));
        (task, Due::after(Duration::ZERO).unwrap())
    });
    client(ledger).create_many(all.collect()).await.unwrap();
    until("all tasks are done", async || {
        ledger.stats().await.unwrap().done == count as u64
    })
    .await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_task_exists_if_and_only_if_the_transaction_commits() {
    let (_place, ledger, mut shop) = shop().await;
    let tasks = client(&ledger);
    for (name, commits) in [("kept", true), ("lost", false)] {
        let tx = shop
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .unwrap();
        tx.execute("INSERT INTO effects VALUES (?1)", [name])
            .unwrap();
        let task = Task::from(key(name)).tag("eu");
        let receipt = tasks.create_in(&tx, task, Duration::from_secs(60)).unwrap();
        assert_eq!(receipt.state(), State::Pending);
        match commits {
            true => tx.commit().unwrap(),
            false => tx.rollback().unwrap(),
        }
    }
    assert_eq!(effects(&shop), ["kept"]);
    assert_eq!(state(&ledger, "kept").await, Some(State::Pending));
    assert_eq!(state(&ledger, "lost").await, None);
    for commits in [false, true] {
        let tx = shop
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .unwrap();
        let answer = tasks.cancel_in(&tx, key("kept")).unwrap();
        assert_eq!(answer, CancelAnswer::Cancelled);
        match commits {
            true => tx.commit().unwrap(),
            false => tx.rollback().unwrap(),
        }
        let expected = if commits {
            State::Cancelled
        } else {
            State::Pending
        };
        assert_eq!(state(&ledger, "kept").await, Some(expected));
    }
}

#[tokio::test]
async fn a_connection_outside_of_a_transaction_is_refused_and_so_is_a_task_that_exists() {
    let (_place, ledger, mut shop) = shop().await;
    let tasks = client(&ledger);
    let refused = tasks.create_in(&shop, key("1"), Duration::from_secs(60));
    let Err(ClientError::Ledger(LedgerError::Invalid(text))) = refused else {
        panic!("{refused:?}");
    };
    assert!(text.contains("BEGIN IMMEDIATE"), "{text}");
    assert_eq!(state(&ledger, "1").await, None);
    let tx = shop.transaction().unwrap();
    tasks
        .create_in(&tx, key("1"), Duration::from_secs(60))
        .unwrap();
    let again = Task::from(key("1")).if_pending(IfPending::Refuse);
    let refused = tasks.create_in(&tx, again, Duration::from_secs(90));
    assert!(
        matches!(refused, Err(ClientError::Exists { .. })),
        "{refused:?}"
    );
    // The transaction goes on.
    tasks
        .create_in(&tx, key("2"), Duration::from_secs(60))
        .unwrap();
    tx.commit().unwrap();
    assert_eq!(state(&ledger, "2").await, Some(State::Pending));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn effects_and_completion_happen_together_or_not_at_all() {
    const TASKS: usize = 40;
    let (_place, ledger, shop) = shop().await;
    let mut handlers = Handlers::new();
    handlers.on(
        ("Order", "close"),
        |task: TaskContext, _: Vec<String>| async move {
            let tx = task.begin().await?;
            tx.execute("INSERT INTO effects VALUES (?1)", [task.key().as_str()])?;
            // The first attempt of each second task fails after its effect.
            let number: u32 = task.key().args().next().unwrap_or_default().parse()?;
            if task.attempt() == 1 && number.is_multiple_of(2) {
                return Err(HandlerError::new("not yet"));
            }
            task.keep_result(number)?;
            task.complete_in(tx).await
        },
    );
    run_all(&ledger, handlers, TASKS).await;
    let mut expected: Vec<String> = (0..TASKS)
        .map(|number| key(&number.to_string()).to_string())
        .collect();
    expected.sort();
    assert_eq!(effects(&shop), expected);
    let record = ledger.find(&key("7")).await.unwrap().unwrap();
    assert_eq!((record.result.as_deref(), record.attempt), (Some("7"), 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_lost_its_claim_takes_no_effect() {
    let (place, ledger, shop) = shop().await;
    let (begun, mut has_begun) = tokio::sync::mpsc::channel(1);
    let (go_on, goes_on) = tokio::sync::watch::channel(false);
    let mut handlers = Handlers::new();
    handlers.on(
        ("Order", "close"),
        move |task: TaskContext, _: Vec<String>| {
            let (begun, mut goes_on) = (begun.clone(), goes_on.clone());
            async move {
                let _ = begun.send(()).await;
                let _ = goes_on.wait_for(|go_on| *go_on).await;
                let tx = task.begin().await?;
                tx.execute("INSERT INTO effects VALUES (?1)", [task.id()])?;
                task.complete_in(tx).await
            }
        },
    );
    let daemon = Daemon::start(&ledger, handlers);
    let tasks = client(&ledger);
    let first = tasks.create(key("1"), Duration::ZERO).await.unwrap();
    has_begun.recv().await.unwrap();
    // Created again during the run: the older run is superseded.
    let second = client(&place.ledger());
    let second = second.create(key("1"), Duration::from_millis(50)).await;
    let second = second.unwrap();
    go_on.send(true).unwrap();
    until("the newer arming is done", async || {
        state(&ledger, "1").await == Some(State::Done)
    })
    .await;
    daemon.stop().await;
    assert_ne!(first.id(), second.id());
    assert_eq!(effects(&shop), [second.id()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_creates_its_next_arming_in_its_transaction() {
    let (_place, ledger, shop) = shop().await;
    let mut handlers = Handlers::new();
    handlers.on(
        ("Order", "close"),
        |task: TaskContext, _: Vec<String>| async move {
            let tx = task.begin().await?;
            tx.execute("INSERT INTO effects VALUES (?1)", [task.id()])?;
            let count: u32 = tx.query_row("SELECT count(*) FROM effects", [], |row| row.get(0))?;
            match count {
                3 => task.complete_in(tx).await,
                _ => {
                    task.again_in(tx, Due::after(Duration::from_millis(20))?)
                        .await
                }
            }
        },
    );
    let daemon = Daemon::start(&ledger, handlers);
    client(&ledger)
        .create(key("1"), Duration::ZERO)
        .await
        .unwrap();
    until("the third run has completed it", async || {
        state(&ledger, "1").await == Some(State::Done)
    })
    .await;
    daemon.stop().await;
    let ids = effects(&shop);
    assert_eq!(ids.len(), 3, "{ids:?}");
    assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_of_many_handlers_take_turns_with_the_daemon() {
    const AT_ONCE: usize = 60;
    let (_place, ledger, shop) = shop().await;
    let mut handlers = Handlers::new();
    handlers.on(
        ("Order", "close"),
        |task: TaskContext, _: Vec<String>| async move {
            let tx = task.begin().await?;
            tx.execute("INSERT INTO effects VALUES (?1)", [task.id()])?;
            // A slow one: all others wait, none fails.
            tokio::time::sleep(Duration::from_millis(20)).await;
            task.complete_in(tx).await
        },
    );
    run_all(&ledger, handlers, AT_ONCE).await;
    assert_eq!(effects(&shop).len(), AT_ONCE);
    for number in 0..AT_ONCE {
        let record = ledger.find(&key(&number.to_string())).await.unwrap();
        assert_eq!(record.unwrap().attempt, 1);
    }
}
