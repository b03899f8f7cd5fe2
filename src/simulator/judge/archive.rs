//! The archive: a finished row that retention takes from the table is there as it was, and stays.

use std::collections::BTreeMap;

use lapsed_core::ledger::row::Row;
use lapsed_core::task::UnixMs;

use super::{Anomaly, Judge, brief};
use crate::record::Actor;

/// What the archive has: all columns of each row, by its id.
#[derive(Debug, Default)]
pub(super) struct Archive {
    /// Retention moves rows there in place of deleting them.
    is_used: bool,
    rows: BTreeMap<u64, String>,
}

impl Archive {
    pub(super) fn new(is_used: bool) -> Self {
        let rows = BTreeMap::new();
        Self { is_used, rows }
    }

    pub(super) fn restored(&mut self, rows: &[Row]) {
        self.rows = contents(rows);
    }
}

fn contents(rows: &[Row]) -> BTreeMap<u64, String> {
    let rows = rows.iter().map(|row| (row.id, format!("{row:?}")));
    rows.collect()
}

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
