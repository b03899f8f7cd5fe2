//! The horizon of arming. Where there is one, a task that falls due later has no key yet; this arms it when its time
//! comes near. Nothing is held in memory: the ledger is read on from where the last pass ended, page by page.
//!
//! What lies within the horizon already is the audit's: at the start, and when Redis has lost something.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::deps::Deps;
use crate::engine::pace::Pace;
use crate::ledger::{DueScan, LedgerError, Window};
use crate::membership::OwnerSet;
use crate::task::UnixMs;
use crate::timer::{Alarm, ArmMode};

/// Passes are a twentieth of the horizon apart, within these bounds.
const PACE_LEAST: Duration = Duration::from_millis(50);
const PACE_MOST: Duration = Duration::from_secs(30);

/// How much is read again: whoever creates a task tells by another reading of the ledger's clock whether it lies
/// beyond.
const OVERLAP: Duration = Duration::from_secs(2);

/// How much is read again when tasks have changed hands: so long ago their owner may have died.
const HANDED_ON: Duration = Duration::from_secs(60);

/// Rows of one step.
const PAGE: u32 = 250;

/// How far the ledger has been read.
#[derive(Debug)]
struct Edge {
    at: UnixMs,
    /// Among whom the tasks were divided.
    division: OwnerSet,
}

/// Arms tasks as they come within the horizon of arming.
pub struct ArmHorizon {
    pub deps: Arc<Deps>,
}

impl ArmHorizon {
    /// Arms what comes within the timer's horizon, until the engine stops; at once over where there is none.
    pub async fn run(self) {
        let Some(horizon) = self.deps.timer.horizon() else {
            return;
        };
        let pace = (horizon / 20).clamp(PACE_LEAST, PACE_MOST);
        let work = async {
            let mut edge = Edge {
                at: self.deps.ledger.clock().now().plus(horizon),
                division: self.deps.ownership.owner_set(),
            };
            loop {
                tokio::time::sleep(self.deps.jittered(pace)).await;
                if let Err(error) = self.read_to_horizon(&mut edge, horizon).await {
                    self.deps.ledger_failed("arm what comes near", &error);
                }
            }
        };
        self.deps.lifecycle.until_stopped(work).await;
    }

    /// One pass. Where it breaks off the next one goes on.
    async fn read_to_horizon(&self, edge: &mut Edge, horizon: Duration) -> Result<(), LedgerError> {
        let division = self.deps.ownership.owner_set();
        if division != edge.division {
            edge.division = division;
            edge.at = before(edge.at, HANDED_ON);
        }
        let mut after = Some((before(edge.at, OVERLAP.min(horizon / 4)), 0));
        let mut pace = Pace::begin();
        while after.is_some() {
            let end = self.deps.ledger.clock().now().plus(horizon);
            let scan = DueScan {
                window: Window::Ahead(horizon),
                after,
                limit: PAGE,
            };
            let page = self.deps.ledger.scan(scan).await?;
            let rows = page.rows.into_iter();
            // Another daemon's are armed by that one, and what nobody can run by all of them.
            let ours = rows.filter(|row| self.deps.ownership.owns(&row.key));
            let alarms: Vec<Alarm> = ours.map(Alarm::from).collect();
            if !alarms.is_empty() {
                match self.deps.timer.arm(&alarms, ArmMode::IfMissing).await {
                    Ok(armed) => tracing::debug!(keys = armed.written, "armed what came near"),
                    Err(error) => {
                        tracing::debug!(%error, "could not arm what came near; the next pass tries again");
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
