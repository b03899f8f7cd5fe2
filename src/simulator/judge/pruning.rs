//! Retention: finished rows are deleted when they are old enough, and no other row ever is.

use lapsed_core::ledger::row::{Row, Status};
use lapsed_core::task::UnixMs;

use super::{Anomaly, Judge, brief};
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
        self.looked.pruned += u64::from(matches!(actor, Actor::Daemon { .. }));
        if !is_allowed {
            let text = format!("{actor:?} at {} deleted {}", now.0, brief(row));
            self.accuse(Anomaly::Lost, text);
        }
    }

    /// Demands that old rows are gone, or all there because nothing may be deleted.
    pub fn is_pruned(&mut self, now: UnixMs, is_kept: bool) {
        let rows = self.rows.values();
        let old = rows.filter(|row| is_spent(row) && finished(row) + AGE_MS + 30_000 <= now.0);
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

/// When the task has ended, or was due.
fn finished(row: &Row) -> i64 {
    row.finished_at.unwrap_or(row.end_time).max(row.end_time).0
}
