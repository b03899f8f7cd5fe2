//! Claims of a row: claim, renew, end the lease of a dead daemon.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{NEVER, Row, Status};
use crate::ledger::settlement::LeftOpen;
use crate::ledger::{Claim, Claimant, FoundLease, Lease, Owner, Progress, Renewal};
use crate::task::{Attempt, How, PAYLOAD_READ_MAX, SUSPECT_CRASHES, UnixMs};

impl Row {
    pub fn claim(&mut self, by: &Claimant, owner: Owner, now: UnixMs) {
        let counts = self.has_run();
        self.attempt = if counts { self.attempt } else { 0 }.saturating_add(1);
        self.crashes = if counts {
            self.crashes
                .saturating_add(u8::from(self.lease_until > NEVER))
        } else {
            0
        };
        self.retry_at = if counts { self.retry_at } else { NEVER };
        if counts && self.lease_until == LeftOpen::ReleasedForLast.lease_until() {
            self.deleted = true;
        }
        self.run_end = self.end_time;
        self.owner = Some(owner);
        self.daemon.clone_from(&by.daemon);
        self.lease_until = now.plus(by.lease);
        self.claimed_at = now;
    }

    /// Ends the lease of a dead daemon. Returns false if that lease no longer holds.
    pub fn end_lease(&mut self, lease: &FoundLease, now: UnixMs) -> bool {
        let holds = self.status == Status::Unprocessed
            && self.leased(now)
            && self.owner == Some(lease.owner)
            && self.daemon == lease.daemon;
        if holds {
            self.lease_until = UnixMs(now.0 - 1);
        }
        holds
    }

    /// Ends a task that was cancelled during a run whose lease has run out since. Returns false if it is none.
    pub fn end_cancelled_run(&mut self, now: UnixMs) -> bool {
        let ends = self.status == Status::Unprocessed
            && self.deleted_by_lapsed()
            && self.lease_until > NEVER
            && !self.leased(now);
        if ends {
            // A frozen run must not succeed after all.
            self.owner = None;
            self.finish(Status::Cancelled, self.finished_at.unwrap_or(now));
        }
        ends
    }

    /// Returns the claim that [`claim`](Self::claim) has just made.
    pub fn claimed(&self, owner: Owner, claimed: Instant) -> Claim {
        let recurrence = self.recurrence.clone();
        Claim {
            lease: Lease {
                arming: self.arming(),
                owner,
            },
            key: self.key.clone(),
            attempt: Attempt {
                number: self.attempt,
                crashes: self.crashes,
                max_attempts: self.contents.max_attempts,
                since: self.end_time.max(self.start_time),
                snoozes: self.snoozes(),
            },
            created: self.start_time,
            due_at: self.due_at(),
            payload: self.readable_payload().cloned(),
            oversize: self.oversize(),
            tag: self.contents.tag.clone(),
            recurrence: recurrence.map(|stored| Arc::new(stored.parsed())),
            claimed,
            progress: Arc::default(),
        }
    }

    pub fn renew(&mut self, owner: Owner, length: Duration, now: UnixMs) -> Renewal {
        if self.owner != Some(owner) || !self.leased(now) {
            return Renewal::Lost;
        }
        self.lease_until = now.plus(length);
        Renewal::Held
    }

    /// Renews a claim and stores the progress of its run: see [`Claims::report`](crate::ledger::Claims::report).
    pub fn report(
        &mut self,
        owner: Owner,
        progress: &Progress,
        length: Duration,
        now: UnixMs,
    ) -> Renewal {
        let renewal = self.renew(owner, length, now);
        if renewal == Renewal::Held {
            self.progress = Some(progress.to_line(owner));
        }
        renewal
    }

    /// Lowers the crashes of a claimed task: see [`Claims::pardon`](crate::ledger::Claims::pardon).
    pub fn pardon(&mut self, lease: &Lease, now: UnixMs) -> Renewal {
        let holds = self.status == Status::Unprocessed
            && self.owner == Some(lease.owner)
            && self.leased(now)
            && self.run_end == lease.arming.due;
        if !holds {
            return Renewal::Lost;
        }
        self.crashes = self.crashes.min(SUSPECT_CRASHES - 1);
        Renewal::Held
    }

    pub fn readable_payload(&self) -> Option<&String> {
        let payload = self.contents.payload.as_ref();
        payload.filter(|payload| payload.len() <= PAYLOAD_READ_MAX)
    }

    pub fn oversize(&self) -> Option<u64> {
        let bytes = self.contents.payload.as_ref()?.len();
        (bytes > PAYLOAD_READ_MAX).then_some(bytes as u64)
    }

    /// Returns the number of snoozes in a row.
    pub fn snoozes(&self) -> u16 {
        match self.history.first() {
            Some(latest) if latest.how == How::Snoozed => latest.snoozes,
            _ => 0,
        }
    }
}
