//! Retention: finished rows are deleted when they are old enough, and no other row ever is.

use lapsed_core::ledger::row::{Row, Status};
use lapsed_core::task::UnixMs;

use super::{Anomaly, Judge, TOLERANCE_MS, brief};
use crate::record::Actor;

/// How long finished rows are kept.
const AGE_MS: i64 = 60_000;

impl Judge {
    /// A row was deleted: a dead one by an operator, or a finished one by retention.
    pub(super) fn deleted(&mut self, actor: Actor, now: UnixMs, row: &Row) {
        let is_allowed = match actor {
            Actor::Op(_) => row.status == Status::Dead,
            Actor::Daemon { .. } => self.prunes && is_spent(row) && finished(row) + AGE_MS <= now.0,
            _ => false,
        };
        if matches!(actor, Actor::Daemon { .. }) {
            self.looked.pruned += 1;
            self.leaves_no_key(now, row);
            let ended = UnixMs(finished(row));
            self.pruned.insert(row.key.to_string(), ended);
        }
        if !is_allowed {
            let text = format!("{actor:?} at {} deleted {}", now.0, brief(row));
            self.accuse(Anomaly::Lost, text);
        }
    }

    /// The key of a pruned row is gone, unless a program has armed it since the task ended: it would be a task again.
    fn leaves_no_key(&mut self, now: UnixMs, row: &Row) {
        let Some(redis) = &self.redis else { return };
        let key = row.key.as_str();
        let is_there = match redis.peek(0, key) {
            Some((_, due)) => due.is_some_and(|due| due > redis.now()),
            None => false,
        };
        // A server that has lost data, or has lost none after all, is not what the daemon has seen.
        if is_there && self.rest_from <= now && !self.was_armed_since(key, UnixMs(finished(row))) {
            let text = format!("at {} the key of {} is left", now.0, brief(row));
            self.accuse(Anomaly::Lost, text);
        }
    }

    /// A row that a daemon inserts where one was pruned is of a key that was armed after that task had ended.
    pub(super) fn is_not_revived(&mut self, actor: Actor, now: UnixMs, row: &Row) {
        let key = row.key.as_str();
        let Some(ended) = self.pruned.get(key) else {
            return;
        };
        self.looked.adopted_again += 1;
        if !self.was_armed_since(key, *ended) {
            let text = format!("{actor:?} at {} revived {}", now.0, brief(row));
            self.accuse(Anomaly::Doubled, text);
        }
    }

    /// True if a key was armed after this time, or its expiry was forged.
    fn was_armed_since(&self, key: &str, since: UnixMs) -> bool {
        let touched = self.touched.get(key).map(Vec::as_slice);
        let mut touched = touched.unwrap_or_default().iter();
        touched.any(|touch| {
            let is_armed = touch.due.is_some() && touch.what != "expired";
            (is_armed || touch.what == "forged")
                && touch.at.0 + TOLERANCE_MS.cast_signed() >= since.0
        })
    }

    /// Demands that old rows are gone, or all there because nothing may be deleted.
    pub fn is_pruned(&mut self, now: UnixMs, is_kept: bool) {
        let rows = self.rows.values();
        let ends = |row: &&Row| is_spent(row) || is_cancelled_run(row);
        let old = rows.filter(|row| ends(row) && finished(row) + AGE_MS + 30_000 <= now.0);
        let old: Vec<String> = old.map(brief).collect();
        if !is_kept {
            for row in old {
                self.accuse(Anomaly::Stuck, format!("at {} not deleted: {row}", now.0));
            }
        }
    }
}

/// True if retention deletes the row some time. That of a configured series says that it has ended.
fn is_spent(row: &Row) -> bool {
    matches!(row.status, Status::Processed | Status::Cancelled) && row.recurrence.is_none()
}

/// True if the task was cancelled during a run whose process did not end it: retention does, then deletes it. An older
/// program that uses a row again leaves the time at which its task had finished before, and writes whole seconds.
fn is_cancelled_run(row: &Row) -> bool {
    row.status == Status::Unprocessed
        && row.deleted
        && row
            .finished_at
            .is_some_and(|at| at.0 >= row.start_time.0 + 1_000)
        && row.lease_until > UnixMs(0)
}

/// When the task has ended, or was due.
fn finished(row: &Row) -> i64 {
    row.finished_at.unwrap_or(row.end_time).max(row.end_time).0
}
