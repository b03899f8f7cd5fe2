//! Probe: looks for tasks that are due now and that the timer has not heard of.
//!
//! A timer without a server hears of tasks of this process only. Another process, or a program that writes SQL, may
//! create a task that is due at once. Between two passes, and between the pages of a pass, the look-ahead reads the few
//! index entries around the present moment. An entry that is known costs nothing more.
//!
//! A ledger that can tell whether another process has written is asked that first. If none has since the last pass began,
//! the pass and the probe behind it have found all there is.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::{Ahead, KNOWN_MAX, KnownRow, LookAhead};
use crate::ledger::{LedgerError, NearScan};
use crate::task::UnixMs;
use crate::timer::Cause;

/// How long ago a task that a probe finds may have fallen due. A transaction may commit some time after it has computed
/// the due time. After that, the sweep finds the task.
const BACK: Duration = Duration::from_secs(1);

/// Index entries of one probe. In a burst, the latest due times come first.
const ENTRIES: u32 = 512;

/// How long to wait for the state of the ledger. A ledger that is busy for longer is probed: that waits for no other work.
const STATE_WITHIN: Duration = Duration::from_millis(50);

/// Pause after a probe that failed.
const OUTAGE_PAUSE: Duration = Duration::from_secs(1);

impl LookAhead {
    /// How long rows stay known after they fell due, so that no probe reads them again.
    pub(super) fn known_back(&self) -> Duration {
        self.probe.map_or(Duration::ZERO, |_| BACK)
    }

    /// Probes until the next pass is due or requested. Returns the cause of the pass.
    pub(super) async fn probe_until(&self, ahead: &mut Ahead, pass_at: Instant) -> Cause {
        let activity = &self.activity;
        loop {
            let wake = match self.probe {
                Some(_) => pass_at.min(ahead.probe_at),
                None => pass_at,
            };
            let rest = wake.saturating_duration_since(Instant::now());
            let cause = activity.next(rest).await;
            if cause != Cause::Interval || Instant::now() >= pass_at {
                return cause;
            }
            self.probe_if_due(ahead).await;
        }
    }

    /// The state of the ledger, if it can tell and probes are wanted.
    pub(super) async fn unsignalled_changes(&self) -> Result<Option<u64>, LedgerError> {
        if self.probe.is_none() {
            return Ok(None);
        }
        let state = timeout(STATE_WITHIN, self.scans.unsignalled_changes());
        state.await.unwrap_or(Ok(None))
    }

    /// Probes at the end of a pass that began in this state of the ledger. What is due later than the beginning of the pass
    /// was found by the pass, what is due earlier is found now.
    pub(super) async fn probe_after_pass(
        &self,
        ahead: &mut Ahead,
        state: Option<u64>,
    ) -> Result<(), LedgerError> {
        if let (Some(interval), Some(_)) = (self.probe, state) {
            self.probe(ahead, interval).await?;
            // With more rows than it may know, the pass has left some out.
            ahead.probed = state.filter(|_| ahead.known.len() < KNOWN_MAX);
        }
        Ok(())
    }

    /// Probes if it is time to. The next probe is due after the interval, and not before as much time has passed as this
    /// one took: a slow ledger is asked less often.
    pub(super) async fn probe_if_due(&self, ahead: &mut Ahead) {
        let began = Instant::now();
        let Some(interval) = self.probe.filter(|_| began >= ahead.probe_at) else {
            return;
        };
        let probed = match self.is_probed(ahead).await {
            Ok(true) => Ok(()),
            Ok(false) => self.probe(ahead, interval).await,
            Err(error) => Err(error),
        };
        ahead.probe_at = match probed {
            Ok(()) => began + interval.max(began.elapsed() * 2),
            Err(error) => {
                self.health.failed("look for tasks due now", &error);
                Instant::now() + OUTAGE_PAUSE
            }
        };
    }

    async fn is_probed(&self, ahead: &Ahead) -> Result<bool, LedgerError> {
        Ok(match ahead.probed {
            Some(probed) => self.unsignalled_changes().await? == Some(probed),
            None => false,
        })
    }

    /// Reads the tasks that have just fallen due or do so before the next probe, and that are not known.
    async fn probe(&self, ahead: &mut Ahead, interval: Duration) -> Result<(), LedgerError> {
        let scan = NearScan {
            back: BACK,
            ahead: interval * 2,
            limit: ENTRIES,
        };
        let new: Mutex<Vec<(u64, UnixMs)>> = Mutex::default();
        let known = |row: u64, due: UnixMs| {
            let is_known = ahead.contains(row, due);
            if !is_known {
                let mut new = new.lock().expect("nothing panics while holding it");
                new.push((row, due));
            }
            is_known
        };
        let rows = self.scans.scan_near(scan, &ahead.own, &known);
        let rows = rows.await?;
        // Those that are leased, too: they run elsewhere, and are not asked for again.
        let new = new.into_inner().expect("nothing panics while holding it");
        for (row, due) in new {
            let deferred = None;
            ahead.known.insert(row, KnownRow { due, deferred });
        }
        self.expect_rows(ahead, rows);
        Ok(())
    }
}
