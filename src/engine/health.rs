//! Ledger health: outages as the engine's statements observe them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use super::activity::Activity;
use super::reports::Reporter;
use crate::ledger::{Ledger, LedgerError};
use crate::timer::Cause;

/// Time after an outage during which tasks with an expired lease are left to their owners.
const OWNERS_FIRST: Duration = Duration::from_millis(1500);

/// An answer faster than this never counts as the end of an outage.
const SLOW_MAX: Duration = Duration::from_secs(1);

/// Health of the ledger: whether it answers and takes settlements.
pub struct LedgerHealth {
    ledger: Arc<dyn Ledger>,
    lease: Duration,
    /// Activated when an outage has ended: leases may have expired meanwhile.
    lease_scan: Arc<Activity>,
    reporter: Arc<Reporter>,
    outage: Mutex<Outage>,
    /// True if the last statement that counts was answered.
    answers: AtomicBool,
    /// True while settlements wait for an outage to end. They are written before the next sweep.
    settlements_wait: AtomicBool,
    /// True if the ledger refused some of the latest settlements.
    settlements_refused: AtomicBool,
}

#[derive(Debug, Default)]
struct Outage {
    /// The latest failure, as text for people.
    trouble: String,
    failing_since: Option<Instant>,
    /// After a long outage: the time until which expired leases are left to their owners.
    owners_first_until: Option<Instant>,
}

impl LedgerHealth {
    /// The health of a ledger that has not answered yet. Claims last for `lease`.
    pub fn new(
        ledger: Arc<dyn Ledger>,
        lease: Duration,
        lease_scan: Arc<Activity>,
        reporter: Arc<Reporter>,
    ) -> Self {
        Self {
            ledger,
            lease,
            lease_scan,
            reporter,
            outage: Mutex::default(),
            answers: AtomicBool::new(false),
            settlements_wait: AtomicBool::new(false),
            settlements_refused: AtomicBool::new(false),
        }
    }

    /// True if the ledger answers and refused none of the latest settlements.
    pub fn is_good(&self) -> bool {
        self.answers() && !self.settlements_refused.load(Ordering::Relaxed)
    }

    /// True if the ledger answered the last statement, regardless of refused settlements.
    pub fn answers(&self) -> bool {
        self.answers.load(Ordering::Relaxed)
    }

    /// Describes the latest failure if the health is not [good](Self::is_good). Contains no names or data.
    pub fn trouble(&self) -> Option<String> {
        let trouble = || self.outage().trouble.clone();
        let trouble = (!self.is_good()).then(trouble);
        trouble.filter(|trouble| !trouble.is_empty())
    }

    /// How long the ledger has failed; `None` if it answers.
    pub fn failing_for(&self) -> Option<Duration> {
        let since = self.outage().failing_since?;
        (!self.answers()).then(|| since.elapsed())
    }

    /// Records that the ledger answered. After an outage it also has to take writes: a full disk can be read. The end of an
    /// outage requests a lease scan.
    ///
    /// # Errors
    /// The ledger takes no writes: the outage continues.
    pub async fn answered(&self) -> Result<(), LedgerError> {
        if !self.answers() {
            self.ledger.check_writable().await?;
        }
        self.outage().answered(Instant::now(), self.lease);
        if !self.answers.swap(true, Ordering::Relaxed) {
            tracing::info!("the ledger answers again");
            self.lease_scan.activate(Cause::LedgerAnswers);
        }
        Ok(())
    }

    /// Checks the ledger before the first task starts.
    ///
    /// # Errors
    /// The ledger cannot be used.
    pub async fn check(&self) -> Result<(), LedgerError> {
        self.ledger.check().await?;
        self.answers.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Reads the ledger's time and adjusts the clock to it.
    ///
    /// # Errors
    /// The ledger does not answer.
    pub async fn sync_clock(&self) -> Result<(), LedgerError> {
        self.ledger.sync_clock().await.map(drop)
    }

    /// Records and logs that the ledger failed to do what `verb` says. The caller tries again; the daemon is not ready
    /// until the ledger answers.
    pub fn failed(&self, verb: &'static str, error: &LedgerError) {
        self.record_failure(verb, error);
        self.log_failure(verb, error);
    }

    /// Logs a failure, at most one line per verb and interval.
    pub fn log_failure(&self, verb: &'static str, error: &LedgerError) {
        if let Some(held_back) = self.reporter.failures.admit(verb) {
            tracing::error!(%error, held_back, "could not {verb}; trying again");
        }
    }

    /// A locked row and refused data say nothing about the health of the ledger.
    fn record_failure(&self, verb: &'static str, error: &LedgerError) {
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

    /// True if tasks with expired leases are left to their owners for now. After an outage, daemons that have ended
    /// their runs release the leases, which counts no crash. If another daemon claims a task before that, a crash is
    /// counted.
    ///
    /// # Errors
    /// The ledger does not answer yet.
    pub async fn owners_come_first(&self) -> Result<bool, LedgerError> {
        let now = Instant::now();
        let has_failed_for_long = self.outage().has_failed_for_long(now, self.lease);
        if has_failed_for_long {
            self.sync_clock().await?;
            self.answered().await?;
        }
        Ok(self.outage().owners_come_first(Instant::now()))
    }

    /// True if the result of a statement sent at `asked` is out of date: it may have waited for an outage to end, so
    /// expired leases are left to their owners.
    pub fn answered_late(&self, asked: Instant) -> bool {
        self.outage()
            .answered_late(asked, Instant::now(), self.lease)
    }

    /// True if settlements wait for an outage to end.
    pub fn settlements_wait(&self) -> bool {
        self.settlements_wait.load(Ordering::Relaxed)
    }

    /// Sets whether settlements wait for an outage to end.
    pub fn set_settlements_wait(&self, wait: bool) {
        self.settlements_wait.store(wait, Ordering::Relaxed);
    }

    /// Sets whether the ledger refused some of the latest settlements.
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

    /// Ends an outage. A short failure right after a long outage, such as that of a stale connection, does not end the
    /// wait for the owners.
    fn answered(&mut self, now: Instant, lease: Duration) {
        if self.has_failed_for_long(now, lease) {
            self.owners_first_until = Some(now + OWNERS_FIRST);
        }
        self.failing_since = None;
    }

    /// True if an answer at `now` to a statement sent at `asked` ends an outage in which leases may have expired: a
    /// statement waits for a connection, and reaches the ledger only when it is back.
    fn answered_late(&mut self, asked: Instant, now: Instant, lease: Duration) -> bool {
        let is_late = now.duration_since(asked) >= (lease / 4).max(SLOW_MAX);
        if is_late || self.has_failed_for_long(now, lease) {
            self.owners_first_until = Some(now + OWNERS_FIRST);
        }
        self.owners_come_first(now)
    }

    /// True if leases may have expired since the first failure.
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
    async fn a_late_answer_ends_an_outage() {
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
    async fn a_short_failure_does_not_make_expired_leases_wait() {
        let mut outage = Outage::default();
        let now = Instant::now();
        outage.failed(now);
        outage.answered(now + LEASE / 8, LEASE);
        assert!(!outage.owners_come_first(now + LEASE / 8));
    }
}
