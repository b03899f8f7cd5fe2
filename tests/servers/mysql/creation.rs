//! Creations at the same time share statements, and no failure.

use std::sync::Arc;
use std::time::Duration;

use lapsed::TaskClient;
use lapsed::ledger::{Claims, Ledger, NewTask, Producer};
use lapsed::task::{Contents, TaskKey, UnixMs};
use lapsed::timer::ledger_poll::LedgerPoll;
use sqlx::{Connection, Executor, MySqlConnection};
use tokio::task::JoinSet;

use crate::mysql::rig::start;
use crate::support::maria::counter;

#[tokio::test]
async fn creations_at_the_same_time_share_statements() {
    const CREATORS: usize = 64;
    let (_server, ledger, _) = start().await;
    let ledger = Arc::new(ledger);
    let timer = Arc::new(LedgerPoll::new(ledger.clock().clone()));
    let tasks = TaskClient::with_parts(Arc::clone(&ledger) as _, timer);
    let mut connection = ledger.connection().await.unwrap();
    let before = counter(&mut connection, "Com_insert").await;
    let mut creators = JoinSet::new();
    for creator in 0..CREATORS {
        let tasks = tasks.clone();
        creators.spawn(async move {
            let mut ids = Vec::new();
            for n in 0..10 {
                let args = [creator, n];
                let delay = Duration::from_secs(3600 + n as u64);
                let made = tasks.create(("Many", "create", args), delay).await.unwrap();
                let key = TaskKey::build("Many", "create", args.map(|n| n.to_string())).unwrap();
                ids.push((key, made.arming()));
            }
            ids
        });
    }
    let made: Vec<_> = creators.join_all().await.into_iter().flatten().collect();
    let statements = counter(&mut connection, "Com_insert").await - before;
    assert!(
        statements < made.len() as i64 / 2,
        "{statements} statements for {} tasks",
        made.len()
    );
    let keys: Vec<TaskKey> = made.iter().map(|(key, _)| key.clone()).collect();
    let lookups = ledger.look_up(&keys).await.unwrap();
    for ((key, arming), lookup) in made.iter().zip(lookups) {
        assert_eq!(lookup.unwrap().arming, *arming, "{key}");
    }
}

#[tokio::test]
async fn a_refused_task_fails_no_other_creation() {
    let (_server, ledger, _) = start().await;
    let mut connection = ledger.connection().await.unwrap();
    // A rule of the owner of the database that lapsed knows nothing of.
    connection
        .execute(
            "ALTER TABLE tb_time_limit_task ADD CONSTRAINT no_bad CHECK (`key` NOT LIKE 'Bad%')",
        )
        .await
        .unwrap();
    let timer = Arc::new(LedgerPoll::new(ledger.clock().clone()));
    let tasks = TaskClient::with_parts(Arc::new(ledger) as _, timer);
    let create = |class: &'static str, n: u32| {
        let tasks = tasks.clone();
        async move {
            let made = tasks.create((class, "m", [n]), Duration::from_secs(60));
            (n, made.await)
        }
    };
    let mut creators = JoinSet::new();
    for n in 0..50 {
        creators.spawn(create(if n == 25 { "Bad" } else { "Good" }, n));
    }
    let created = creators.join_all().await;
    let refused = created.iter().filter(|(_, made)| made.is_err());
    let refused: Vec<u32> = refused.map(|(n, _)| *n).collect();
    assert_eq!(refused, [25]);
}

#[tokio::test]
async fn a_locked_row_fails_no_other_creation() {
    let (_server, ledger, url) = start().await;
    let timer = Arc::new(LedgerPoll::new(ledger.clock().clone()));
    let tasks = TaskClient::with_parts(Arc::new(ledger) as _, timer);
    let hour = Duration::from_secs(3_600);
    // With a neighbour, since a wait for a row's lock keeps others out of the gap before it.
    for n in [1, 2] {
        tasks.create(("Locked", "row", [n]), hour).await.unwrap();
    }
    let mut other = MySqlConnection::connect(&url).await.unwrap();
    let mut holding = other.begin().await.unwrap();
    let lock = "SELECT id FROM tb_time_limit_task WHERE `key` = 'Locked@row@2' FOR UPDATE";
    sqlx::query(lock).fetch_all(&mut *holding).await.unwrap();

    let mut creators = JoinSet::new();
    for n in 0..50 {
        let (class, method, n) = match n {
            25 => ("Locked", "row", 2),
            n => ("Many", "create", n),
        };
        let tasks = tasks.clone();
        creators.spawn(async move { (class, tasks.create((class, method, [n]), 2 * hour).await) });
    }
    let created = creators.join_all().await;
    let failed = created
        .iter()
        .filter_map(|(class, made)| Some((class, made.as_ref().err()?)));
    for (class, error) in failed {
        assert!(
            *class == "Locked" && error.to_string().contains("locked"),
            "{class}: {error}"
        );
    }
    assert_eq!(created.iter().filter(|(_, made)| made.is_ok()).count(), 49);
    holding.rollback().await.unwrap();
    tasks
        .create(("Locked", "row", [2]), 2 * hour)
        .await
        .unwrap();
}

#[tokio::test]
async fn the_later_task_of_a_key_wins_in_one_call() {
    let (_server, ledger, _) = start().await;
    let far = 9_000_000_000_000;
    let task = |n: i64, due: i64, payload: &str| NewTask {
        contents: Contents {
            payload: Some(payload.to_owned()),
            ..Contents::default()
        },
        ..NewTask::new(
            TaskKey::build("Order", "close", [n.to_string()]).unwrap(),
            UnixMs(due),
        )
    };
    // Five, of which the first is the smallest.
    let tasks = [
        task(1, far, "1"),
        task(1, far + 1_000, "22"),
        task(2, far, "333"),
        task(3, far, "333"),
        task(4, far, "333"),
    ];
    ledger.create(&tasks).await.unwrap();
    let lookups = ledger.look_up(&[tasks[0].key.clone()]).await.unwrap();
    assert_eq!(lookups[0].as_ref().unwrap().arming.due, UnixMs(far + 1_000));
}
