//! Sorted sets of entries: a member names a task, its score is a due time.
//!
//! Scripts compare and write in one step, because programs change the same entries. A script marks entries that it
//! removes with the score [`REMOVED`], and then removes that score: the keyspace event `zrem` is left to programs.

use redis::Pipeline;

use super::{Commands, RedisError};

/// Most entries of one script, which blocks the server for about a millisecond.
const SCRIPT_BATCH: usize = 500;

/// Most members of one query.
const QUERY_BATCH: usize = 1000;

/// The score of an entry that a script is about to remove. No due time is as late.
const REMOVED: &str = "8000000000000000";

/// Writes entries. KEYS: the sets. ARGV: the lowest own score; `replace`, `keep` or `move`; now, as a score; then for
/// each entry its home (an index of KEYS, where a new entry is written), its score, its member and another form of the
/// member or an empty text. An entry may be in any of the sets.
///
/// Returns for each entry 1 (written), 0 (kept) or -1 (missing, and not written). A key of another type has no entries;
/// writing into it is an error, after all other entries were written.
const WRITE: &str = "\
local own, mode, now = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]) \
local out, adds, removes = {}, {}, {} \
local function score_of(set, member) \
  local score = redis.pcall('ZSCORE', set, member) \
  return type(score) == 'string' and tonumber(score) \
end \
local function add(set, score, member) \
  local list = adds[set] or {} \
  adds[set] = list \
  list[#list + 1] = score \
  list[#list + 1] = member \
end \
for i = 4, #ARGV, 4 do \
  local set, member, found = KEYS[tonumber(ARGV[i])], ARGV[i + 2], nil \
  for form = i + 2, i + 3 do \
    for k = 1, #KEYS do \
      local score = ARGV[form] ~= '' and score_of(KEYS[k], ARGV[form]) \
      if score and not found then \
        set, member, found = KEYS[k], ARGV[form], score \
      elseif score and mode == 'replace' then \
        add(KEYS[k], REMOVED, ARGV[form]) \
        removes[KEYS[k]] = true \
      end \
    end \
  end \
  local is_due = found and found >= own and found <= now \
  if mode == 'replace' or is_due or (not found and mode == 'keep') then \
    add(set, ARGV[i + 1], member) \
    out[#out + 1] = 1 \
  else \
    out[#out + 1] = found and 0 or -1 \
  end \
end \
local failed \
for set, list in pairs(adds) do \
  local added = redis.pcall('ZADD', set, unpack(list)) \
  if type(added) == 'table' then failed = added end \
end \
for set in pairs(removes) do redis.call('ZREMRANGEBYSCORE', set, REMOVED, REMOVED) end \
return failed or out";

/// Changes scores that are still the ones that were read. KEYS: the sets. ARGV: for each entry its set (an index of
/// KEYS), its member, the score that was read, and the new one; an empty text removes the entry.
///
/// Returns for each entry 1 (changed), 0 (it has another score) or -1 (missing).
const CHANGE: &str = "\
local out, adds, removes = {}, {}, {} \
for i = 1, #ARGV, 4 do \
  local set, score = KEYS[tonumber(ARGV[i])], nil \
  score = redis.call('ZSCORE', set, ARGV[i + 1]) \
  if not score then \
    out[#out + 1] = -1 \
  elseif tonumber(score) ~= tonumber(ARGV[i + 2]) then \
    out[#out + 1] = 0 \
  else \
    local list = adds[set] or {} \
    adds[set] = list \
    local to = ARGV[i + 3] \
    if to == '' then to, removes[set] = REMOVED, true end \
    list[#list + 1] = to \
    list[#list + 1] = ARGV[i + 1] \
    out[#out + 1] = 1 \
  end \
end \
for set, list in pairs(adds) do redis.call('ZADD', set, unpack(list)) end \
for set in pairs(removes) do redis.call('ZREMRANGEBYSCORE', set, REMOVED, REMOVED) end \
return out";

/// Removes entries. KEYS: the sets. ARGV: the lowest score that is removed; then for each entry the highest score that
/// is removed, its member and another form of the member or an empty text.
///
/// Returns the number of entries removed.
const REMOVE: &str = "\
local own, count, adds = tonumber(ARGV[1]), 0, {} \
for i = 2, #ARGV, 3 do \
  local highest = tonumber(ARGV[i]) \
  for form = i + 1, i + 2 do \
    for k = 1, #KEYS do \
      local score = ARGV[form] ~= '' and redis.pcall('ZSCORE', KEYS[k], ARGV[form]) \
      score = type(score) == 'string' and tonumber(score) \
      if score and score >= own and score <= highest then \
        local list = adds[KEYS[k]] or {} \
        adds[KEYS[k]] = list \
        list[#list + 1] = REMOVED \
        list[#list + 1] = ARGV[form] \
        count = count + 1 \
      end \
    end \
  end \
end \
for set, list in pairs(adds) do \
  redis.call('ZADD', set, unpack(list)) \
  redis.call('ZREMRANGEBYSCORE', set, REMOVED, REMOVED) \
end \
return count";

/// Replaces the mark of a set. KEYS: the set. ARGV: the prefix of marks, the new mark, and the mark that must be there
/// or an empty text. Returns 1 if it was written.
const MARK: &str = "\
if ARGV[3] ~= '' and not redis.call('ZSCORE', KEYS[1], ARGV[3]) then return 0 end \
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], 'inf', 'inf')) do \
  if string.sub(member, 1, #ARGV[1]) == ARGV[1] then redis.call('ZREM', KEYS[1], member) end \
end \
redis.call('ZADD', KEYS[1], 'inf', ARGV[2]) \
return 1";

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
