//! What the engine tells people: counts and outages.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use super::Shared;
use crate::ledger::{Catalog, LedgerError, SurveyLimits};

/// How often tasks are counted for the metrics, if counting is quick.
const COUNT_EVERY: Duration = Duration::from_secs(15);

/// Counting may take a hundredth of the time.
const COUNT_SHARE: u32 = 100;

/// How long sweeps wait after an outage.
const OWNERS_FIRST: Duration = Duration::from_millis(1500);

/// What is known of an outage of the ledger.
#[derive(Debug, Default)]
pub(super) struct LedgerHealth {
    /// What it did not do last, for people.
    pub trouble: String,
    /// Since when it has done nothing.
    failing_since: Option<Instant>,
    /// Until when no sweep is made after one.
    owners_first_until: Option<Instant>,
}

impl Shared {
    /// Keeps the gauges of tasks by state fresh, as often as counting is cheap. Each daemon asks how long the oldest
    /// overdue task has waited; one of them counts.
    pub(super) async fn count_tasks_until_stopped(self: Arc<Self>) {
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
    pub(super) async fn count_waiting_until_stopped(self: Arc<Self>) {
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

    pub(super) fn ledger_answered(&self) {
        let mut health = self.ledger_health();
        if let Some(since) = health.failing_since.take() {
            let may_have_lost_leases = since.elapsed() >= self.config.lease / 4;
            health.owners_first_until = may_have_lost_leases.then(|| Instant::now() + OWNERS_FIRST);
        }
        drop(health);
        if !self.ledger_answers.swap(true, Ordering::Relaxed) {
            tracing::info!("the ledger answers again");
            // Leases ran out meanwhile.
            self.recovery.scan();
        }
    }

    /// The ledger did not do what the engine asked and asks again: the daemon is not ready until it does. A locked row
    /// and refused data say nothing about the rest.
    pub(super) fn ledger_failed(&self, verb: &'static str, error: &LedgerError) {
        let why = match error {
            LedgerError::Unavailable { .. } => Some("the ledger does not answer"),
            LedgerError::Refused { .. } => Some("the ledger refuses it, see the log"),
            _ => None,
        };
        if let Some(why) = why {
            let mut health = self.ledger_health();
            health.trouble = format!("could not {verb}: {why}");
            health.failing_since.get_or_insert_with(Instant::now);
            self.ledger_answers.store(false, Ordering::Relaxed);
        }
        self.complain(verb, error);
    }

    /// After an outage in which leases may have run out, whoever takes up such tasks waits a moment: daemons that ended their runs give the
    /// leases back, which counts nothing. Claimed by another daemon before that, each would count as a crash.
    pub(super) async fn owners_come_first(&self) -> Result<bool, LedgerError> {
        let began = self.ledger_health().failing_since;
        if began.is_some_and(|began| began.elapsed() >= self.config.lease / 4) {
            self.parts.ledger.sync_clock().await?;
            self.ledger_answered();
        }
        let until = self.ledger_health().owners_first_until;
        Ok(until.is_some_and(|until| Instant::now() < until))
    }

    pub(super) fn ledger_health(&self) -> MutexGuard<'_, LedgerHealth> {
        self.ledger_health
            .lock()
            .expect("nothing panics while holding it")
    }

    /// As [`ledger_failed`](Self::ledger_failed), of what no task waits for: one line per verb and interval.
    pub(super) fn complain(&self, verb: &'static str, error: &LedgerError) {
        if let Some(held_back) = self.complaints.admit(verb) {
            tracing::error!(%error, held_back, "could not {verb}; trying again");
        }
    }
}
