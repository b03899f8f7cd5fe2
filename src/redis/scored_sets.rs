//! Sorted sets of entries: a member names a task, its score is a due time.
//!
//! Scripts compare and write in one step, because programs change the same entries. A script marks entries that it
//! removes with the score [`REMOVED`], and then removes that score: the keyspace event `zrem` is left to programs.
//!
//! Beside the sets there is a hash, the *register*. It shows whether a missing entry was removed by a program: see
//! decision 46.

mod register;
mod scripts;

use redis::Pipeline;

pub use self::register::{EntryToTake, Held, Proof, Register, TakenEntry};
use self::scripts::{CHANGE, FIRST_ARGS, PRELUDE, REMOVE, REMOVED, WRITE};
use super::{Commands, RedisError};

/// Most entries of one script, which blocks the server for about a millisecond.
const SCRIPT_BATCH: usize = 500;

/// Most members of one query.
const QUERY_BATCH: usize = 1000;

/// An entry of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoredEntry {
    /// Index of the set in which it is written if it is in none.
    pub home: usize,
    /// Index of the only set in which `member` is this task; `None`: all.
    pub only: Option<usize>,
    /// Its member. Empty: the register has it, under the key in `other`.
    pub member: String,
    /// Another member that means the same task.
    pub other: Option<String>,
    /// Its due time as a score. For a removal: the highest score that is removed.
    pub score: f64,
    /// Due time of the arming in milliseconds. For a removal: of the latest arming that has ended.
    pub due_ms: i64,
}

/// How to treat an entry that exists.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WriteMode {
    /// Overwrite it.
    Replace,
    /// Keep it, unless it is our own and was due by this score: its arming is over.
    Keep {
        /// Now, as a score.
        now: f64,
    },
    /// As `Keep`, and write no entry that is missing.
    Move {
        /// Now, as a score.
        now: f64,
    },
}

/// The result of writing or changing an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryAnswer {
    /// It was written.
    Written,
    /// It exists with another score, or was taken for another arming, and was kept.
    Kept,
    /// It was taken for a start, and counts as taken for this arming.
    Taken,
    /// It is missing, and was not written.
    Missing,
}

/// A change of the score that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreChange {
    /// Index of the set.
    pub set: usize,
    /// The member, as it was read.
    pub member: Vec<u8>,
    /// The score that was read.
    pub from: f64,
    /// The new score; `None` removes the entry.
    pub to: Option<f64>,
    /// The key of the task.
    pub key: String,
    /// Due time of the arming in milliseconds.
    pub due_ms: i64,
    /// Whether the register has to keep the member, because it does not follow from the key.
    pub keeps_member: bool,
}

/// Commands on sorted sets of entries. Clones share the connection.
///
/// `sets` are names in Redis. Scores from `own_from` on are written by lapsed; programs write lower ones.
///
/// # Errors
/// Each method fails if Redis refuses a command, or does not answer: its changes may then have been made in part.
#[derive(Debug, Clone)]
pub struct ScoredSets {
    commands: Commands,
    own_from: f64,
    register: Option<Register>,
}

impl ScoredSets {
    /// Does no I/O. Without a register nothing is proved or taken.
    pub fn new(commands: Commands, own_from: f64, register: Option<Register>) -> Self {
        Self {
            commands,
            own_from,
            register,
        }
    }

    /// Writes entries. Returns an answer for each, in order.
    pub async fn write(
        &self,
        sets: &[String],
        entries: &[ScoredEntry],
        mode: WriteMode,
    ) -> Result<Vec<EntryAnswer>, RedisError> {
        let (word, now) = match mode {
            WriteMode::Replace => ("replace", 0.0),
            WriteMode::Keep { now } => ("keep", now),
            WriteMode::Move { now } => ("move", now),
        };
        let mut answers = Vec::with_capacity(entries.len());
        for batch in entries.chunks(SCRIPT_BATCH) {
            let mut script = self.script(WRITE, sets);
            let command = script.arg(word).arg(text(now));
            for entry in batch {
                command.arg(entry.home + 1).arg(text(entry.score));
                add_place(command, entry.only, &entry.member, &entry.other);
                command.arg(entry.due_ms);
            }
            let (batch,): (Vec<i64>,) = self.send(script).await?;
            answers.extend(batch.into_iter().map(EntryAnswer::of));
        }
        Ok(answers)
    }

    /// Changes entries whose score is still the one that was read. Returns an answer for each, in order.
    pub async fn change(
        &self,
        sets: &[String],
        changes: &[ScoreChange],
    ) -> Result<Vec<EntryAnswer>, RedisError> {
        let mut answers = Vec::with_capacity(changes.len());
        for batch in changes.chunks(SCRIPT_BATCH) {
            let mut script = self.script(CHANGE, sets);
            for ScoreChange {
                set,
                member,
                from,
                to,
                key,
                due_ms,
                keeps_member,
            } in batch
            {
                script.arg(set + 1).arg(member).arg(text(*from));
                script.arg(to.map(text).unwrap_or_default());
                script.arg(key).arg(due_ms);
                script.arg(if *keeps_member { "keep" } else { "" });
            }
            let (batch,): (Vec<i64>,) = self.send(script).await?;
            answers.extend(batch.into_iter().map(EntryAnswer::of));
        }
        Ok(answers)
    }

    /// Removes our own entries whose score is not higher than the given one. Returns how many were there.
    pub async fn settle(
        &self,
        sets: &[String],
        entries: &[ScoredEntry],
    ) -> Result<u64, RedisError> {
        self.remove_from(self.own_from, sets, entries).await
    }

    /// Removes entries whose score is not higher than the given one, those of programs too. Returns how many were there.
    pub async fn remove(
        &self,
        sets: &[String],
        entries: &[ScoredEntry],
    ) -> Result<u64, RedisError> {
        self.remove_from(f64::NEG_INFINITY, sets, entries).await
    }

    async fn remove_from(
        &self,
        lowest: f64,
        sets: &[String],
        entries: &[ScoredEntry],
    ) -> Result<u64, RedisError> {
        let mut removed = 0;
        for batch in entries.chunks(SCRIPT_BATCH) {
            let mut script = self.script(REMOVE, sets);
            let command = script.arg(text(lowest));
            for entry in batch {
                command.arg(text(entry.score));
                add_place(command, entry.only, &entry.member, &entry.other);
                command.arg(entry.due_ms);
            }
            let (count,): (u64,) = self.send(script).await?;
            removed += count;
        }
        Ok(removed)
    }

    /// Returns at most `limit` entries with `from <= score < below`, in order of score, after the first `skip`.
    pub async fn range(
        &self,
        set: &str,
        from: f64,
        below: f64,
        skip: usize,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, f64)>, RedisError> {
        let mut range = redis::pipe();
        range.cmd("ZRANGEBYSCORE").arg(set).arg(text(from));
        range.arg(format!("({}", text(below)));
        range.arg("WITHSCORES").arg("LIMIT").arg(skip).arg(limit);
        let (entries,) = self.commands.send("ZRANGEBYSCORE", &range).await?;
        Ok(entries)
    }

    /// Returns the number of entries with `from <= score < below`.
    pub async fn count(&self, set: &str, from: f64, below: f64) -> Result<u64, RedisError> {
        let mut count = redis::pipe();
        count.cmd("ZCOUNT").arg(set).arg(text(from));
        count.arg(format!("({}", text(below)));
        let (count,) = self.commands.send("ZCOUNT", &count).await?;
        Ok(count)
    }

    /// Returns the number of entries of each range of scores, both ends included, in order.
    pub async fn counts(&self, set: &str, ranges: &[(f64, f64)]) -> Result<Vec<u64>, RedisError> {
        let mut counts = Vec::with_capacity(ranges.len());
        for batch in ranges.chunks(QUERY_BATCH) {
            let mut query = redis::pipe();
            for (from, to) in batch {
                query.cmd("ZCOUNT").arg(set).arg(text(*from)).arg(text(*to));
            }
            let batch: Vec<u64> = self.commands.send("ZCOUNT", &query).await?;
            counts.extend(batch);
        }
        Ok(counts)
    }

    /// Returns the score of each member in a set, in order; `None` for a missing one.
    pub async fn scores(
        &self,
        set: &str,
        members: &[Vec<u8>],
    ) -> Result<Vec<Option<f64>>, RedisError> {
        let mut scores = Vec::with_capacity(members.len());
        for batch in members.chunks(QUERY_BATCH) {
            let mut query = redis::pipe();
            query.cmd("ZMSCORE").arg(set).arg(batch);
            let (batch,): (Vec<Option<f64>>,) = self.commands.send("ZMSCORE", &query).await?;
            scores.extend(batch);
        }
        Ok(scores)
    }

    fn register_name(&self) -> String {
        let name = self.register.as_ref();
        name.map_or_else(String::new, |register| {
            register.names.sets(register.ledger.text())
        })
    }

    /// Starts a call of a script with these sets as its keys. `EVAL` rather than `EVALSHA`: the text is small next to its
    /// arguments, and no server has to know it.
    fn script(&self, text: &str, sets: &[String]) -> Pipeline {
        let scope = self.register.as_ref().map(|register| &*register.scope);
        let first: [String; FIRST_ARGS] = [
            self.register_name(),
            scope.unwrap_or_default().to_owned(),
            self::text(self.own_from),
        ];
        let mut pipeline = redis::pipe();
        let text = format!("{PRELUDE}{text}").replace("REMOVED", REMOVED);
        pipeline.cmd("EVAL").arg(text).arg(sets.len()).arg(sets);
        pipeline.arg(&first[..]);
        pipeline
    }

    async fn send<T: redis::FromRedisValue>(&self, script: Pipeline) -> Result<T, RedisError> {
        self.commands.send("EVAL", &script).await
    }
}

/// Adds what scripts need to find an entry: the only set of its member or 0, the member, and its other form or an empty text.
fn add_place(script: &mut Pipeline, only: Option<usize>, member: &str, other: &Option<String>) {
    script.arg(only.map_or(0, |index| index + 1)).arg(member);
    script.arg(other.as_deref().unwrap_or_default());
}

impl EntryAnswer {
    fn of(answer: i64) -> Self {
        match answer {
            1 => Self::Written,
            0 => Self::Kept,
            2 => Self::Taken,
            _ => Self::Missing,
        }
    }
}

/// A score as Redis reads it: the shortest text that is the same number, or `inf`.
fn text(score: f64) -> String {
    score.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_is_written_as_the_same_number() {
        let told = [
            (1_603_620_459_000_001.0, "1603620459000001"),
            (1_603_620_459.25, "1603620459.25"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (1e14, "100000000000000"),
        ];
        for (score, written) in told {
            assert_eq!(text(score), written);
            assert_eq!(written.parse::<f64>().unwrap(), score);
        }
    }
}
