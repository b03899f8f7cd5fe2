//! Outages of the ledger, as the engine's statements meet them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use crate::ledger::LedgerError;

/// How long tasks with an expired lease are left alone after an outage.
const OWNERS_FIRST: Duration = Duration::from_millis(1500);

/// An answer that takes less than this never counts as the end of an outage.
const SLOW_MAX: Duration = Duration::from_secs(1);

/// Whether the ledger does what the engine asks.
#[derive(Debug)]
pub struct LedgerHealth {
    lease: Duration,
    outage: Mutex<Outage>,
    /// The last statement that counts was answered.
    answers: AtomicBool,
    /// Settlements wait for an outage to end. They go before the next sweep.
    settlements_wait: AtomicBool,
    /// The ledger refused some of the latest settlements.
    settlements_refused: AtomicBool,
}

#[derive(Debug, Default)]
struct Outage {
    /// What the ledger did not do last, for people.
    trouble: String,
    failing_since: Option<Instant>,
    /// After a long outage: until when expired leases are left to their owners.
    owners_first_until: Option<Instant>,
}

impl LedgerHealth {
    /// The health of a ledger that has not been asked yet; claims hold for `lease`.
    pub fn new(lease: Duration) -> Self {
        Self {
            lease,
            outage: Mutex::default(),
            answers: AtomicBool::new(false),
            settlements_wait: AtomicBool::new(false),
            settlements_refused: AtomicBool::new(false),
        }
    }

    /// Whether the ledger did what it was last asked.
    pub fn is_good(&self) -> bool {
        self.answers() && !self.settlements_refused.load(Ordering::Relaxed)
    }

    /// Whether the ledger answered when it was last asked, settlements apart.
    pub fn answers(&self) -> bool {
        self.answers.load(Ordering::Relaxed)
    }

    /// What the ledger did not do, where its health is not [good](Self::is_good); without names or data.
    pub fn trouble(&self) -> Option<String> {
        let trouble = || self.outage().trouble.clone();
        let trouble = (!self.is_good()).then(trouble);
        trouble.filter(|trouble| !trouble.is_empty())
    }

    /// The ledger answered. Returns whether it had failed before.
    pub fn answered(&self) -> bool {
        self.outage().answered(Instant::now(), self.lease);
        !self.answers.swap(true, Ordering::Relaxed)
    }

    /// The ledger failed to do what `verb` says. A locked row and refused data say nothing about the rest.
    pub fn failed(&self, verb: &'static str, error: &LedgerError) {
        let why = match error {
            LedgerError::Unavailable { .. } => "the ledger does not answer",
            LedgerError::Refused { .. } => "the ledger refuses it, see the log",
            _ => return,
        };
        let mut outage = self.outage();
        outage.trouble = format!("could not {verb}: {why}");
        outage.failed(Instant::now());
        self.answers.store(false, Ordering::Relaxed);
    }

    /// Whether leases may have expired during the outage that goes on.
    pub fn has_failed_for_long(&self) -> bool {
        self.outage()
            .has_failed_for_long(Instant::now(), self.lease)
    }

    /// Whether expired leases are left to their owners for now.
    pub fn owners_come_first(&self) -> bool {
        self.outage().owners_come_first(Instant::now())
    }

    /// Whether what a statement found, asked for at `asked`, is out of date: it may have waited for an outage to end, so
    /// expired leases are left to their owners.
    pub fn answered_late(&self, asked: Instant) -> bool {
        self.outage()
            .answered_late(asked, Instant::now(), self.lease)
    }

    /// Whether settlements wait for an outage to end.
    pub fn settlements_wait(&self) -> bool {
        self.settlements_wait.load(Ordering::Relaxed)
    }

    /// Tells whether settlements wait for an outage to end.
    pub fn set_settlements_wait(&self, wait: bool) {
        self.settlements_wait.store(wait, Ordering::Relaxed);
    }

    /// Tells whether the ledger refused some of the latest settlements.
    pub fn set_settlements_refused(&self, refused: bool) {
        self.settlements_refused.store(refused, Ordering::Relaxed);
    }

    fn outage(&self) -> MutexGuard<'_, Outage> {
        self.outage.lock().expect("nothing panics while holding it")
    }
}

impl Outage {
    fn failed(&mut self, now: Instant) {
        self.failing_since.get_or_insert(now);
    }

    /// A short failure right after a long outage, such as that of a connection from before it, does not end the wait.
    fn answered(&mut self, now: Instant, lease: Duration) {
        if self.has_failed_for_long(now, lease) {
            self.owners_first_until = Some(now + OWNERS_FIRST);
        }
        self.failing_since = None;
    }

    /// Whether an answer at `now` to a statement that was asked for at `asked` ends an outage in which leases may have
    /// expired: a statement waits for a connection, and reaches the ledger only when that is back.
    fn answered_late(&mut self, asked: Instant, now: Instant, lease: Duration) -> bool {
        let is_late = now.duration_since(asked) >= (lease / 4).max(SLOW_MAX);
        if is_late || self.has_failed_for_long(now, lease) {
            self.owners_first_until = Some(now + OWNERS_FIRST);
        }
        self.owners_come_first(now)
    }

    /// Whether leases may have expired since the first failure.
    fn has_failed_for_long(&self, now: Instant, lease: Duration) -> bool {
        self.failing_since
            .is_some_and(|since| now.duration_since(since) >= lease / 4)
    }

    fn owners_come_first(&self, now: Instant) -> bool {
        self.owners_first_until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(4);

    #[tokio::test(start_paused = true)]
    async fn after_a_long_outage_owners_come_first_even_if_it_fails_once_more() {
        let mut outage = Outage::default();
        let now = Instant::now();
        outage.failed(now);
        let back = now + LEASE;
        outage.answered(back, LEASE);
        outage.failed(back);
        outage.answered(back + Duration::from_millis(10), LEASE);
        assert!(outage.owners_come_first(back + OWNERS_FIRST / 2));
        assert!(!outage.owners_come_first(back + OWNERS_FIRST));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_took_long_is_the_end_of_an_outage() {
        let mut outage = Outage::default();
        let asked = Instant::now();
        assert!(!outage.answered_late(asked, asked + LEASE / 8, LEASE));
        let back = asked + LEASE;
        assert!(outage.answered_late(asked, back, LEASE));
        assert!(outage.answered_late(back, back + OWNERS_FIRST / 2, LEASE));
        let later = back + OWNERS_FIRST;
        assert!(!outage.answered_late(later, later, LEASE));
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_short_failure_nothing_waits() {
        let mut outage = Outage::default();
        let now = Instant::now();
        outage.failed(now);
        outage.answered(now + LEASE / 8, LEASE);
        assert!(!outage.owners_come_first(now + LEASE / 8));
    }
}
