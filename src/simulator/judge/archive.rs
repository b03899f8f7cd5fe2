//! What the archive has.

use std::collections::BTreeMap;

use lapsed_core::ledger::row::Row;

/// What the archive has: all columns of each row, by its id.
#[derive(Debug, Default)]
pub(super) struct Archive {
    /// Retention moves rows there in place of deleting them.
    pub(super) is_used: bool,
    pub(super) rows: BTreeMap<u64, String>,
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

/// The columns of rows, by their ids.
pub(super) fn contents(rows: &[Row]) -> BTreeMap<u64, String> {
    let rows = rows.iter().map(|row| (row.id, format!("{row:?}")));
    rows.collect()
}
