//! What the engine tells people: counts and outages.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::Shared;
use crate::ledger::LedgerError;

/// How often tasks are counted for the metrics, if counting is quick.
const COUNT_EVERY: Duration = Duration::from_secs(15);

/// Counting may take a hundredth of the time.
const COUNT_SHARE: u32 = 100;

impl Shared {
    /// Keeps the gauges of tasks by state fresh, as often as counting is cheap.
    pub(super) async fn count_tasks_until_stopped(self: Arc<Self>) {
        let Some(catalog) = self.parts.catalog.clone() else {
            return;
        };
        let work = async {
            loop {
                let asked = Instant::now();
                match catalog.stats().await {
                    Ok(stats) => self.parts.metrics.counted(&stats),
                    Err(error) => self.complain("count tasks", &error),
                }
                tokio::time::sleep(COUNT_EVERY.max(asked.elapsed() * COUNT_SHARE)).await;
            }
        };
        self.stopping.run_until_cancelled(work).await;
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
            let trouble = format!("could not {verb}: {why}");
            *self
                .ledger_trouble
                .lock()
                .expect("nothing panics while holding it") = trouble;
            self.ledger_answers.store(false, Ordering::Relaxed);
        }
        self.complain(verb, error);
    }

    /// As [`ledger_failed`](Self::ledger_failed), of what no task waits for: one line per verb and interval.
    pub(super) fn complain(&self, verb: &'static str, error: &LedgerError) {
        if let Some(held_back) = self.complaints.admit(verb) {
            tracing::error!(%error, held_back, "could not {verb}; trying again");
        }
    }
}
