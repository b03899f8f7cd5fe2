//! The definition of the table: its statement, columns and indexes.

use super::introspect;
use lapsed_core::task::TableName;

/// The only definition of the columns: new tables are created from it, and old ones completed.
pub(super) const CREATE: &str = include_str!("../migrations/tb_time_limit_task.sql");

pub(super) const DUE_AT: &str = "due_at";
pub(super) const BUCKET: &str = "bucket";
pub(super) const RECURRING: &str = "recurring";
pub(super) const METHOD_CRC: &str = "method_crc";
pub(super) const KEY: &str = "key";

/// An index of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Index {
    /// Its name.
    pub name: &'static str,
    /// True for a unique index.
    pub unique: bool,
    /// Its columns, in order.
    pub columns: &'static [&'static str],
}

pub(super) static UK_KEY: Index = Index {
    name: "uk_key",
    unique: true,
    columns: &[KEY],
};

pub(super) static IX_DUE: Index = Index {
    name: "ix_due",
    unique: false,
    columns: &["status", "sts", DUE_AT, "id", BUCKET],
};

/// [`IX_DUE`] as defined before there were buckets.
pub(super) static IX_DUE_BEFORE: Index = Index {
    name: "ix_due",
    unique: false,
    columns: &["status", "sts", DUE_AT, "id"],
};

pub(super) static IX_TAG: Index = Index {
    name: "ix_tag",
    unique: false,
    columns: &["tag"],
};

/// For sweeps by class and method. Without it a backlog that may not start delays other overdue tasks.
///
/// `method_crc` is null unless a row is pending, so the index needs neither `status` nor `sts`. With these in front, the
/// server would prefer it to `uk_key` for statements with a key and a status, and lock the pending rows of others.
pub(super) static IX_METHOD: Index = Index {
    name: "ix_method",
    unique: false,
    columns: &[METHOD_CRC, DUE_AT, "id"],
};

/// For lists of recurring tasks. Without it they walk along the primary key.
pub(super) static IX_RECURRING: Index = Index {
    name: "ix_recurring",
    unique: false,
    columns: &[RECURRING],
};

impl Index {
    pub(super) fn definition(&self) -> String {
        let kind = if self.unique { "UNIQUE KEY" } else { "KEY" };
        format!("{kind} `{}` (`{}`)", self.name, self.columns.join("`, `"))
    }

    /// True if the found index has the same columns in the same order, whatever its name.
    pub(super) fn is(&self, found: &introspect::Index) -> bool {
        found.unique == self.unique
            && found.columns.len() == self.columns.len()
            && found
                .columns
                .iter()
                .zip(self.columns)
                .all(|(found, wanted)| found.eq_ignore_ascii_case(wanted))
    }
}

pub(super) fn create_statement(table: &TableName) -> String {
    statement_of(CREATE, table)
}

/// Returns the statement in a file, for this table.
pub(super) fn statement_of(file: &str, table: &TableName) -> String {
    file.lines()
        .filter(|line| !line.starts_with("--"))
        .map(|line| line.replace("{table}", table.as_str()))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns the definition of a column.
pub(super) fn definition(name: &str) -> &'static str {
    let quoted = format!("`{name}`");
    CREATE
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(&quoted))
        .and_then(|line| line.split(" -- ").next())
        .map(|line| line.trim().trim_end_matches(','))
        .expect("each name in `RULES` has its line: a test compares them")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_is_written_the_same_in_both_places() {
        for index in [&UK_KEY, &IX_DUE, &IX_TAG, &IX_METHOD, &IX_RECURRING] {
            assert!(CREATE.contains(&index.definition()), "{index:?}");
        }
    }

    #[test]
    fn a_definition_ends_before_its_comment() {
        assert_eq!(definition("owner"), "BINARY(16) NULL");
        assert_eq!(
            definition("attempt"),
            "SMALLINT UNSIGNED NOT NULL DEFAULT 0"
        );
    }
}
