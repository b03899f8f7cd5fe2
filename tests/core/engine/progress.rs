//! Progress that handlers report.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lapsed::ledger::Progress;
use lapsed::ledger::memory::MemoryLedger;
use lapsed::task::State;
use lapsed::{HandlerError, Handlers, TaskContext};
use tokio::sync::{Notify, mpsc};

use crate::engine::faults::Faults;
use crate::engine::rig::{Rig, START, start_with};

/// Length of the leases of these tests. A third of it has passed at a renewal.
const LEASE: &str = "engine.lease = '30s'";

/// A handler that hands out its context, and fails when `go` is notified.
fn reporting(go: &Arc<Notify>) -> (Handlers, mpsc::UnboundedReceiver<TaskContext>) {
    let (started, runs) = mpsc::unbounded_channel();
    let mut handlers = Handlers::new();
    let go = Arc::clone(go);
    handlers.on(("Job", "report"), move |ctx: TaskContext| {
        started.send(ctx).unwrap();
        let go = Arc::clone(&go);
        async move {
            go.notified().await;
            Err::<(), _>(HandlerError::new("no"))
        }
    });
    (handlers, runs)
}

async fn shown(rig: &Rig) -> Option<String> {
    let progress = rig.record("Job@report").await.progress;
    progress.map(|progress| progress.to_string())
}

#[tokio::test(start_paused = true)]
async fn a_renewal_writes_the_latest_report_of_a_handler() {
    let (go, faults) = (Arc::default(), Arc::new(Faults::default()));
    let (handlers, mut runs) = reporting(&go);
    let ledger = Arc::new(MemoryLedger::new(START));
    let rig = start_with(ledger, Arc::clone(&faults), LEASE, handlers);
    rig.due_now("Job@report").await;
    let ctx = runs.recv().await.unwrap();
    let error = ctx.progress(101, "too much").unwrap_err();
    assert_eq!(error, Progress::new(101, "").unwrap_err());
    ctx.progress(10, "row 1 of 10").unwrap();
    ctx.progress(40, "row 4 of 10").unwrap();
    assert_eq!(shown(&rig).await, None, "it costs no statement");
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert_eq!(shown(&rig).await.as_deref(), Some("40 %, row 4 of 10"));
    assert_eq!(faults.reports.load(Ordering::SeqCst), 1);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(shown(&rig).await.as_deref(), Some("40 %, row 4 of 10"));
    assert_eq!(faults.reports.load(Ordering::SeqCst), 1, "there is no news");

    ctx.progress(90, "row 9 of 10").unwrap();
    go.notify_one();
    rig.until("Job@report", State::Waiting).await;
    assert_eq!(shown(&rig).await, None);
    runs.recv().await.unwrap();
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert_eq!(shown(&rig).await, None, "another run");
    go.notify_one();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_report_that_could_not_be_written_is_written_with_a_later_renewal() {
    let (go, faults) = (Arc::default(), Arc::new(Faults::default()));
    let (handlers, mut runs) = reporting(&go);
    faults.renewals_locked.store(true, Ordering::SeqCst);
    let ledger = Arc::new(MemoryLedger::new(START));
    let rig = start_with(ledger, Arc::clone(&faults), LEASE, handlers);
    rig.due_now("Job@report").await;
    let ctx = runs.recv().await.unwrap();
    ctx.progress(40, "").unwrap();
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert!(faults.reports.load(Ordering::SeqCst) > 0);
    assert_eq!(shown(&rig).await, None);
    faults.renewals_locked.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(shown(&rig).await.as_deref(), Some("40 %"));
    go.notify_one();
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_progress_is_refused_keeps_its_lease() {
    let (go, faults) = (Arc::default(), Arc::new(Faults::default()));
    let (handlers, mut runs) = reporting(&go);
    faults.reports_refused.store(true, Ordering::SeqCst);
    let ledger = Arc::new(MemoryLedger::new(START));
    let rig = start_with(ledger, Arc::clone(&faults), LEASE, handlers);
    rig.due_now("Job@report").await;
    let ctx = runs.recv().await.unwrap();
    ctx.progress(40, "").unwrap();
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert_eq!(rig.record("Job@report").await.state, State::Running);
    assert!(runs.try_recv().is_err(), "it runs once");
    faults.reports_refused.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert_eq!(shown(&rig).await.as_deref(), Some("40 %"));
    go.notify_one();
    rig.stop().await;
}
