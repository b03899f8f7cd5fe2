//! What programs do to keys in Redis, and what follows from it.

use lapsed_core::ledger::row::{Row, Status};
use lapsed_core::task::{Origin, UnixMs};
use lapsed_model_redis::{Change, Reply};

use super::{Anomaly, Expected, Invocation, Judge, TOLERANCE_MS, Touch, brief};
use crate::keyed;
use crate::plan::Verb;
use crate::record::{Actor, Answer};

impl Judge {
    /// Reads what has happened in Redis since.
    pub(super) fn read_redis(&mut self) {
        let Some(redis) = &self.redis else { return };
        for change in redis.take_history() {
            self.pushed(&change);
            if let Some(changes) = &mut self.redis_changes {
                changes.extend(line_of(&change));
            }
            let Some((key, due)) = subject(&change) else {
                continue;
            };
            if let Some(expected) = self.expected_of(&key, due, &change) {
                self.expected.push(expected);
            }
            self.touched.entry(key).or_default().push(Touch {
                at: change.at,
                due,
                what: change.what,
            });
        }
    }

    /// Returns the changes of tasks in Redis since the last call, a line for each.
    pub fn take_redis_changes(&mut self) -> Vec<String> {
        self.redis_changes
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// What a command of a program promises for the row of its key.
    pub(super) fn expected_of(
        &self,
        key: &str,
        due: Option<UnixMs>,
        change: &Change,
    ) -> Option<Expected> {
        let command = change.command.as_ref()?.first()?;
        let touched = self.touched.get(key).and_then(|touched| touched.last());
        let mut seen_at = change.at;
        let due = match (&command[..], change.what) {
            (b"PSETEX", "expire") | (b"ZADD", "zadd") => Some(due?),
            // Only a deletion of a key that a program has armed, some time before, cancels its task.
            (b"DEL", "del") | (b"ZREM", "zrem") if self.is_foreign(key) => {
                let touched = touched?;
                let is_old = touched.at.0 + 3_000 < change.at.0;
                (is_old && touched.due?.0 > change.at.0 + 5_000).then_some(())?;
                // Nothing tells a daemon that an entry was removed: it misses it when the task is due.
                if change.what != "del" || command == b"ZREM" {
                    seen_at = touched.due?;
                }
                None
            }
            _ => return None,
        };
        let (key, at) = (key.to_owned(), change.at);
        Some(Expected {
            key,
            at,
            due,
            seen_at,
        })
    }

    /// True if a program has armed the key, by the one operation on it for some time.
    pub(super) fn is_foreign(&self, key: &str) -> bool {
        let ops = self.ops.iter().rev();
        let named = ops.filter(|invocation| self.names(&invocation.op, key));
        // The latest is the deletion itself.
        let before = named.map(|invocation| &invocation.op.verb).nth(1);
        matches!(before, Some(Verb::KeySet { .. }))
    }

    /// Looks whether what programs did in Redis has come to the ledger, where all was well and nothing else was done to the
    /// key.
    pub(super) fn adopted(&mut self, now: UnixMs) {
        self.read_redis();
        let is_due = |expected: &Expected| expected.seen_at.0 + 3_000 <= now.0;
        let (due, later) = std::mem::take(&mut self.expected)
            .into_iter()
            .partition(is_due);
        self.expected = later;
        let due: Vec<Expected> = due;
        for expected in due {
            let Expected { key, at, due, .. } = &expected;
            let others = self.ops.iter().filter(|invocation| {
                invocation.at.0 + 4_000 > at.0 && self.names(&invocation.op, key)
            });
            if self.rest_from > *at || others.count() > 1 {
                continue;
            }
            let row = self.rows.values().find(|row| row.key.as_str() == key);
            let fits = match (row, due) {
                (Some(row), Some(due)) => row.end_time.0.abs_diff(due.0) <= 2_100,
                (Some(row), None) => row.deleted || row.status != Status::Unprocessed,
                (None, due) => due.is_none(),
            };
            self.looked.keys += 1;
            if !fits {
                let text = format!(
                    "at {}: {expected:?}, and the ledger has {:?}",
                    now.0,
                    row.map(brief)
                );
                self.accuse(Anomaly::Lost, text);
            }
        }
    }

    /// A daemon may write the due time that a key has in Redis, or has had until it expired, and the time of an expiry.
    pub(super) fn is_of_a_key(&mut self, actor: Actor, now: UnixMs, row: &Row, what: &str) {
        // How far the process may misread the clock by which it says when the key falls due. It adds how far it may be wrong.
        let misread_ms = 2 * self.misread_ms(actor);
        let flushes = self.touched.get("").map(Vec::as_slice);
        let flushed_at = flushes.unwrap_or_default().last().map(|touch| touch.at);
        let tolerance_ms = TOLERANCE_MS.max(misread_ms.cast_unsigned());
        let latest = now.0 + misread_ms.max(1_000);
        let touched = self.touched.get(row.key.as_str());
        let mut touched = touched.map(Vec::as_slice).unwrap_or_default().iter();
        let is_known = touched.any(|touch| {
            let is_due = touch
                .due
                .is_some_and(|due| due.0.abs_diff(row.end_time.0) <= tolerance_ms);
            // The clock of Redis may be ahead.
            let is_past = touch.at.0 <= now.0 + TOLERANCE_MS.cast_signed();
            let is_expiry = matches!(touch.what, "expired" | "forged") && is_past;
            // A daemon that has lost events cannot tell a key that was flushed from one that has expired. It asks the ledger,
            // which lacks the row after a dump was restored.
            let is_flushed = self.restored_at.is_some()
                && touch.due.is_some()
                && flushed_at.is_some_and(|at| at >= touch.at);
            is_due || (is_expiry || is_flushed) && row.end_time.0 <= latest
        });
        let was_announced =
            self.gone_since_dump.contains(row.key.as_str()) && row.end_time.0 <= latest;
        if !is_known && !was_announced {
            let text = format!("{actor:?} {what} {} at {}", brief(row), now.0);
            self.accuse(Anomaly::ChangedWithoutCause, text);
        }
    }

    /// What a daemon reads from a key is younger than the last change of its row by an operation. An entry has no age: one that
    /// an operation could not replace, and that is still as a program wrote it, counts.
    pub(super) fn is_younger_than_op(&mut self, actor: Actor, now: UnixMs, row: &Row) {
        let Some((op, wrote)) = self.op_wrote.get(&row.id).copied() else {
            return;
        };
        let touched = self.touched.get(row.key.as_str());
        let mut touched = touched.map(Vec::as_slice).unwrap_or_default().iter();
        let is_younger = touched.any(|touch| {
            let is_of_it = touch
                .due
                .is_none_or(|due| due.0.abs_diff(row.end_time.0) <= TOLERANCE_MS);
            is_of_it && touch.at.0 + TOLERANCE_MS.cast_signed() / 2 >= wrote.0
        });
        let has_no_time = match self.ops[op].op.verb {
            // Its program does not say when it cancelled; the row says what it said when the dump was made.
            Verb::SqlCancel => self.restored_at.is_some(),
            // Its program leaves the entry as it is.
            Verb::SqlCreate { .. } => row.origin == Origin::Entry,
            _ => false,
        };
        if is_younger || has_no_time || self.is_requested(row) || self.is_restored_entry(row, wrote)
        {
            return;
        }
        let text = format!(
            "{actor:?} at {} believed a key older than the change at {}: {}",
            now.0,
            wrote.0,
            brief(row)
        );
        match &self.ops[op].answered {
            // It may have failed to replace the key.
            None => self.unconfirmed.push((op, text)),
            Some((_, Answer::Failed(_))) => {}
            Some(_) => self.accuse(Anomaly::RanOlderArming, text),
        }
    }

    /// True if the server came back with older data after this change, and so maybe with the entry of this row.
    fn is_restored_entry(&self, row: &Row, wrote: UnixMs) -> bool {
        row.origin == Origin::Entry && self.has_restarted_since(wrote)
    }

    /// True if the server was restarted since then, maybe with older data.
    pub(super) fn has_restarted_since(&self, since: UnixMs) -> bool {
        let of_all = self.touched.get("").map(Vec::as_slice).unwrap_or_default();
        let mut restarts = of_all.iter().filter(|touch| touch.what == "restart");
        restarts.any(|restart| restart.at >= since)
    }

    /// True if the set of programs has the entry by which a program requests this due time.
    fn is_requested(&self, row: &Row) -> bool {
        let Some(redis) = &self.redis else {
            return false;
        };
        let score = redis.execute(0, &["ZSCORE", keyed::SET, row.key.as_str()]);
        let Reply::Bulk(score) = score else {
            return false;
        };
        // In milliseconds. A whole second becomes the millisecond after it.
        let score = String::from_utf8_lossy(&score).parse::<f64>();
        score.is_ok_and(|score| (row.end_time.0 as f64 - score).abs() <= 1.0)
    }

    /// True if the key of a row was removed, or has lost its expiry: by a command, or with a dead task that was discarded since
    /// this one was created.
    pub(super) fn was_removed(&self, row: &Row) -> bool {
        let key = row.key.as_str();
        let touched = self.touched.get(key);
        let mut ops = self.ops.iter();
        touched.is_some_and(|touched| touched.iter().any(|touch| touch.due.is_none()))
            || ops.any(|Invocation { op, at, .. }| {
                matches!(op.verb, Verb::Discard) && *at >= row.start_time && self.names(op, key)
            })
    }
}

/// Describes a change of a key or an entry of a task, with the words of its command. Scripts are left out.
fn line_of(change: &Change) -> Option<String> {
    const WORD_BYTES_MAX: usize = 64;
    let key = String::from_utf8_lossy(&change.key);
    if key.starts_with('#') {
        return None;
    }
    let words = change.command.iter().flat_map(|words| words.iter());
    let words = words.filter(|word| word.len() <= WORD_BYTES_MAX);
    let words: Vec<_> = words.map(|word| String::from_utf8_lossy(word)).collect();
    Some(format!(
        "Redis at {}: {} {key}: {}",
        change.at.0,
        change.what,
        words.join(" ")
    ))
}

/// Returns the task that a change in Redis is about, and when it is due now: a key by its expiry, a member of the set of programs
/// by its score.
fn subject(change: &Change) -> Option<(String, Option<UnixMs>)> {
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    if change.key != keyed::SET.as_bytes() {
        return Some((text(&change.key), change.due));
    }
    let words = change.command.as_ref()?;
    match (&words.first()?[..], change.what) {
        (b"ZADD", "zadd") => {
            let [.., score, member] = &words[..] else {
                return None;
            };
            Some((text(member), Some(UnixMs(text(score).parse().ok()?))))
        }
        (b"ZREM", "zrem" | "del") => Some((text(words.last()?), None)),
        _ => None,
    }
}
