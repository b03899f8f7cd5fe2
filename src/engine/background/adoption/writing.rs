//! Writes the rows of adopted keys, and tells the timer of them.

use std::time::Duration;

use super::{Adopter, Wanted, acknowledgement};
use crate::engine::reports::{KeyAdopted, KeyRefused, KeyUnfit};
use crate::ledger::{Adopted, AdoptionRequest, LedgerError};
use crate::task::{Arming, TaskKey};
use crate::telemetry::DropReason;
use crate::timer::{Acknowledgement, AdoptionCandidate, Alarm, EntryState, Signal, Source};

/// Delay before a row that another session has locked is tried again.
pub(super) const LOCKED_PAUSE: Duration = Duration::from_secs(1);

impl Adopter {
    /// Writes rows. Returns the number written, and the candidates to be compared again because their rows have
    /// changed.
    pub(super) async fn write_wanted(
        &self,
        wanted: Vec<Wanted>,
    ) -> Result<(usize, Vec<AdoptionCandidate>), LedgerError> {
        if wanted.is_empty() {
            return Ok((0, Vec::new()));
        }
        let rows: Vec<AdoptionRequest> = wanted.iter().map(|wanted| wanted.row.clone()).collect();
        let answers = self.adoption.adopt(&rows).await?;
        let (mut armings, mut locked, mut overtaken) = (Vec::new(), Vec::new(), Vec::new());
        let mut untried = Vec::new();
        let mut answered = Vec::new();
        for (wanted, answer) in wanted.into_iter().zip(answers) {
            let Wanted {
                candidate,
                row,
                reason,
                recheck: _,
            } = wanted;
            match answer {
                Adopted::Written(arming) => {
                    KeyAdopted { row: &row, reason }.emit(&self.reporter);
                    answered.push(acknowledgement(&candidate, EntryState::Pending(arming.due)));
                    armings.push((row.key, arming));
                }
                Adopted::Overtaken => {
                    self.reporter.metrics.dropped(DropReason::Overtaken, 1);
                    overtaken.push(candidate);
                }
                Adopted::Locked => locked.push(candidate),
                Adopted::Untried => untried.push(candidate),
                Adopted::Unfit(why) => {
                    answered.push(acknowledgement(&candidate, EntryState::Refused));
                    KeyUnfit {
                        key: &candidate.key,
                        why: &why,
                    }
                    .emit(&self.reporter)
                }
                Adopted::Refused(error) => {
                    answered.push(acknowledgement(&candidate, EntryState::Refused));
                    KeyRefused { error: &error }.emit(&self.reporter)
                }
            }
        }
        let written = armings.len();
        self.acknowledge(answered.into_iter().flatten().collect())
            .await;
        self.expect_adopted(armings);
        if !locked.is_empty() {
            self.candidates.put_back(locked, LOCKED_PAUSE);
        }
        if !untried.is_empty() {
            self.candidates.put_back(untried, Duration::ZERO);
        }
        Ok((written, overtaken))
    }

    /// Answers entries of programs. Entries without an answer are proposed again.
    pub(super) async fn acknowledge(&self, entries: Vec<Acknowledgement>) {
        if let Some(timer) = self.entries.as_ref().filter(|_| !entries.is_empty())
            && let Err(error) = timer.acknowledge(&entries).await
        {
            tracing::debug!(%error, entries = entries.len(), "could not acknowledge entries: they are proposed again");
        }
    }

    /// Writes entries that their sets have lost.
    pub(super) async fn restore(&self, lost: Vec<Alarm>) {
        if let Some(timer) = self.entries.as_ref().filter(|_| !lost.is_empty())
            && let Err(error) = timer.restore(&lost).await
        {
            tracing::debug!(%error, entries = lost.len(), "could not write lost entries: an audit finds them missing again");
        }
    }

    /// Has the timer expect adopted tasks due soon, and signals due ones. Their keys are armed already; the look-ahead
    /// handles tasks that are due later.
    fn expect_adopted(&self, armings: Vec<(TaskKey, Arming)>) {
        let now = self.clock.now();
        let horizon = now.plus(self.horizon);
        let mut soon = Vec::new();
        for (key, arming) in armings {
            let (due, arming) = (arming.due, Some(arming));
            if due <= now {
                let source = Source::Direct;
                self.queue.push(Signal::new(key, source, arming));
            } else if due <= horizon {
                soon.push(Alarm { key, due, arming });
            }
        }
        if !soon.is_empty() {
            self.timer.expect(soon);
        }
    }
}
