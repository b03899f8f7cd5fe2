//! The checkup: what `lapsed doctor` finds, for a page. The program brings the checks: HTTP knows none of them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use lapsed::diagnosis::Finding;

/// Findings of this age are shown without another checkup.
const FRESH: Duration = Duration::from_secs(30);

/// The findings of a checkup.
#[derive(Debug)]
pub struct CheckupReport {
    /// When it ended.
    pub at: Instant,
    /// In the order of the checks.
    pub findings: Vec<Finding>,
}

type Examine = dyn Fn() -> Pin<Box<dyn Future<Output = Vec<Finding>> + Send>> + Send + Sync;

/// Runs the checks for those who look, once at a time and at most once in 30 s.
pub struct Checkup {
    examine: Box<Examine>,
    /// True while the checks run.
    running: Mutex<bool>,
    latest: watch::Sender<Option<Arc<CheckupReport>>>,
}

impl Checkup {
    /// Runs these checks.
    pub fn new<F>(examine: impl Fn() -> F + Send + Sync + 'static) -> Arc<Self>
    where
        F: Future<Output = Vec<Finding>> + Send + 'static,
    {
        Arc::new(Self {
            examine: Box::new(move || Box::pin(examine())),
            running: Mutex::new(false),
            latest: watch::Sender::new(None),
        })
    }

    /// Returns the latest report, and true if the checks run again. Starts them if the report is old. Waits for the first
    /// report, at most for `patience`. A report that was made before `outdated` is not shown.
    ///
    /// # Cancel safety
    /// Cancel safe: the checks go on.
    pub async fn look(
        self: &Arc<Self>,
        patience: Duration,
        outdated: Option<Instant>,
    ) -> (Option<Arc<CheckupReport>>, bool) {
        let is_valid = |report: &Arc<CheckupReport>| outdated.is_none_or(|then| report.at >= then);
        let is_fresh = |report: &&Arc<CheckupReport>| report.at.elapsed() < FRESH;
        let mut reports = self.latest.subscribe();
        if reports
            .borrow()
            .as_ref()
            .filter(is_fresh)
            .is_none_or(|it| !is_valid(it))
        {
            self.start();
        }
        let first = reports.wait_for(|report| report.as_ref().is_some_and(is_valid));
        // Without a report in time there is none to show.
        let _ = timeout(patience, first).await;
        let report = reports.borrow().clone().filter(is_valid);
        (report, *self.running())
    }

    fn start(self: &Arc<Self>) {
        if std::mem::replace(&mut *self.running(), true) {
            return;
        }
        let this = Arc::clone(self);
        tokio::spawn(async move {
            // A panic in a check is not the end of checkups.
            let _ends = Ends(&this);
            let findings = (this.examine)().await;
            let at = Instant::now();
            this.latest
                .send_replace(Some(Arc::new(CheckupReport { at, findings })));
        });
    }

    fn running(&self) -> MutexGuard<'_, bool> {
        self.running
            .lock()
            .expect("nothing panics while holding it")
    }
}

impl fmt::Debug for Checkup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkup").finish_non_exhaustive()
    }
}

struct Ends<'a>(&'a Checkup);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        *self.0.running() = false;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_checks_run_once_for_all_who_look_and_again_when_they_are_old() {
        let runs = Arc::new(AtomicU32::new(0));
        let gate = Arc::new(Semaphore::new(0));
        let (counted, held) = (Arc::clone(&runs), Arc::clone(&gate));
        let checkup = Checkup::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
            let gate = Arc::clone(&held);
            async move {
                gate.acquire().await.unwrap().forget();
                Vec::new()
            }
        });
        let patience = Duration::from_secs(1);
        let (first, second) =
            tokio::join!(checkup.look(patience, None), checkup.look(patience, None));
        assert!(
            first.0.is_none() && second.0.is_none() && first.1,
            "they still run"
        );
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        gate.add_permits(1);
        let (report, is_running) = checkup.look(patience, None).await;
        assert!(report.is_some() && !is_running);
        tokio::time::advance(FRESH).await;
        let (old, is_running) = checkup.look(patience, None).await;
        assert!(
            old.is_some() && is_running,
            "the old report is shown meanwhile"
        );
        tokio::task::yield_now().await;
        assert_eq!(runs.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_from_before_an_outage_is_not_shown() {
        let runs = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&runs);
        let checkup = Checkup::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Vec::new() }
        });
        let patience = Duration::from_secs(1);
        assert!(checkup.look(patience, None).await.0.is_some());
        tokio::time::advance(Duration::from_secs(1)).await;
        let gone = Instant::now();
        let (report, _) = checkup.look(patience, Some(gone)).await;
        assert!(report.is_some_and(|report| report.at >= gone));
        assert_eq!(runs.load(Ordering::SeqCst), 2, "the checks run at once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_check_that_panics_is_tried_again() {
        let runs = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&runs);
        let checkup = Checkup::new(move || {
            let run = counted.fetch_add(1, Ordering::SeqCst);
            async move {
                assert_ne!(run, 0, "the first one panics");
                Vec::new()
            }
        });
        let patience = Duration::from_secs(1);
        assert!(checkup.look(patience, None).await.0.is_none());
        assert!(checkup.look(patience, None).await.0.is_some());
    }
}
