//! Overdue tasks beside a backlog that may not start.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lapsed::ledger::sqlite::SqliteLedger;
use lapsed::ledger::{Admin as _, Ledger, Pauses as _};
use lapsed::timer::ledger_poll::LedgerPoll;
use lapsed::{Config, Engine, Handlers};
use tokio::sync::oneshot;

use crate::engine::rig;
use crate::sqlite::Place;
use crate::support::wait::until;

/// Overdue tasks that may not start. In the order of due times, a sweep goes past 8,000 to 33,000 of them.
const BACKLOG: u64 = 300_000;

/// Overdue tasks that may, spread over the backlog, and none of them among the newest thousand.
const OTHERS: u64 = 5;

/// Sweeps until the others have started: the first one finds them, and some more may pass until the last has started.
const SWEEPS_MAX: u64 = 4;

/// A file with the backlog and the others.
async fn backlog(class: &str) -> (Place, Arc<SqliteLedger>) {
    let (place, ledger) = Place::migrated().await;
    let insert = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {BACKLOG}) \
         INSERT INTO tb_time_limit_task (key, start_time, end_time) SELECT '{class}@run@' || i, 1, 1000 + i FROM n; \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {OTHERS}) \
         INSERT INTO tb_time_limit_task (key, start_time, end_time) \
         SELECT 'Other@run@' || i, 1, i * {} FROM n;",
        BACKLOG / (OTHERS + 1)
    );
    place.application().execute_batch(&insert).unwrap();
    (place, ledger)
}

/// Runs an engine until the others are done. Returns the number of sweeps.
async fn sweeps(ledger: Arc<SqliteLedger>, config: &str) -> u64 {
    let config = Config::from_toml(config).unwrap();
    let mut handlers = Handlers::new();
    handlers.on(("Other", "run"), async |_: u64| Ok(()));
    let timer = Arc::new(LedgerPoll::new(ledger.clock().clone()));
    let parts = rig::parts(Arc::clone(&ledger) as _, timer, handlers, &config);
    let engine = Engine::with_parts(parts, &config);
    let status = engine.handle();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(engine.run_until(async move {
        let _ = stopped.await;
    }));
    let seen = AtomicU64::new(0);
    until("the others are done", async || {
        let background = status.background();
        let sweep = background.iter().find(|task| task.name == "sweep");
        seen.store(sweep.unwrap().passes, Ordering::SeqCst);
        ledger.stats().await.unwrap().done == OTHERS
    })
    .await;
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
    seen.into_inner()
}

#[tokio::test]
async fn a_backlog_of_a_queue_without_workers_delays_no_other_overdue_task() {
    let (_place, ledger) = backlog("Mail").await;
    let route = "[[routes]]\nmatch = '^Mail@'\npull = { queue = 'mail' }";
    let sweeps = sweeps(ledger, route).await;
    assert!(sweeps <= SWEEPS_MAX, "{sweeps} sweeps");
}

#[tokio::test]
async fn a_backlog_without_a_route_delays_no_other_overdue_task() {
    let (_place, ledger) = backlog("Gone").await;
    let sweeps = sweeps(ledger, "").await;
    assert!(sweeps <= SWEEPS_MAX, "{sweeps} sweeps");
}

#[tokio::test]
async fn a_paused_backlog_delays_no_other_overdue_task() {
    let (_place, ledger) = backlog("Mail").await;
    ledger
        .pause(&"Mail".parse().unwrap(), None, "me", "")
        .await
        .unwrap();
    let route = "[[routes]]\nmatch = '^Mail@'\nlog = {}";
    let sweeps = sweeps(ledger, route).await;
    assert!(sweeps <= SWEEPS_MAX, "{sweeps} sweeps");
}
