//! Alarms as entries of the configured sorted sets: which member in which set, and the commands on them.

use async_trait::async_trait;

use super::score::{MILLISECONDS_FROM, OWN_FROM, Score};
use crate::{
    Commands, Endpoint, EntryAnswer, EntryToTake, LedgerName, Names, Proof, RedisError, Register,
    ScoreChange, ScoredEntry, ScoredSets, TakenEntry, WriteMode,
};
use lapsed_core::clock::LedgerClock;
use lapsed_core::config::{MemberPlace, RedisConfig, SortedSetConfig};
use lapsed_core::task::{Foreign, KeyBucket, Removal, TaskKey, UnixMs};
use lapsed_core::timer::{Alarm, AlarmStore, ArmMode, Armed, Remaining, TimerError};

/// Why an entry is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missed {
    /// Its set has lost it, or it was never written there.
    Lost,
    /// A program has removed it.
    Removed(Removal),
}

/// The evidence of an entry that was found missing.
pub(crate) fn removal(heard: UnixMs, lost_ms: Option<i64>) -> Removal {
    let lost = lost_ms.map(UnixMs);
    Removal { heard, lost }
}

/// Names the entries of tasks, and writes and removes them.
#[derive(Debug)]
pub struct SetEntries {
    config: SortedSetConfig,
    /// The names of the sets in Redis.
    sets: Vec<String>,
    scored: ScoredSets,
    clock: LedgerClock,
}

impl SetEntries {
    /// Does no I/O: the connection is opened on first use.
    ///
    /// # Errors
    /// If the URL cannot be parsed.
    pub fn new(
        redis: &RedisConfig,
        config: SortedSetConfig,
        clock: LedgerClock,
        ledger: LedgerName,
    ) -> Result<Self, RedisError> {
        let commands = Commands::new(Endpoint::new(redis)?);
        Ok(Self::on(commands, redis, config, clock, ledger))
    }

    /// The same on this connection.
    pub fn on(
        commands: Commands,
        redis: &RedisConfig,
        config: SortedSetConfig,
        clock: LedgerClock,
        ledger: LedgerName,
    ) -> Self {
        let name = |key: &String| format!("{}{key}", redis.key_prefix);
        let register = Register::new(Names::new(&redis.key_prefix), ledger, config.scope());
        Self {
            sets: config.keys.iter().map(name).collect(),
            scored: ScoredSets::new(commands, OWN_FROM, Some(register)),
            config,
            clock,
        }
    }

    /// The names of the sets in Redis.
    pub fn sets(&self) -> &[String] {
        &self.sets
    }

    /// Names the sets, and how members and scores are read.
    pub fn scope(&self) -> String {
        let unit = self.config.unit.as_str();
        format!("sorted_set:{}/{unit}", self.config.scope())
    }

    /// The commands.
    pub fn scored(&self) -> &ScoredSets {
        &self.scored
    }

    /// Reads a score.
    pub fn read_score(&self, score: f64) -> Score {
        Score::read(score, self.config.unit)
    }

    /// The score of a request that a program would write for this time.
    pub fn request_score(&self, due: UnixMs) -> f64 {
        Score::request(due, self.config.unit)
    }

    /// Returns the task of a member of the set with this index.
    pub fn key_of(&self, set: usize, member: &[u8]) -> Result<TaskKey, Foreign> {
        self.config.member.key_of(set, member)
    }

    /// Returns the payload of the task of a member, if the member does not follow from its key.
    pub fn payload_of(&self, set: usize, member: &[u8]) -> Option<String> {
        self.config.member.payload_of(set, member)
    }

    /// True if the register has to keep the member of a task.
    pub fn keeps_member(&self, key: &TaskKey) -> bool {
        self.config.member.place_of(key).member.is_empty()
    }

    /// The entry of a task with a score.
    fn entry(&self, key: &TaskKey, score: f64, due: UnixMs) -> ScoredEntry {
        let MemberPlace { set, member, other } = self.config.member.place_of(key);
        let by_bucket = || usize::from(KeyBucket::of(key).number()) % self.sets.len();
        ScoredEntry {
            home: set.unwrap_or_else(by_bucket),
            only: set,
            member,
            other,
            score,
            due_ms: due.0,
        }
    }

    /// Writes the entries of alarms. Returns an answer for each, in order.
    pub async fn write<'a>(
        &self,
        alarms: impl Iterator<Item = &'a Alarm>,
        mode: WriteMode,
        now: UnixMs,
    ) -> Result<Vec<EntryAnswer>, RedisError> {
        let entries = alarms.map(|alarm| {
            // A task that is due when it is armed keeps its due time, by which its entry is removed.
            let overdue = alarm.arming.filter(|_| alarm.due <= now);
            let due = overdue.map_or(alarm.due, |arming| arming.due.min(alarm.due));
            let armed = alarm.arming.map_or(alarm.due, |arming| arming.due);
            self.entry(&alarm.key, Score::own(due), armed)
        });
        let entries: Vec<ScoredEntry> = entries.collect();
        let written = self.scored.write(&self.sets, &entries, mode);
        written.await
    }

    /// Writes entries over any that exist.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn replace(&self, alarms: &[Alarm]) -> Result<Armed, RedisError> {
        let now = self.clock.now();
        let written = self.write(alarms.iter(), WriteMode::Replace, now).await?;
        Ok(Armed {
            written: written.len(),
            ..Armed::default()
        })
    }

    /// Writes entries that are missing, and moves those whose time has passed. `missed` gets the missing ones, and returns
    /// those to write. While daemons with other settings are here, they stay missing.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn repair(
        &self,
        alarms: &[Alarm],
        missed: impl FnOnce(Vec<Alarm>, Missed) -> Vec<Alarm>,
    ) -> Result<Armed, RedisError> {
        let heard = self.clock.now();
        let now = Score::own(heard);
        let mode = WriteMode::Move { now };
        let answers = self.write(alarms.iter(), mode, heard).await?;
        let mut armed = Armed::default();
        let mut missing = Vec::new();
        for (alarm, answer) in alarms.iter().zip(&answers) {
            match answer {
                EntryAnswer::Written => armed.written += 1,
                EntryAnswer::Kept | EntryAnswer::Taken => armed.present += 1,
                EntryAnswer::Missing => missing.push(alarm.clone()),
            }
        }
        if missing.is_empty() {
            return Ok(armed);
        }
        armed.missing = missing.len();
        let lost = match self.proof().await? {
            Proof::Lost => missed(missing, Missed::Lost),
            Proof::Kept { lost_ms } => missed(missing, Missed::Removed(removal(heard, lost_ms))),
            Proof::Shared => Vec::new(),
        };
        let mode = WriteMode::Keep { now };
        let answers = self.write(lost.iter(), mode, heard).await?;
        for answer in &answers {
            armed.missing -= 1;
            match answer {
                EntryAnswer::Written => armed.written += 1,
                _ => armed.present += 1,
            }
        }
        Ok(armed)
    }

    /// Returns whether a missing entry means that a program removed it. Call it after the query whose absence is in
    /// question.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn proof(&self) -> Result<Proof, RedisError> {
        self.scored.proof(&self.sets).await
    }

    /// Changes entries whose score is still the one that was read.
    pub async fn change(&self, changes: &[ScoreChange]) -> Result<Vec<EntryAnswer>, RedisError> {
        self.scored.change(&self.sets, changes).await
    }

    /// Removes our own entries of these alarms, unless they are for a later time.
    pub async fn settle(&self, ended: &[Alarm]) -> Result<(), RedisError> {
        let entries: Vec<ScoredEntry> = ended
            .iter()
            .map(|alarm| self.entry(&alarm.key, Score::own(alarm.due), alarm.due))
            .collect();
        let settled = self.scored.settle(&self.sets, &entries);
        settled.await.map(drop)
    }

    /// Removes the entries of these tasks.
    pub async fn remove(&self, keys: &[TaskKey]) -> Result<(), RedisError> {
        let entries: Vec<ScoredEntry> = keys
            .iter()
            .map(|key| self.entry(key, f64::INFINITY, UnixMs(i64::MAX)))
            .collect();
        let removed = self.scored.remove(&self.sets, &entries);
        removed.await.map(drop)
    }

    /// Takes the entries of tasks that are about to start. Returns what became of each, in order.
    pub async fn take(&self, alarms: &[Alarm], now: UnixMs) -> Result<Vec<TakenEntry>, RedisError> {
        let entries: Vec<EntryToTake> = alarms.iter().map(|alarm| self.to_take(alarm)).collect();
        let unit = self.config.unit.as_str();
        let now = Score::own(now);
        let taken = self
            .scored
            .take(&self.sets, &entries, unit, MILLISECONDS_FROM, now);
        taken.await
    }

    /// Notes that the entries of these tasks are taken for their present armings. Each was taken for an arming due at the time
    /// that is given with it, or was missing.
    pub async fn retake(&self, entries: &[(Option<UnixMs>, Alarm)]) -> Result<(), RedisError> {
        let entries = entries.iter();
        let entries = entries.map(|(taken_for, alarm)| {
            let taken_for_ms = taken_for.map(|due| due.0);
            (taken_for_ms, self.to_take(alarm))
        });
        let entries: Vec<(Option<i64>, EntryToTake)> = entries.collect();
        self.scored.retake(&self.sets, &entries).await
    }

    fn to_take(&self, alarm: &Alarm) -> EntryToTake {
        let MemberPlace { set, member, other } = self.config.member.place_of(&alarm.key);
        EntryToTake {
            due_ms: alarm.arming.map_or(alarm.due, |arming| arming.due).0,
            only: set,
            member,
            other,
        }
    }

    /// Returns what the sets hold for each task, in order: a request of a program before our own entry.
    pub async fn find(&self, keys: &[TaskKey]) -> Result<Vec<Option<Score>>, RedisError> {
        let places: Vec<MemberPlace> = keys
            .iter()
            .map(|key| self.config.member.place_of(key))
            .collect();
        let unknown = places.iter().filter(|place| place.member.is_empty());
        let unknown: Vec<&str> = unknown.filter_map(|place| place.other.as_deref()).collect();
        let mut kept = self.scored.members(&unknown).await?.into_iter();
        // The forms of each task, and the only set that can have each.
        let (mut forms, mut only) = (Vec::new(), Vec::new());
        for MemberPlace { set, member, other } in &places {
            forms.push(match member.is_empty() {
                // One that is not kept is in no set; the key is asked for twice.
                true => kept.next().flatten().unwrap_or_else(|| bytes_of(other)),
                false => member.clone().into_bytes(),
            });
            only.push(*set);
            if other.is_some() {
                forms.push(bytes_of(other));
                only.push(None);
            }
        }
        let mut found: Vec<Option<f64>> = vec![None; forms.len()];
        for (index, set) in self.sets.iter().enumerate() {
            let scores = self.scored.scores(set, &forms).await?;
            for ((found, score), only) in found.iter_mut().zip(scores).zip(&only) {
                let is_its_own = only.is_none_or(|only| only == index);
                *found = lower(*found, score.filter(|_| is_its_own));
            }
        }
        let mut found = found.into_iter();
        let mut next = || found.next().flatten();
        let of_task = places.iter().map(|place| {
            let score = next();
            match place.other {
                Some(_) => lower(score, next()),
                None => score,
            }
        });
        let scores: Vec<Option<f64>> = of_task.collect();
        let read = |score: Option<f64>| score.map(|score| self.read_score(score));
        Ok(scores.into_iter().map(read).collect())
    }
}

#[async_trait]
impl AlarmStore for SetEntries {
    async fn arm(&self, alarms: &[Alarm], mode: ArmMode) -> Result<Armed, TimerError> {
        let armed = match mode {
            ArmMode::Replace => self.replace(alarms).await,
            // Whether a program has removed them, a daemon has to decide.
            ArmMode::IfMissing => {
                let lost = |missing, missed| match missed {
                    Missed::Lost => missing,
                    Missed::Removed(_) => Vec::new(),
                };
                self.repair(alarms, lost).await
            }
        };
        armed.map_err(|error| failed("cannot write entries", error))
    }

    async fn disarm(&self, keys: &[TaskKey]) -> Result<(), TimerError> {
        let removed = self.remove(keys).await;
        removed.map_err(|error| failed("cannot remove entries", error))
    }

    async fn remaining(&self, keys: &[TaskKey]) -> Result<Vec<Remaining>, TimerError> {
        let found = self.find(keys).await;
        let found = found.map_err(|error| failed("cannot query entries", error))?;
        let now = self.clock.now();
        let remaining = |score: Option<Score>| match score {
            None => Remaining::Missing,
            Some(Score::Never) => Remaining::Forever,
            Some(Score::RequestNow) => Remaining::Ms(0),
            Some(Score::Own(due) | Score::Request(due)) => {
                Remaining::Ms(due.since(now).as_millis() as u64)
            }
        };
        Ok(found.into_iter().map(remaining).collect())
    }
}

/// The error of a command.
pub(crate) fn failed(what: &'static str, error: RedisError) -> TimerError {
    let passes = error.is_transient();
    let what = match error.is_wrong_type() {
        true => format!("{what}: a key of `sorted_set.keys` is not a sorted set"),
        false => what.to_owned(),
    };
    let error = TimerError::new(what, error);
    if passes { error } else { error.lasting() }
}

fn bytes_of(text: &Option<String>) -> Vec<u8> {
    text.as_deref().unwrap_or_default().as_bytes().to_vec()
}

/// The lower of two scores, if any. A request of a program is lower than an entry of our own.
fn lower(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
