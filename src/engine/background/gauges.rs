//! What the engine tells people: counts and outages.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::Shared;
use crate::ledger::{Catalog, LedgerError, SurveyLimits};

/// How often tasks are counted for the metrics, if counting is quick.
const COUNT_EVERY: Duration = Duration::from_secs(15);

/// Counting may take a hundredth of the time.
const COUNT_SHARE: u32 = 100;

/// How long sweeps wait after an outage.
const OWNERS_FIRST: Duration = Duration::from_millis(1500);

/// An answer that takes less than this is never taken for the end of an outage.
const SLOW_MAX: Duration = Duration::from_secs(1);

/// What is known of an outage of the ledger.
#[derive(Debug, Default)]
pub(crate) struct LedgerHealth {
    /// What it did not do last, for people.
    pub trouble: String,
    /// Since when it has done nothing.
    failing_since: Option<Instant>,
    /// Until when no sweep is made after one.
    owners_first_until: Option<Instant>,
}

impl LedgerHealth {
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
    /// run out: a statement waits for a connection, and reaches the ledger only when that is back.
    fn answered_late(&mut self, asked: Instant, now: Instant, lease: Duration) -> bool {
        let is_late = now.duration_since(asked) >= (lease / 4).max(SLOW_MAX);
        if is_late || self.has_failed_for_long(now, lease) {
            self.owners_first_until = Some(now + OWNERS_FIRST);
        }
        self.owners_come_first(now)
    }

    /// Whether leases may have run out since it failed first.
    fn has_failed_for_long(&self, now: Instant, lease: Duration) -> bool {
        self.failing_since
            .is_some_and(|since| now.duration_since(since) >= lease / 4)
    }

    fn owners_come_first(&self, now: Instant) -> bool {
        self.owners_first_until.is_some_and(|until| now < until)
    }
}

impl Shared {
    /// Keeps the gauges of tasks by state fresh, as often as counting is cheap. Each daemon asks how long the oldest
    /// overdue task has waited; one of them counts.
    pub(crate) async fn count_tasks_until_stopped(self: Arc<Self>) {
        let Some(catalog) = self.parts.catalog.clone() else {
            return;
        };
        let work = async {
            loop {
                let asked = Instant::now();
                // A gauge that cannot be read says nothing about whether tasks can be run.
                if let Err(error) = self.count_tasks(&*catalog).await {
                    self.complain("count tasks", &error);
                }
                tokio::time::sleep(COUNT_EVERY.max(asked.elapsed() * COUNT_SHARE)).await;
            }
        };
        self.stopping.run_until_cancelled(work).await;
    }

    async fn count_tasks(&self, catalog: &dyn Catalog) -> Result<(), LedgerError> {
        self.parts.metrics.overdue_for(catalog.overdue_for().await?);
        match self.share.is_first() {
            true => {
                let survey = catalog.survey(SurveyLimits::GAUGES).await?;
                self.parts.metrics.counted(&survey);
            }
            false => self.parts.metrics.counted_elsewhere(),
        }
        Ok(())
    }

    /// Keeps the gauges of waiting signals fresh.
    pub(crate) async fn count_waiting_until_stopped(self: Arc<Self>) {
        const EVERY: Duration = Duration::from_secs(1);
        let work = async {
            let mut shown = HashMap::new();
            loop {
                // A route that is gone has nothing any more.
                shown.values_mut().for_each(|count| *count = 0);
                shown.extend(self.intake.waiting_by_route());
                for (route, count) in &shown {
                    self.parts.metrics.waiting(route, *count);
                }
                tokio::time::sleep(EVERY).await;
            }
        };
        self.stopping.run_until_cancelled(work).await;
    }

    pub(crate) fn ledger_answered(&self) {
        self.ledger_health()
            .answered(Instant::now(), self.config.lease);
        if !self.ledger_answers.swap(true, Ordering::Relaxed) {
            tracing::info!("the ledger answers again");
            // Leases ran out meanwhile.
            self.recovery.scan();
        }
    }

    /// The ledger did not do what the engine asked and asks again: the daemon is not ready until it does. A locked row
    /// and refused data say nothing about the rest.
    pub(crate) fn ledger_failed(&self, verb: &'static str, error: &LedgerError) {
        let why = match error {
            LedgerError::Unavailable { .. } => Some("the ledger does not answer"),
            LedgerError::Refused { .. } => Some("the ledger refuses it, see the log"),
            _ => None,
        };
        if let Some(why) = why {
            let mut health = self.ledger_health();
            health.trouble = format!("could not {verb}: {why}");
            health.failed(Instant::now());
            self.ledger_answers.store(false, Ordering::Relaxed);
        }
        self.complain(verb, error);
    }

    /// After an outage in which leases may have run out, whoever takes up such tasks waits a moment: daemons that ended their runs give the
    /// leases back, which counts nothing. Claimed by another daemon before that, each would count as a crash.
    pub(crate) async fn owners_come_first(&self) -> Result<bool, LedgerError> {
        let lease = self.config.lease;
        let was_out = self
            .ledger_health()
            .has_failed_for_long(Instant::now(), lease);
        if was_out {
            self.parts.ledger.sync_clock().await?;
            self.ledger_answered();
        }
        Ok(self.ledger_health().owners_come_first(Instant::now()))
    }

    /// Whether what this statement found out is out of date: it may have waited for an outage to end, so owners come
    /// first, as [`owners_come_first`](Self::owners_come_first) says.
    pub(crate) fn answered_late(&self, asked: Instant) -> bool {
        self.ledger_health()
            .answered_late(asked, Instant::now(), self.config.lease)
    }

    pub(crate) fn ledger_health(&self) -> MutexGuard<'_, LedgerHealth> {
        self.ledger_health
            .lock()
            .expect("nothing panics while holding it")
    }

    /// As [`ledger_failed`](Self::ledger_failed), of what no task waits for: one line per verb and interval.
    pub(crate) fn complain(&self, verb: &'static str, error: &LedgerError) {
        if let Some(held_back) = self.complaints.admit(verb) {
            tracing::error!(%error, held_back, "could not {verb}; trying again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(4);

    #[tokio::test(start_paused = true)]
    async fn after_a_long_outage_owners_come_first_even_if_it_fails_once_more() {
        let mut health = LedgerHealth::default();
        let now = Instant::now();
        health.failed(now);
        let back = now + LEASE;
        health.answered(back, LEASE);
        health.failed(back);
        health.answered(back + Duration::from_millis(10), LEASE);
        assert!(health.owners_come_first(back + OWNERS_FIRST / 2));
        assert!(!health.owners_come_first(back + OWNERS_FIRST));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_took_long_is_the_end_of_an_outage() {
        let mut health = LedgerHealth::default();
        let asked = Instant::now();
        assert!(!health.answered_late(asked, asked + LEASE / 8, LEASE));
        let back = asked + LEASE;
        assert!(health.answered_late(asked, back, LEASE));
        assert!(health.answered_late(back, back + OWNERS_FIRST / 2, LEASE));
        let later = back + OWNERS_FIRST;
        assert!(!health.answered_late(later, later, LEASE));
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_short_failure_nothing_waits() {
        let mut health = LedgerHealth::default();
        let now = Instant::now();
        health.failed(now);
        health.answered(now + LEASE / 8, LEASE);
        assert!(!health.owners_come_first(now + LEASE / 8));
    }
}
