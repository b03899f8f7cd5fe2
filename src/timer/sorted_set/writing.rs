//! Writing entries: of alarms, and over acknowledged requests of programs.

use std::time::Duration;

use super::score::Score;
use super::state::State;
use crate::redis::{EntryAnswer, RedisError, ScoreChange, WriteMode};
use crate::timer::{Acknowledgement, Alarm, Standing};

/// Tasks due within this are expected at once: the look-ahead may find them too late.
const SOON: Duration = Duration::from_secs(2);

/// Most ended tasks that are remembered while their entries cannot be removed. An audit finds the others.
const UNSETTLED_MAX: usize = 65_536;

/// Writes, acknowledges and removes entries.
pub(super) struct Writing<'a>(pub(super) &'a State);

impl Writing<'_> {
    /// Writes entries over any that exist. Returns how many were written.
    pub(super) async fn replace(&self, alarms: &[Alarm]) -> Result<usize, RedisError> {
        let written = self
            .0
            .entries
            .write(alarms.iter(), WriteMode::Replace, self.0.clock.now())
            .await;
        // Not before: the task would end, and its entry would be written after that.
        self.expect_soon(alarms);
        Ok(written?.len())
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

    /// Writes entries that are missing, and moves those whose time has passed. Returns how many were written. While
    /// absence is evidence, a missing entry is reported first.
    pub(super) async fn repair(&self, alarms: &[Alarm]) -> Result<usize, RedisError> {
        let heard = self.0.clock.now();
        let now = Score::own(heard);
        let answers = self
            .0
            .entries
            .write(alarms.iter(), WriteMode::Move { now }, heard)
            .await?;
        let written = answers
            .iter()
            .filter(|answer| **answer == EntryAnswer::Written);
        let written = written.count();
        let missing = alarms.iter().zip(&answers);
        let missing = missing.filter(|(_, answer)| **answer == EntryAnswer::Missing);
        let missing: Vec<Alarm> = missing.map(|(alarm, _)| alarm.clone()).collect();
        if missing.is_empty() {
            return Ok(written);
        }
        let lost = match self.0.absence_counts().await? {
            false => missing,
            true => match self.0.sink() {
                Some(sink) => self.0.absences.report(missing, heard, sink.as_ref()),
                // A daemon has to decide.
                None => Vec::new(),
            },
        };
        let mode = WriteMode::Keep { now };
        let answers = self.0.entries.write(lost.iter(), mode, heard).await?;
        let restored = answers
            .iter()
            .filter(|answer| **answer == EntryAnswer::Written);
        Ok(written + restored.count())
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
                standing,
            } in answers
            {
                let Some((entry, score)) = requests.proposed(key, *requested) else {
                    continue;
                };
                let to = match standing {
                    Standing::Pending(due) => Some(Score::own(*due)),
                    Standing::Ended => None,
                    Standing::Refused => {
                        requests.refused(&entry, score);
                        continue;
                    }
                };
                changes.push(ScoreChange {
                    set: entry.0,
                    member: entry.1.clone(),
                    from: score,
                    to,
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
                    EntryAnswer::Written => requests.answered(&entry, score),
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
            && self.0.absence_counts().await?
        {
            let _ = self.0.absences.report(missing, heard, sink.as_ref());
        }
        Ok(())
    }
}
