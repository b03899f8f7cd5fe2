//! Entries of tasks that are about to start. A program cancels a task by removing its entry, and is told whether that
//! succeeded. So the entry is taken before the task is claimed: it is removed by the program, or by this daemon.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::reports::{Reporter, TaskCancelledByKey, many_cancelled_by_key};
use crate::ledger::{Adoption, CancelByKey, CancelByKeyAnswer, Claim, Claims, LedgerError, Lookup};
use crate::task::{Removal, TaskKey, UnixMs};
use crate::telemetry::DropReason;
use crate::timer::{Alarm, Entries, Signal, Taking};

/// Timeout for taking entries. Tasks start without it.
const TAKE_TIMEOUT: Duration = Duration::from_secs(2);

/// Takes the entries of tasks before they are claimed.
pub struct EntryRemover {
    pub entries: Option<Arc<dyn Entries>>,
    pub claims: Arc<dyn Claims>,
    pub adoption: Arc<dyn Adoption>,
    pub reporter: Arc<Reporter>,
}

impl EntryRemover {
    /// Takes the entries of due tasks whose rows are known. Cancels the tasks whose entries were removed, and drops their
    /// signals and those of tasks that are about to be moved.
    ///
    /// # Errors
    /// The ledger does not answer.
    pub async fn take(&self, due: &mut Vec<Signal>) -> Result<(), LedgerError> {
        let Some(entries) = self
            .entries
            .as_ref()
            .filter(|entries| entries.counts_absence(None))
        else {
            return Ok(());
        };
        let alarms: Vec<Alarm> = due.iter().filter_map(alarm).collect();
        let took = entries.take(&alarms);
        let taken = match tokio::time::timeout(TAKE_TIMEOUT, took).await {
            Ok(Ok(taken)) => taken,
            Ok(Err(error)) => {
                if let Some(held_back) = self.reporter.failures.admit("take entries") {
                    tracing::warn!(%error, held_back, "could not take the entries of due tasks: they start all the same");
                }
                return Ok(());
            }
            Err(_) => return Ok(()),
        };
        let (mut removed, mut stay) = (Vec::new(), HashSet::new());
        for (alarm, taking) in alarms.into_iter().zip(taken) {
            match (taking, alarm.arming) {
                (Taking::Removed(missing), Some(_)) => removed.push((alarm, missing)),
                (Taking::Moved, _) => {
                    stay.insert(alarm.key);
                }
                (Taking::Removed(_) | Taking::Taken | Taking::Unknown, _) => {}
            }
        }
        let missing: Vec<Alarm> = removed.iter().map(|(alarm, _)| alarm.clone()).collect();
        stay.extend(self.cancel_removed(removed).await?);
        let starts = missing.into_iter();
        let starts = starts.filter(|alarm| !stay.contains(&alarm.key));
        self.note_taken(starts.map(|alarm| (None, alarm)).collect())
            .await;
        if !stay.is_empty() {
            due.retain(|signal| !stay.contains(&signal.key));
        }
        Ok(())
    }

    /// Notes for which armings entries were taken that were taken for an older one: their tasks were moved while a signal
    /// waited for a slot. Without it the absence of the entry would count as a removal when the run has failed.
    pub async fn retake(&self, due: &[Signal], claims: &[Claim]) {
        let entries = self.entries.as_ref();
        if !entries.is_some_and(|entries| entries.counts_absence(None)) {
            return;
        }
        let taken_for: HashMap<&TaskKey, UnixMs> = due
            .iter()
            .filter_map(|signal| Some((&signal.key, signal.arming?.due)))
            .collect();
        let moved = claims.iter().filter_map(|claim| {
            let arming = claim.lease.arming;
            let taken_for = *taken_for.get(&claim.key)?;
            (taken_for != arming.due).then(|| {
                let alarm = Alarm {
                    key: claim.key.clone(),
                    due: arming.due,
                    arming: Some(arming),
                };
                (Some(taken_for), alarm)
            })
        });
        self.note_taken(moved.collect()).await;
    }

    /// Notes that these entries are taken: see [`Entries::retake`].
    async fn note_taken(&self, taken: Vec<(Option<UnixMs>, Alarm)>) {
        let Some(entries) = self.entries.as_ref().filter(|_| !taken.is_empty()) else {
            return;
        };
        let noted = tokio::time::timeout(TAKE_TIMEOUT, entries.retake(&taken)).await;
        if let Ok(Err(error)) = noted
            && let Some(held_back) = self.reporter.failures.admit("take entries")
        {
            tracing::warn!(%error, held_back, "could not note that entries are taken");
        }
    }

    /// Cancels tasks whose entries were removed, if these entries were seen before. Returns the keys of those that do not
    /// start: the cancelled ones, and those whose rows are locked.
    async fn cancel_removed(
        &self,
        removed: Vec<(Alarm, Removal)>,
    ) -> Result<Vec<TaskKey>, LedgerError> {
        if removed.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<TaskKey> = removed.iter().map(|(alarm, _)| alarm.key.clone()).collect();
        let rows = self.claims.look_up(&keys).await?;
        let (mut missing, mut cancellations) = (Vec::new(), Vec::new());
        for ((alarm, removal), row) in removed.into_iter().zip(rows) {
            let of_arming = row.filter(|row| Some(row.arming) == alarm.arming);
            let is_cancelled = |row: &Lookup| {
                let waits = row.state.is_pending() && row.booked().is_from_key();
                waits && row.is_removed_with_entry(removal)
            };
            if let Some(over) = of_arming.filter(is_cancelled) {
                missing.push(alarm.key);
                let heard = removal.heard;
                cancellations.push(CancelByKey { over, heard });
            }
        }
        let answers = self
            .adoption
            .cancel_by_key(&cancellations, Duration::ZERO)
            .await?;
        let (mut stay, mut cancelled) = (Vec::new(), 0);
        for (key, answer) in missing.into_iter().zip(answers) {
            match answer {
                CancelByKeyAnswer::Cancelled => {
                    TaskCancelledByKey { key: &key }.emit(&self.reporter);
                    self.reporter.metrics.dropped(DropReason::Cancelled, 1);
                    cancelled += 1;
                    stay.push(key);
                }
                // The sweep finds it, and it is cancelled then.
                CancelByKeyAnswer::Locked => stay.push(key),
                CancelByKeyAnswer::Left => {}
            }
        }
        many_cancelled_by_key(&self.reporter, cancelled);
        Ok(stay)
    }
}

fn alarm(signal: &Signal) -> Option<Alarm> {
    let arming = signal.arming?;
    Some(Alarm {
        key: signal.key.clone(),
        due: arming.due,
        arming: Some(arming),
    })
}
