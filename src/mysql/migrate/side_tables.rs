//! The side tables: pauses, rates, documents and the archive.

use sqlx::MySqlConnection;

use super::introspect::TableSchema;
use super::{MigrateError, definition};
use lapsed_core::task::TableName;

/// A side table.
pub(super) struct SideTable {
    create: &'static str,
    name: fn(&TableName) -> String,
    /// The purpose in messages, as in "for its pauses".
    what_for: &'static str,
    /// Columns that earlier versions did not have. A migration adds them.
    later: &'static [&'static str],
}

/// Pauses and holds. No daemon starts without it, since it would run paused tasks.
pub(super) const PAUSES: SideTable = SideTable {
    create: include_str!("../migrations/tb_time_limit_task_pauses.sql"),
    name: TableName::pauses,
    what_for: "its pauses",
    later: &["until"],
};

/// Rate limits without Redis. A daemon starts without it.
pub(super) const RATES: SideTable = SideTable {
    create: include_str!("../migrations/tb_time_limit_task_rates.sql"),
    name: TableName::rates,
    what_for: "its rates",
    later: &[],
};

/// The audit log, the history and the like. A daemon starts without it.
pub(super) const DOCUMENTS: SideTable = SideTable {
    create: include_str!("../migrations/tb_time_limit_task_documents.sql"),
    name: TableName::documents,
    what_for: "its documents",
    later: &[],
};

/// Archived tasks. Only a daemon that archives needs it.
pub(super) const ARCHIVE: SideTable = SideTable {
    create: include_str!("../migrations/tb_time_limit_task_archive.sql"),
    name: |table| table.archive().to_string(),
    what_for: "its archive",
    later: &["claimed_at"],
};

impl SideTable {
    /// Returns the statement that creates it.
    pub(super) fn create_statement(&self, table: &TableName) -> String {
        definition::statement_of(self.create, table)
    }

    /// True if it does not exist yet.
    ///
    /// # Errors
    /// A table of its name lacks one of its columns that was never added later.
    pub(super) async fn is_missing(
        &self,
        conn: &mut MySqlConnection,
        table: &TableName,
    ) -> Result<bool, MigrateError> {
        let name = (self.name)(table);
        let Some(found) = TableSchema::read(conn, &name).await? else {
            return Ok(true);
        };
        let mut columns = self.columns();
        let is_missing =
            |column: &&str| !self.later.contains(column) && found.column(column).is_none();
        match columns.find(is_missing) {
            None => Ok(false),
            Some(column) => Err(MigrateError::Incompatible {
                table: table.clone(),
                problem: format!(
                    "table `{name}` for {} exists, but lacks column `{column}`: rename it",
                    self.what_for
                ),
            }),
        }
    }

    /// Returns the columns that an earlier version created it without; none if it does not exist.
    pub(super) async fn missing_columns(
        &self,
        conn: &mut MySqlConnection,
        table: &TableName,
    ) -> Result<Vec<&'static str>, MigrateError> {
        let Some(found) = TableSchema::read(conn, &(self.name)(table)).await? else {
            return Ok(Vec::new());
        };
        let mut columns = self.later.to_vec();
        columns.retain(|column| found.column(column).is_none());
        Ok(columns)
    }

    /// Returns the statement that adds a column.
    pub(super) fn add_statement(&self, table: &TableName, column: &str) -> String {
        let start = format!("`{column}`");
        let definition = self.create.lines().find_map(|line| {
            let (definition, _) = line.trim_start().strip_prefix(&start)?.split_once(", --")?;
            Some(definition.trim())
        });
        let definition = definition.expect("it has a line with a comment in the definition");
        format!(
            "ALTER TABLE `{}` ADD COLUMN {start} {definition}",
            (self.name)(table)
        )
    }

    fn columns(&self) -> impl Iterator<Item = &'static str> {
        let lines = self.create.lines();
        lines.filter_map(|line| line.trim_start().strip_prefix('`')?.split('`').next())
    }
}
