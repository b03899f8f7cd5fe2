//! The delayed queue of a framework: a sorted set of jobs, scored in seconds.
//!
//! The set belongs to the framework: a score changes only when a task is moved, and a job leaves only to the ready list or
//! because its task was cancelled. Beside the set is a hash, the *register*. It has the member of each job that was seen,
//! under the key of its task, and is lost together with the set. So a job that is in the register and not in the set was
//! removed by another program; one that is in neither was lost by Redis.

use redis::Pipeline;

use crate::{Commands, RedisError};

/// Most jobs of one script, which blocks the server for about a millisecond.
const SCRIPT_BATCH: usize = 500;

/// What scripts share. `KEYS` are the set and the register; each value of the register is a score, `:` and a member.
///
/// * `seen(key)`: score and member, or `nil`.
const PRELUDE: &str = "\
local set, reg = KEYS[1], KEYS[2] \
local function read(value) \
  local at = string.find(value, ':', 1, true) \
  return tonumber(string.sub(value, 1, at - 1)), string.sub(value, at + 1) \
end \
local function seen(key) \
  local value = redis.call('HGET', reg, key) \
  if value then return read(value) end \
end ";

/// Notes jobs that were read, if they are still in the set. For each: key, member, score. Returns 1 or 0 for each.
const SEE: &str = "\
local out = {} \
for i = 1, #ARGV, 3 do \
  local score = redis.call('ZSCORE', set, ARGV[i + 1]) \
  local same = score and tonumber(score) == tonumber(ARGV[i + 2]) \
  if same then redis.call('HSET', reg, ARGV[i], score .. ':' .. ARGV[i + 1]) end \
  out[#out + 1] = same and 1 or 0 \
end \
return out";

/// Moves a due job to the ready list (the third key), and notes it for the due time of its task: a repetition pushes
/// nothing. A job that is gone stays in the register until its task has ended, so that a repetition finds the same. `ARGV`:
/// key, member, due time in milliseconds, `RPUSH` or `LPUSH`, and `1` if the claim was just confirmed. With a fourth key,
/// that list gets a `1`.
///
/// Returns `moved`; `before`: this run or an earlier one of the same task has moved it; `gone`: another program has removed
/// it; `unconfirmed`: nothing was done, because it was neither in the set nor in the register, or is there for a later
/// time; `lost`: it was in neither, and was pushed from the task.
const MOVE: &str = "\
local key, member, due, push, confirmed = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1' \
if redis.call('HGET', reg, 'moved:' .. key) == due then return 'before' end \
local score = redis.call('ZSCORE', set, member) \
local _, known = seen(key) \
if not score and known == member then return 'gone' end \
local is_due = score and tonumber(score) * 1000 < tonumber(due) + 1000 \
if not is_due and not confirmed then return 'unconfirmed' end \
redis.call('ZREM', set, member) \
redis.call(push, KEYS[3], member) \
if KEYS[4] then redis.call(push, KEYS[4], 1) end \
redis.call('HDEL', reg, key) \
redis.call('HSET', reg, 'moved:' .. key, due) \
return score and 'moved' or 'lost'";

/// Removes the jobs of tasks. `ARGV`: keys.
const REMOVE: &str = "\
for _, key in ipairs(ARGV) do \
  local _, member = seen(key) \
  if member then redis.call('ZREM', set, member) end \
  redis.call('HDEL', reg, key, 'moved:' .. key) \
end \
return 1";

/// Changes the scores of jobs that are in the set. For each: key, score.
const SCORE: &str = "\
local written = 0 \
for i = 1, #ARGV, 2 do \
  local _, member = seen(ARGV[i]) \
  if member and redis.call('ZSCORE', set, member) then \
    redis.call('ZADD', set, 'XX', ARGV[i + 1], member) \
    redis.call('HSET', reg, ARGV[i], ARGV[i + 1] .. ':' .. member) \
    written = written + 1 \
  end \
end \
return written";

/// Returns the score of each job, or an empty text. `ARGV`: keys.
const FIND: &str = "\
local out = {} \
for _, key in ipairs(ARGV) do \
  local _, member = seen(key) \
  out[#out + 1] = member and redis.call('ZSCORE', set, member) or '' \
end \
return out";

/// Forgets jobs of ended tasks. For each: key, latest due time in milliseconds for which it may have been moved. One that
/// is in the set stays known.
const SETTLE: &str = "\
for i = 1, #ARGV, 2 do \
  local key = ARGV[i] \
  local moved = redis.call('HGET', reg, 'moved:' .. key) \
  if moved and tonumber(moved) <= tonumber(ARGV[i + 1]) then redis.call('HDEL', reg, 'moved:' .. key) end \
  local _, member = seen(key) \
  if member and not redis.call('ZSCORE', set, member) then redis.call('HDEL', reg, key) end \
end \
return 1";

/// Returns a page of the register: the next cursor, the keys of jobs that are not in the set and fall due after
/// `ARGV[2]`, and the keys of those that fell due before `ARGV[3]`, also of moved ones. `ARGV[1]`: the cursor.
const MISSING: &str = "\
local page = redis.call('HSCAN', reg, ARGV[1], 'COUNT', 500) \
local after, before, missing, old = tonumber(ARGV[2]), tonumber(ARGV[3]), {}, {} \
for i = 1, #page[2], 2 do \
  local key, value = page[2][i], page[2][i + 1] \
  if string.sub(key, 1, 6) == 'moved:' then \
    if tonumber(value) / 1000 < before then old[#old + 1] = string.sub(key, 7) end \
  else \
    local score, member = read(value) \
    if not redis.call('ZSCORE', set, member) then \
      if score > after then missing[#missing + 1] = key end \
      if score < before then old[#old + 1] = key end \
    end \
  end \
end \
return {page[1], missing, old}";

/// Commands on a delayed set and its register. Clones share the connection.
///
/// # Errors
/// Each method fails if Redis refuses a command, or does not answer: the script may have run.
#[derive(Debug, Clone)]
pub struct DelayedSet {
    commands: Commands,
    keys: [String; 2],
}

/// A job, as it was read: the key of its task, its member and its score.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenJob {
    /// Key of the task.
    pub key: String,
    /// The member of the set.
    pub member: Vec<u8>,
    /// Its score.
    pub score: f64,
}

/// A job that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueJob<'a> {
    /// Key of its task.
    pub key: &'a str,
    /// The member of the set.
    pub member: &'a [u8],
    /// The due time of its task, in milliseconds.
    pub due_ms: i64,
    /// The list from which workers take it.
    pub list: &'a str,
    /// `RPUSH` or `LPUSH`.
    pub command: &'a str,
    /// A list that gets a `1`.
    pub notify: Option<&'a str>,
    /// True if the ledger has confirmed the claim just now.
    pub confirmed: bool,
}

/// What became of a due job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MovedJob {
    /// It was removed from the set and pushed.
    Moved,
    /// An earlier run of the same task has done so.
    Before,
    /// Another program has removed it: the framework's own poller, or one that cancels.
    Gone,
    /// Redis has lost it, or it was moved and its task has ended, or it is there for a later time. Nothing was done: confirm
    /// the claim first.
    Unconfirmed,
    /// Redis had lost it. It was pushed.
    Lost,
}

/// A page of the register.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RegisterPage {
    /// Where the next page begins; 0 after the last.
    pub cursor: u64,
    /// Keys of jobs that another program has removed before they were due.
    pub missing: Vec<String>,
    /// Keys of jobs that left the set some time ago.
    pub old: Vec<String>,
}

impl DelayedSet {
    /// Does no I/O.
    pub fn new(commands: Commands, set: &str, register: &str) -> Self {
        Self {
            commands,
            keys: [set.to_owned(), register.to_owned()],
        }
    }

    /// Notes jobs that were read. Returns for each, in order, whether it is still in the set with this score.
    pub async fn see(&self, jobs: &[SeenJob]) -> Result<Vec<bool>, RedisError> {
        let mut seen = Vec::with_capacity(jobs.len());
        for batch in jobs.chunks(SCRIPT_BATCH) {
            let mut script = self.script(SEE, &[]);
            for job in batch {
                script.arg(&job.key).arg(&job.member).arg(text(job.score));
            }
            let (batch,): (Vec<bool>,) = self.send(&script).await?;
            seen.extend(batch);
        }
        Ok(seen)
    }

    /// Moves a due job to its ready list, in one step.
    pub async fn move_due(&self, job: DueJob<'_>) -> Result<MovedJob, RedisError> {
        let lists = [Some(job.list), job.notify];
        let lists: Vec<&str> = lists.into_iter().flatten().collect();
        let mut script = self.script(MOVE, &lists);
        script.arg(job.key).arg(job.member).arg(job.due_ms);
        script.arg(job.command).arg(u8::from(job.confirmed));
        let (moved,): (String,) = self.send(&script).await?;
        Ok(match &moved[..] {
            "moved" => MovedJob::Moved,
            "before" => MovedJob::Before,
            "gone" => MovedJob::Gone,
            "unconfirmed" => MovedJob::Unconfirmed,
            _ => MovedJob::Lost,
        })
    }

    /// Removes the jobs of these tasks.
    pub async fn remove(&self, keys: &[&str]) -> Result<(), RedisError> {
        for batch in keys.chunks(SCRIPT_BATCH) {
            let mut script = self.script(REMOVE, &[]);
            script.arg(batch);
            let (_,): (i64,) = self.send(&script).await?;
        }
        Ok(())
    }

    /// Gives jobs that are in the set another score. Returns how many are there.
    pub async fn score(&self, jobs: &[(&str, f64)]) -> Result<usize, RedisError> {
        let mut written = 0;
        for batch in jobs.chunks(SCRIPT_BATCH) {
            let mut script = self.script(SCORE, &[]);
            for (key, score) in batch {
                script.arg(*key).arg(text(*score));
            }
            let (count,): (usize,) = self.send(&script).await?;
            written += count;
        }
        Ok(written)
    }

    /// Returns the score of each job that is in the set, in order.
    pub async fn find(&self, keys: &[&str]) -> Result<Vec<Option<f64>>, RedisError> {
        let mut scores = Vec::with_capacity(keys.len());
        for batch in keys.chunks(SCRIPT_BATCH) {
            let mut script = self.script(FIND, &[]);
            script.arg(batch);
            let (batch,): (Vec<String>,) = self.send(&script).await?;
            scores.extend(batch.iter().map(|score| score.parse().ok()));
        }
        Ok(scores)
    }

    /// Forgets the jobs of ended tasks, which were moved for this due time (in milliseconds) at the latest.
    pub async fn settle(&self, ended: &[(&str, i64)]) -> Result<(), RedisError> {
        for batch in ended.chunks(SCRIPT_BATCH) {
            let mut script = self.script(SETTLE, &[]);
            for (key, due_ms) in batch {
                script.arg(*key).arg(due_ms);
            }
            let (_,): (i64,) = self.send(&script).await?;
        }
        Ok(())
    }

    /// Reads a page of the register from this cursor on. Jobs that are missing in the set are returned if they fall due
    /// after `after`, those that left it if they fell due before `before`; both in seconds.
    pub async fn missing(
        &self,
        cursor: u64,
        after: f64,
        before: f64,
    ) -> Result<RegisterPage, RedisError> {
        let mut script = self.script(MISSING, &[]);
        script.arg(cursor).arg(text(after)).arg(text(before));
        let ((cursor, missing, old),): ((u64, Vec<String>, Vec<String>),) =
            self.send(&script).await?;
        Ok(RegisterPage {
            cursor,
            missing,
            old,
        })
    }

    /// The set is the first key of each script, the register the second.
    fn script(&self, text: &str, more: &[&str]) -> Pipeline {
        let mut pipeline = redis::pipe();
        let script = pipeline.cmd("EVAL").arg(format!("{PRELUDE}{text}"));
        script.arg(self.keys.len() + more.len());
        script.arg(&self.keys).arg(more);
        pipeline
    }

    async fn send<T: redis::FromRedisValue>(&self, script: &Pipeline) -> Result<T, RedisError> {
        self.commands.send("EVAL", script).await
    }
}

/// A score as Redis reads it.
fn text(score: f64) -> String {
    score.to_string()
}
