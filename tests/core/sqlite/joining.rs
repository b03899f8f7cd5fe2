//! Creations that join the transaction of others.

use lapsed::ledger::{Ledger as _, NewTask, Producer as _};
use lapsed::{TaskKey, UnixMs};
use tokio::task::JoinSet;

use crate::sqlite::Place;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_task_is_not_created_before_its_call() {
    const CALLERS: u32 = 64;
    const TASKS: u32 = 40;
    let (_place, ledger) = Place::migrated().await;
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let ledger = ledger.clone();
        callers.spawn(async move {
            for number in 0..TASKS {
                let key = TaskKey::parse(&format!("Joined@task@{caller}@{number}")).unwrap();
                let asked = ledger.now().await.unwrap();
                let task = NewTask::new(key, UnixMs(asked.0 + 3_600_000));
                let created = ledger.create(&[task]).await.unwrap()[0];
                assert!(created.since >= asked, "{:?} < {asked:?}", created.since);
            }
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended.unwrap();
    }
}
