//! Arming the keys of tasks whose rows are written.

use crate::clock::LedgerClock;
use crate::ledger::{Created, Stands};
use crate::task::TaskKey;
use crate::timer::{Alarm, ArmMode, Timer};

use super::NotArmed;

/// Most keys that are armed in one call.
const ARM_BATCH: usize = 1_000;

/// Arms what is pending; tells of each why it is not, in their order.
pub(super) async fn arm(
    timer: &dyn Timer,
    clock: &LedgerClock,
    made: &[(TaskKey, Created)],
) -> Vec<Option<NotArmed>> {
    let now = clock.now();
    let horizon = timer.horizon().map(|horizon| now.plus(horizon));
    let mut not_armed = Vec::with_capacity(made.len());
    let mut alarms = Vec::with_capacity(made.len());
    for (key, created) in made {
        not_armed.push(match created.stands {
            Stands::Kept | Stands::Refused => Some(NotArmed::LeftAsItIs),
            Stands::Asked => None,
        });
        if created.stands != Stands::Asked || created.state.is_finished() {
            continue;
        }
        let due = created.arming.due;
        if horizon.is_some_and(|horizon| due > horizon) {
            *not_armed.last_mut().expect("just pushed") = Some(NotArmed::BeyondHorizon);
        }
        // Even what is due now: its event is how every daemon hears of it. And what lies beyond the horizon: an older
        // key of it may be armed.
        alarms.push(Alarm {
            key: key.clone(),
            due: due.max(now),
            arming: Some(created.arming),
        });
    }
    for alarms in alarms.chunks(ARM_BATCH) {
        if let Err(error) = timer.arm(alarms, ArmMode::Replace).await {
            tracing::debug!(%error, keys = alarms.len(), "could not arm; the daemon finds the tasks in the ledger");
            for why in &mut not_armed {
                why.get_or_insert(NotArmed::Unreachable);
            }
            break;
        }
    }
    not_armed
}
