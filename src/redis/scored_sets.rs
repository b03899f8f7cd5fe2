//! Sorted sets of entries: a member names a task, its score is a due time.
//!
//! Scripts compare and write in one step, because programs change the same entries. A script marks entries that it
//! removes with the score [`REMOVED`], and then removes that score: the keyspace event `zrem` is left to programs.

mod scripts;

use redis::Pipeline;

use self::scripts::{CHANGE, MARK, REMOVE, REMOVED, WRITE};
use super::{Commands, RedisError};

/// Most entries of one script, which blocks the server for about a millisecond.
const SCRIPT_BATCH: usize = 500;

/// Most members of one query.
const QUERY_BATCH: usize = 1000;

/// Prefix of a mark. No task key begins with it.
const MARK_PREFIX: &str = "#lapsed:";

/// Most members with the score of a mark that are read.
const MARKS_MAX: usize = 16;

/// An entry of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoredEntry {
    /// Index of the set in which it is written if it is in none.
    pub home: usize,
    /// Its member.
    pub member: String,
    /// Another member that means the same task.
    pub other: Option<String>,
    /// Its due time as a score. For a removal: the highest score that is removed.
    pub score: f64,
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
    /// It exists with another score, and was kept.
    Kept,
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
}

impl ScoredSets {
    /// Does no I/O.
    pub fn new(commands: Commands, own_from: f64) -> Self {
        Self { commands, own_from }
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
            let mut script = script(WRITE, sets);
            let command = script.arg(text(self.own_from)).arg(word);
            command.arg(text(now));
            for entry in batch {
                command.arg(entry.home + 1).arg(text(entry.score));
                command.arg(&entry.member);
                command.arg(entry.other.as_deref().unwrap_or_default());
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
            let mut script = script(CHANGE, sets);
            for ScoreChange {
                set,
                member,
                from,
                to,
            } in batch
            {
                script.arg(set + 1).arg(member).arg(text(*from));
                script.arg(to.map(text).unwrap_or_default());
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
            let mut script = script(REMOVE, sets);
            let command = script.arg(text(lowest));
            for entry in batch {
                command.arg(text(entry.score)).arg(&entry.member);
                command.arg(entry.other.as_deref().unwrap_or_default());
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
    #[cfg(feature = "cli")]
    pub async fn count(&self, set: &str, from: f64, below: f64) -> Result<u64, RedisError> {
        let mut count = redis::pipe();
        count.cmd("ZCOUNT").arg(set).arg(text(from));
        count.arg(format!("({}", text(below)));
        let (count,) = self.commands.send("ZCOUNT", &count).await?;
        Ok(count)
    }

    /// Returns the score of each member in a set, in order; `None` for a missing one.
    pub async fn scores(
        &self,
        set: &str,
        members: &[&str],
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

    /// Returns the mark of each set, in order. It is a member with the score `inf`, which is lost together with the
    /// other entries of the set.
    pub async fn marks(&self, sets: &[String]) -> Result<Vec<Option<String>>, RedisError> {
        let mut query = redis::pipe();
        for set in sets {
            query.cmd("ZRANGEBYSCORE").arg(set).arg("inf").arg("inf");
            query.arg("LIMIT").arg(0).arg(MARKS_MAX);
        }
        let members: Vec<Vec<Vec<u8>>> = self.commands.send("ZRANGEBYSCORE", &query).await?;
        let mark = |members: Vec<Vec<u8>>| {
            let mut texts = members.iter().filter_map(|m| std::str::from_utf8(m).ok());
            texts
                .find_map(|text| text.strip_prefix(MARK_PREFIX))
                .map(str::to_owned)
        };
        Ok(members.into_iter().map(mark).collect())
    }

    /// Replaces the mark of a set. With `over`, only if that is the mark now. Returns false if it is another one.
    pub async fn mark(
        &self,
        set: &str,
        mark: &str,
        over: Option<&str>,
    ) -> Result<bool, RedisError> {
        let set = [set.to_owned()];
        let mut script = script(MARK, &set);
        let over = over.map(|mark| format!("{MARK_PREFIX}{mark}"));
        script.arg(MARK_PREFIX).arg(format!("{MARK_PREFIX}{mark}"));
        script.arg(over.unwrap_or_default());
        let (written,): (bool,) = self.send(script).await?;
        Ok(written)
    }

    async fn send<T: redis::FromRedisValue>(&self, script: Pipeline) -> Result<T, RedisError> {
        self.commands.send("EVAL", &script).await
    }
}

impl EntryAnswer {
    fn of(answer: i64) -> Self {
        match answer {
            1 => Self::Written,
            0 => Self::Kept,
            _ => Self::Missing,
        }
    }
}

/// Starts a call of a script with these sets as its keys. `EVAL` rather than `EVALSHA`: the text is small next to its
/// arguments, and no server has to know it.
fn script(text: &str, sets: &[String]) -> Pipeline {
    let mut pipeline = redis::pipe();
    let text = text.replace("REMOVED", REMOVED);
    pipeline.cmd("EVAL").arg(text).arg(sets.len()).arg(sets);
    pipeline
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
