//! Groups: tasks that start after all tasks with a tag.

use lapsed_core::ledger::row::{Row, Status};
use lapsed_core::task::{After, Envelope, IfDead};

use super::{Anomaly, Claim, Judge};

impl Judge {
    /// Judges the start of a task that waits for others: none of them was there, unfinished and unchanged, from its claim on.
    pub(super) fn starts_after_its_group(&mut self, claim: &Claim, what: &str) {
        let Some(after) = &claim.envelope.after else {
            return;
        };
        self.looked.groups += 1;
        let is_older = |row: &Row| self.since.get(&row.id).is_some_and(|at| *at <= claim.at);
        let mut open = self.rows.values().filter(|row| row.id != claim.row);
        let open = open.find(|row| is_open(row, after) && is_older(row));
        if let Some(row) = open.map(super::brief) {
            self.accuse(Anomaly::Early, format!("{what}, before {row}"));
        }
    }

    /// True if the row waits for a task that has died. Nothing redrives that after the faults.
    pub(super) fn waits_for_a_dead_one(&self, row: &Row) -> bool {
        let payload = row.contents.payload.as_deref();
        let after = payload.and_then(Envelope::condition);
        let after = after.filter(|after| after.if_dead == IfDead::Wait);
        after.is_some_and(|after| {
            let mut rows = self.rows.values();
            rows.any(|other| other.status == Status::Dead && is_open(other, &after))
        })
    }
}

/// True if a task that waits for this tag has to wait for this row.
fn is_open(row: &Row, after: &After) -> bool {
    let has_ended = match row.status {
        Status::Unprocessed => row.deleted,
        Status::Dead => after.if_dead == IfDead::Ignore,
        Status::Processed | Status::Cancelled => true,
    };
    row.contents.tag.as_ref() == Some(&after.tag) && !has_ended
}
