//! Probe: looks for tasks that are due now and that the timer has not heard of.
//!
//! A timer without a server hears of tasks of this process only. Another process, or a program that writes SQL, may
//! create a task that is due at once. Between two passes, and between the pages of a pass, the look-ahead reads the few
//! index entries around the present moment. An entry that is known costs nothing more.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::{Ahead, KnownRow, LookAhead};
use crate::ledger::{LedgerError, NearScan};
use crate::task::UnixMs;
use crate::timer::Cause;

/// How long ago a task that a probe finds may have fallen due. A transaction may commit some time after it has computed
/// the due time. After that, the sweep finds the task.
const BACK: Duration = Duration::from_secs(1);

/// Index entries of one probe. In a burst, the latest due times come first.
const ENTRIES: u32 = 512;

/// Pause after a probe that failed.
const OUTAGE_PAUSE: Duration = Duration::from_secs(1);

impl LookAhead {
    /// How long rows stay known after they fell due, so that no probe reads them again.
    pub(super) fn known_back(&self) -> Duration {
        self.deps.probe.map_or(Duration::ZERO, |_| BACK)
    }

    /// Probes until the next pass is due or requested. Returns the cause of the pass.
    pub(super) async fn probe_until(&self, ahead: &mut Ahead, pass_at: Instant) -> Cause {
        let activity = &self.deps.background.look_ahead;
        loop {
            let wake = match self.deps.probe {
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

    /// Probes if it is time to. The next probe is due after the interval, and not before as much time has passed as this
    /// one took: a slow ledger is asked less often.
    pub(super) async fn probe_if_due(&self, ahead: &mut Ahead) {
        let began = Instant::now();
        let Some(interval) = self.deps.probe.filter(|_| began >= ahead.probe_at) else {
            return;
        };
        let probed = self.probe(ahead, interval).await;
        ahead.probe_at = match probed {
            Ok(()) => began + interval.max(began.elapsed() * 2),
            Err(error) => {
                self.deps.ledger_failed("look for tasks due now", &error);
                Instant::now() + OUTAGE_PAUSE
            }
        };
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
        let rows = self.deps.ledger.scan_near(scan, &ahead.own, &known);
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
