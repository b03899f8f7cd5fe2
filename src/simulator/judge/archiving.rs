//! The archive: a finished row that retention takes from the table is there as it was, and stays.

use lapsed_core::ledger::row::Row;
use lapsed_core::task::UnixMs;

use super::archive::contents;
use super::{Anomaly, Judge, brief};
use crate::record::Actor;

impl Judge {
    /// Compares the archive with what it was, and with the rows that this transaction has deleted from the table.
    pub(super) fn archived(&mut self, actor: Actor, now: UnixMs, archived: &[Row], gone: &[Row]) {
        let mut expected = std::mem::take(&mut self.archive.rows);
        if self.archive.is_used && matches!(actor, Actor::Daemon { .. }) {
            self.looked.archived += gone.len() as u64;
            expected.extend(contents(gone));
        }
        let found = contents(archived);
        for (id, row) in &expected {
            if found.get(id) != Some(row) {
                let what = found.get(id).map_or("is missing", |_| "has changed");
                let text = format!("at {} in the archive {what}, by {actor:?}: {row}", now.0);
                self.accuse(Anomaly::Lost, text);
            }
        }
        for row in archived
            .iter()
            .filter(|row| !expected.contains_key(&row.id))
        {
            let text = format!("{actor:?} at {} archived {}", now.0, brief(row));
            self.accuse(Anomaly::ChangedWithoutCause, text);
        }
        self.archive.rows = found;
    }
}
