//! The register: a hash beside the sets, which shows whether a missing entry was removed by a program.

use super::scripts::{FORGET_LOSS, HOLD, MARK, MARKS, PROOF, RETAKE, TAKE};
use super::{QUERY_BATCH, SCRIPT_BATCH, ScoredSets, add_place, text};
use crate::{LedgerName, Names, RedisError};

/// Prefix of a mark. No task key begins with it.
const MARK_PREFIX: &str = "#lapsed:";

/// For how long a daemon counts as present after it has held the register.
const PRESENT_MS: u64 = 30_000;

/// The hash beside the sets of a ledger, and the settings by which a daemon uses it.
#[derive(Debug, Clone)]
pub struct Register {
    pub(super) names: Names,
    pub(super) ledger: LedgerName,
    pub(super) scope: String,
}

/// Name and value of a field of a hash.
type Field = (Vec<u8>, Vec<u8>);

impl Register {
    /// `scope` stands for everything that decides in which sets an entry is: daemons with another scope do not see the
    /// same entries.
    pub fn new(names: Names, ledger: LedgerName, scope: String) -> Self {
        Self {
            names,
            ledger,
            scope,
        }
    }
}

/// Whether a missing entry means that a program removed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// It does, if the entry was ever seen.
    Kept {
        /// As in [`Held`].
        lost_ms: Option<i64>,
    },
    /// It may have been lost.
    Lost,
    /// It may be in a set that only daemons with other settings see.
    Shared,
}

/// An entry of a task that is about to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryToTake {
    /// Due time of the arming, in milliseconds.
    pub due_ms: i64,
    /// As in `ScoredEntry`.
    pub only: Option<usize>,
    /// As in `ScoredEntry`.
    pub member: String,
    /// As in `ScoredEntry`.
    pub other: Option<String>,
}

/// A register that daemons of one scope hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The nonce that marks must have.
    pub nonce: String,
    /// When the sets last lost data, in milliseconds. A row that was being written at that time may lack its entry. `None`:
    /// such entries were written since.
    pub lost_ms: Option<i64>,
}

/// What became of an entry to be taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TakenEntry {
    /// No program can remove it any more.
    Taken,
    /// A program has removed it.
    Removed {
        /// As in [`Held`].
        lost_ms: Option<i64>,
    },
    /// A program has written a later score.
    Later(f64),
    /// Nothing is known.
    Unknown,
}

impl ScoredSets {
    /// Takes the entries of tasks that are about to start. `unit` is how programs write scores, `millis_from` the lowest
    /// score in milliseconds for `auto`, `now` an own score. Returns an answer for each, in order.
    pub async fn take(
        &self,
        sets: &[String],
        entries: &[EntryToTake],
        unit: &str,
        millis_from: f64,
        now: f64,
    ) -> Result<Vec<TakenEntry>, RedisError> {
        let mut answers = Vec::with_capacity(entries.len());
        for batch in entries.chunks(SCRIPT_BATCH) {
            let mut script = self.script(TAKE, sets);
            script.arg(unit).arg(text(millis_from)).arg(text(now));
            for entry in batch {
                script.arg(entry.due_ms);
                add_place(&mut script, entry.only, &entry.member, &entry.other);
            }
            let ((proves, lost, batch),): ((bool, String, Vec<String>),) =
                self.send(script).await?;
            let lost_ms = lost.parse().ok();
            answers.extend(batch.iter().map(|answer| match &answer[..] {
                "0" if proves => TakenEntry::Removed { lost_ms },
                "0" | "3" => TakenEntry::Unknown,
                "1" => TakenEntry::Taken,
                score => score.parse().map_or(TakenEntry::Unknown, TakenEntry::Later),
            }));
        }
        Ok(answers)
    }

    /// Notes that entries are taken for the present armings of their tasks. Each was taken for an arming due at the time that
    /// is given with it, or was missing.
    pub async fn retake(
        &self,
        sets: &[String],
        entries: &[(Option<i64>, EntryToTake)],
    ) -> Result<(), RedisError> {
        for batch in entries.chunks(SCRIPT_BATCH) {
            let mut script = self.script(RETAKE, sets);
            for (taken_for_ms, entry) in batch {
                let taken_for = taken_for_ms.map_or_else(String::new, |due| due.to_string());
                script.arg(taken_for).arg(entry.due_ms);
                add_place(&mut script, entry.only, &entry.member, &entry.other);
            }
            let (_,): (i64,) = self.send(script).await?;
        }
        Ok(())
    }

    /// Returns the tasks whose entries were taken, and the due times of their armings in milliseconds: a page, and the
    /// cursor of the next one, 0 after the last.
    pub async fn taken(&self, cursor: u64) -> Result<(Vec<(String, i64)>, u64), RedisError> {
        let mut query = redis::pipe();
        query.cmd("HSCAN").arg(self.register_name()).arg(cursor);
        query
            .arg("MATCH")
            .arg("taken:*")
            .arg("COUNT")
            .arg(QUERY_BATCH);
        let ((next, fields),): ((u64, Vec<Field>),) = self.commands.send("HSCAN", &query).await?;
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_owned).ok();
        let taken = fields.iter().filter_map(|(name, due)| {
            let key = text(name)?.strip_prefix("taken:")?.to_owned();
            Some((key, text(due)?.parse().ok()?))
        });
        Ok((taken.collect(), next))
    }

    /// Returns the members that the register keeps for these keys, in order.
    pub async fn members(&self, keys: &[&str]) -> Result<Vec<Option<Vec<u8>>>, RedisError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut query = redis::pipe();
        query.cmd("HMGET").arg(self.register_name());
        for key in keys {
            query.arg(format!("member:{key}"));
        }
        let (members,) = self.commands.send("HMGET", &query).await?;
        Ok(members)
    }

    /// Returns whether a missing entry was removed by a program. Call it after the query whose absence is in question.
    pub async fn proof(&self, sets: &[String]) -> Result<Proof, RedisError> {
        let ((proof, lost),): ((i64, String),) = self.send(self.script(PROOF, sets)).await?;
        Ok(match proof {
            1 => Proof::Kept {
                lost_ms: lost.parse().ok(),
            },
            0 => Proof::Lost,
            _ => Proof::Shared,
        })
    }

    /// Holds the register for this scope. `None` while daemons with another scope are present, and for some time after.
    pub async fn hold(&self) -> Result<Option<Held>, RedisError> {
        let mut script = self.script(HOLD, &[]);
        let nonce = format!("{:016x}", rand::random::<u64>());
        script.arg(nonce).arg(PRESENT_MS);
        let ((nonce, lost),): ((String, String),) = self.send(script).await?;
        let lost_ms = lost.parse().ok();
        Ok((!nonce.is_empty()).then_some(Held { nonce, lost_ms }))
    }

    /// Returns what the register says, if this scope holds it.
    pub async fn held(&self) -> Result<Option<Held>, RedisError> {
        let Some(register) = &self.register else {
            return Ok(None);
        };
        let mut query = redis::pipe();
        query.cmd("HMGET").arg(self.register_name());
        query.arg("scope").arg("nonce").arg("lost");
        let ([scope, nonce, lost],): ([Option<String>; 3],) =
            self.commands.send("HMGET", &query).await?;
        let nonce = nonce.filter(|_| scope.as_ref() == Some(&register.scope));
        let lost_ms = lost.and_then(|ms| ms.parse().ok());
        Ok(nonce.map(|nonce| Held { nonce, lost_ms }))
    }

    /// Forgets the latest loss of data, if it was at this time. Returns false if it was another one.
    pub async fn forget_loss(&self, lost_ms: i64) -> Result<bool, RedisError> {
        let mut script = self.script(FORGET_LOSS, &[]);
        script.arg(lost_ms);
        let (forgotten,): (bool,) = self.send(script).await?;
        Ok(forgotten)
    }

    /// Returns the mark of each set, in order. It is a member with the score `inf`, which is lost together with the
    /// other entries of the set. A set that is not what the register has counted has none.
    pub async fn marks(&self, sets: &[String]) -> Result<Vec<Option<String>>, RedisError> {
        let (marks,): (Vec<String>,) = self.send(self.script(MARKS, sets)).await?;
        let marks = marks.into_iter();
        Ok(marks
            .map(|mark| Some(mark).filter(|mark| !mark.is_empty()))
            .collect())
    }

    /// Replaces the mark of a set. With `over`, only if that is the mark now. `lost_ms` says that the set has lost data, and
    /// when. Returns false if it has another mark.
    pub async fn mark(
        &self,
        set: &str,
        mark: &str,
        over: Option<&str>,
        lost_ms: Option<i64>,
    ) -> Result<bool, RedisError> {
        let mut script = self.script(MARK, &[set.to_owned()]);
        let over = over.map(|mark| format!("{MARK_PREFIX}{mark}"));
        script.arg(format!("{MARK_PREFIX}{mark}"));
        script.arg(over.unwrap_or_default());
        script.arg(lost_ms.map_or_else(String::new, |ms| ms.to_string()));
        let (written,): (bool,) = self.send(script).await?;
        Ok(written)
    }
}
