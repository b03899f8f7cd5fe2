//! Arm horizon: arms far-future tasks when their due time comes within the horizon.
//!
//! With a horizon, a task that falls due later has no key yet. Nothing is kept in memory: each pass reads the ledger
//! page by page from where the last pass ended. Tasks already within the horizon belong to the audit: at start, and
//! when Redis has lost keys.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::LedgerClock;
use crate::engine::activity::Activity;
use crate::engine::health::LedgerHealth;
use crate::engine::pace::{Pace, jittered};
use crate::ledger::{DueScan, LedgerError, Scans, Window};
use crate::membership::{OwnerSet, Ownership};
use crate::task::UnixMs;
use crate::timer::{Alarm, ArmMode, Timer};

/// Passes are a twentieth of the horizon apart, within these bounds.
const PACE_LEAST: Duration = Duration::from_millis(50);
const PACE_MOST: Duration = Duration::from_secs(30);

/// Span that is read again: the creator of a task decides by its own reading of the ledger's clock whether the task
/// lies beyond the horizon.
const OVERLAP: Duration = Duration::from_secs(2);

/// Span that is read again when ownership has changed: the former owner may have died this long ago.
const HANDED_ON: Duration = Duration::from_secs(60);

/// Rows of one step.
const PAGE: u32 = 250;

/// How far the ledger has been read.
#[derive(Debug)]
struct Edge {
    at: UnixMs,
    /// The daemons among which the tasks are divided.
    division: OwnerSet,
}

/// Arms tasks as they come within the horizon of arming.
pub struct ArmHorizon {
    pub scans: Arc<dyn Scans>,
    pub clock: LedgerClock,
    pub health: Arc<LedgerHealth>,
    pub timer: Arc<dyn Timer>,
    pub ownership: Arc<Ownership>,
    pub activity: Arc<Activity>,
}

impl ArmHorizon {
    /// Arms tasks as they come within the timer's horizon. Returns at once without a horizon.
    pub async fn run(self) {
        let Some(horizon) = self.timer.horizon() else {
            return;
        };
        let pace = (horizon / 20).clamp(PACE_LEAST, PACE_MOST);
        let mut edge = Edge {
            at: self.clock.now().plus(horizon),
            division: self.ownership.owner_set(),
        };
        let activity = &self.activity;
        loop {
            let cause = activity.next(jittered(pace)).await;
            let armed = activity.pass(cause, self.read_to_horizon(&mut edge, horizon));
            if let Err(error) = armed.await {
                self.health.failed("arm tasks within the horizon", &error);
            }
        }
    }

    /// Runs one pass. If it breaks off, the next pass continues from there.
    async fn read_to_horizon(&self, edge: &mut Edge, horizon: Duration) -> Result<(), LedgerError> {
        let division = self.ownership.owner_set();
        if division != edge.division {
            edge.division = division;
            edge.at = before(edge.at, HANDED_ON);
        }
        let mut after = Some((before(edge.at, OVERLAP.min(horizon / 4)), 0));
        let mut pace = Pace::begin();
        while after.is_some() {
            let end = self.clock.now().plus(horizon);
            let scan = DueScan {
                window: Window::Ahead(horizon),
                after,
                limit: PAGE,
            };
            let page = self.scans.scan(scan).await?;
            let rows = page.rows.into_iter();
            // Each daemon arms its own tasks; all daemons arm the tasks that none of them can run.
            let ours = rows.filter(|row| self.ownership.owns(&row.key));
            let alarms: Vec<Alarm> = ours.map(Alarm::from).collect();
            if !alarms.is_empty() {
                match self.timer.arm(&alarms, ArmMode::IfMissing).await {
                    Ok(armed) => {
                        tracing::debug!(keys = armed.written, "armed tasks within the horizon")
                    }
                    Err(error) => {
                        tracing::debug!(%error, "could not arm tasks within the horizon; the next pass tries again");
                        return Ok(());
                    }
                }
            }
            edge.at = page.next.map_or(end, |(due, _)| due);
            after = page.next;
            if after.is_some() {
                pace.rest().await;
            }
        }
        Ok(())
    }
}

fn before(moment: UnixMs, by: Duration) -> UnixMs {
    UnixMs(moment.0 - by.as_millis() as i64)
}
