//! Rows of the ledger as alarms of the timer. Neither of the two seams knows the other.

use crate::ledger::Upcoming;
use crate::timer::Alarm;

impl From<Upcoming> for Alarm {
    fn from(row: Upcoming) -> Self {
        let Upcoming {
            key,
            arming,
            due_at,
        } = row;
        Self {
            key,
            due: due_at,
            arming: Some(arming),
        }
    }
}
