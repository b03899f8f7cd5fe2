//! Arms the keys of tasks whose rows are written, and disarms those of cancelled tasks.

use crate::clock::LedgerClock;
use crate::ledger::{CancelAnswer, CreateResult, Created};
use crate::task::TaskKey;
use crate::timer::{Alarm, AlarmStore, ArmMode};

use super::NotArmed;

/// Maximum number of keys armed in one call.
const ARM_BATCH: usize = 1_000;

/// Arms the keys of pending tasks. Returns, in the order of `tasks`, why a key is not armed.
pub(super) async fn arm(
    store: &dyn AlarmStore,
    clock: &LedgerClock,
    tasks: &[(TaskKey, Created)],
) -> Vec<Option<NotArmed>> {
    let now = clock.now();
    let horizon = store.horizon().map(|horizon| now.plus(horizon));
    let mut not_armed = Vec::with_capacity(tasks.len());
    let mut alarms = Vec::with_capacity(tasks.len());
    for (key, created) in tasks {
        not_armed.push(match created.result {
            CreateResult::Kept | CreateResult::Refused => Some(NotArmed::LeftAsItIs),
            CreateResult::Written => None,
        });
        if created.result != CreateResult::Written || created.state.is_finished() {
            continue;
        }
        let due = created.arming.due;
        if horizon.is_some_and(|horizon| due > horizon) {
            *not_armed.last_mut().expect("just pushed") = Some(NotArmed::BeyondHorizon);
        }
        // Also a task that is due now, since every daemon learns of it by the event of its key; and a task beyond the
        // horizon, since an older key of it may be armed.
        alarms.push(Alarm {
            key: key.clone(),
            due: due.max(now),
            arming: Some(created.arming),
        });
    }
    for alarms in alarms.chunks(ARM_BATCH) {
        if let Err(error) = store.arm(alarms, ArmMode::Replace).await {
            tracing::debug!(%error, keys = alarms.len(), "could not arm; the daemon finds the tasks in the ledger");
            for why in &mut not_armed {
                why.get_or_insert(NotArmed::Unreachable);
            }
            break;
        }
    }
    not_armed
}

/// Deletes the key of a cancelled task. A failure is logged only: the event of the key will have no effect.
pub(super) async fn disarm_cancelled(store: &dyn AlarmStore, key: &TaskKey, answer: CancelAnswer) {
    // A running task may have a newer arming.
    if matches!(answer, CancelAnswer::Cancelled | CancelAnswer::Running)
        && let Err(error) = store.disarm(std::slice::from_ref(key)).await
    {
        tracing::debug!(%error, "could not delete the key of a cancelled task: its event will lead to nothing");
    }
}
