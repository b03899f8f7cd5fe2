//! Writing entries: of alarms, and over acknowledged requests of programs.

use std::time::Duration;

use super::state::State;
use crate::alarms::Score;
use crate::alarms::set_entries::{Missed, removal};
use crate::{EntryAnswer, Proof, RedisError, ScoreChange, TakenEntry};
use lapsed_core::task::{DELAY_MAX, UnixMs};
use lapsed_core::timer::{
    Acknowledgement, AdoptionCandidate, Alarm, Armed, EntryState, Seen, Taking,
};

/// Tasks due within this are expected at once: the look-ahead may find them too late.
const SOON: Duration = Duration::from_secs(2);

/// An entry that is due within this is taken: clocks differ a little.
const TOLERANCE: Duration = Duration::from_millis(250);

/// Most ended tasks that are remembered while their entries cannot be removed. An audit finds the others.
const UNSETTLED_MAX: usize = 65_536;

/// Writes, acknowledges and removes entries.
pub(super) struct Writing<'a>(pub(super) &'a State);

impl Writing<'_> {
    /// Writes entries over any that exist.
    pub(super) async fn replace(&self, alarms: &[Alarm]) -> Result<Armed, RedisError> {
        let armed = self.0.entries.replace(alarms).await;
        // Not before: the task would end, and its entry would be written after that.
        self.expect_soon(alarms);
        armed
    }

    /// Has the signals of tasks that this process creates and runs raised when they are due, however short their delay.
    fn expect_soon(&self, alarms: &[Alarm]) {
        let Some(sink) = self.0.sink() else { return };
        let soon = self.0.clock.now().plus(SOON);
        let ours =
            |alarm: &&Alarm| alarm.due <= soon && sink.wants(&alarm.key) && sink.owns(&alarm.key);
        let ours: Vec<Alarm> = alarms.iter().filter(ours).cloned().collect();
        if !ours.is_empty() {
            self.0.expect(ours);
        }
    }

    /// Writes entries that are missing. Those that a program may have removed are reported to the engine first.
    pub(super) async fn repair(&self, alarms: &[Alarm]) -> Result<Armed, RedisError> {
        let absences = &self.0.absences;
        let report = |missing: Vec<Alarm>, missed| match (missed, self.0.sink()) {
            (Missed::Lost, _) => {
                absences.forget(&missing);
                missing
            }
            (Missed::Removed(removal), Some(sink)) => {
                absences.report(missing, removal, sink.as_ref())
            }
            (Missed::Removed(_), None) => Vec::new(),
        };
        self.0.entries.repair(alarms, report).await
    }

    /// Writes entries that sets have lost.
    pub(super) async fn restore(&self, lost: &[Alarm]) -> Result<(), RedisError> {
        self.0.entries.repair(lost, |missing, _| missing).await?;
        self.0.absences.forget(lost);
        Ok(())
    }

    /// Takes the entries of tasks that are about to start.
    pub(super) async fn take(&self, alarms: &[Alarm]) -> Result<Vec<Taking>, RedisError> {
        let heard = self.0.clock.now();
        let taken = self.0.entries.take(alarms, heard.plus(TOLERANCE)).await?;
        let answers = alarms.iter().zip(taken).map(|(alarm, taken)| match taken {
            TakenEntry::Taken => Taking::Taken,
            TakenEntry::Removed { lost_ms } => Taking::Removed(removal(heard, lost_ms)),
            TakenEntry::Unknown => Taking::Unknown,
            TakenEntry::Later(score) => match self.0.entries.read_score(score) {
                Score::Request(due) if due <= heard.plus(DELAY_MAX) => {
                    self.propose_moved(alarm, due, heard)
                }
                _ => Taking::Unknown,
            },
        });
        Ok(answers.collect())
    }

    /// Has the engine move a task to the later time that a program wrote, before the look finds it.
    fn propose_moved(&self, alarm: &Alarm, due: UnixMs, heard: UnixMs) -> Taking {
        let Some(sink) = self.0.sink().filter(|sink| sink.adopts(&alarm.key)) else {
            return Taking::Unknown;
        };
        let seen = Seen::Requested { due, heard };
        sink.propose(AdoptionCandidate::of_key(alarm.key.clone(), seen));
        Taking::Moved
    }

    /// Removes the entries of ended tasks. Those that could not be removed are remembered, as far as there is room.
    pub(super) async fn settle(&self, ended: &[Alarm]) -> Result<(), RedisError> {
        let settled = self.0.entries.settle(ended).await;
        if settled.is_err() {
            let mut unsettled = self.0.unsettled();
            let room = UNSETTLED_MAX.saturating_sub(unsettled.len());
            unsettled.extend(ended.iter().take(room).cloned());
        }
        settled
    }

    /// Tries again to remove the entries of ended tasks.
    pub(super) async fn settle_rest(&self) -> Result<(), RedisError> {
        let rest = std::mem::take(&mut *self.0.unsettled());
        self.settle(&rest).await
    }

    /// Answers requests of programs.
    pub(super) async fn acknowledge(&self, answers: &[Acknowledgement]) -> Result<(), RedisError> {
        let (mut changes, mut asked) = (Vec::new(), Vec::new());
        {
            let mut requests = self.0.requests();
            for Acknowledgement {
                key,
                requested,
                state,
            } in answers
            {
                let Some((entry, score)) = requests.proposed(key, *requested) else {
                    continue;
                };
                let (to, due) = match state {
                    EntryState::Pending(due) => (Some(Score::own(*due)), *due),
                    EntryState::Ended => (None, *requested),
                    EntryState::Refused => {
                        requests.refused(&entry, score);
                        continue;
                    }
                    EntryState::Unclear => {
                        requests.unclear(&entry, score);
                        continue;
                    }
                };
                changes.push(ScoreChange {
                    set: entry.0,
                    member: entry.1.clone(),
                    from: score,
                    to,
                    key: key.as_str().to_owned(),
                    due_ms: due.0,
                    keeps_member: self.0.entries.keeps_member(key),
                });
                asked.push((key, *requested, entry, score));
            }
        }
        let heard = self.0.clock.now();
        let answers = self.0.entries.change(&changes).await?;
        let mut missing = Vec::new();
        {
            let mut requests = self.0.requests();
            for ((key, due, entry, score), answer) in asked.into_iter().zip(answers) {
                match answer {
                    EntryAnswer::Written | EntryAnswer::Taken => {
                        requests.answered(&entry, score);
                    }
                    EntryAnswer::Kept => {}
                    EntryAnswer::Missing => {
                        requests.forget(&entry);
                        missing.push(Alarm {
                            key: key.clone(),
                            due,
                            arming: None,
                        });
                    }
                }
            }
        }
        // A program has removed them meanwhile.
        if !missing.is_empty()
            && let Some(sink) = self.0.sink()
            && let Proof::Kept { lost_ms } = self.0.entries.proof().await?
        {
            let removal = removal(heard, lost_ms);
            let _ = self.0.absences.report(missing, removal, sink.as_ref());
        }
        Ok(())
    }
}
