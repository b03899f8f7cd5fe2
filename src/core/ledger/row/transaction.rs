//! The effect of a handler's own transaction on the row of its task.

use super::{NEVER, Row, Status};
use crate::ledger::row::StoredRecurrence;
use crate::ledger::{Ending, Lease, Settled, Settlement};
use crate::task::{OccurrenceEnd, Origin, Outcome, Recurrence, UnixMs, Verdict};

impl Row {
    /// Settles the run that holds `lease`. `None`: the claim is lost, and the row stays as it is.
    pub fn settle_in(
        &mut self,
        lease: Lease,
        ending: Ending,
        result: Option<String>,
        now: UnixMs,
    ) -> Option<Outcome> {
        let holds = self.owner == Some(lease.owner)
            && self.arming() == lease.arming
            && self.status == Status::Unprocessed;
        if !holds {
            return None;
        }
        match ending {
            Ending::Complete { next: Some(next) } => {
                let verdict = Verdict::NextOccurrence {
                    next,
                    end: OccurrenceEnd::Succeeded,
                    result,
                };
                match self.settle(&Settlement { lease, verdict }, now) {
                    Settled::Applied => Some(Outcome::Again(next)),
                    Settled::Ended => Some(Outcome::Completed),
                    _ => None,
                }
            }
            Ending::Again { now, due } if !self.deleted => {
                self.again(now, due);
                Some(Outcome::Again(due))
            }
            Ending::Complete { next: None } | Ending::Again { .. } => {
                self.last_error = None;
                self.result = result;
                self.finish(Status::Processed, now);
                Some(Outcome::Completed)
            }
        }
    }

    /// Turns the row into its next arming, which the handler chose.
    fn again(&mut self, now: UnixMs, due: UnixMs) {
        self.occurred(&OccurrenceEnd::Succeeded);
        let settled = |recurrence: StoredRecurrence| recurrence.changed(Recurrence::settled);
        self.recurrence = self.recurrence.take().map(settled);
        self.lease_until = NEVER;
        self.run_end = NEVER;
        self.retry_at = NEVER;
        self.attempt = 0;
        self.crashes = 0;
        self.last_error = None;
        self.result = None;
        self.history.clear();
        self.owner = None;
        self.origin = Origin::Row;
        self.start_time = now;
        self.changed_at = now;
        self.end_time = due;
    }
}
