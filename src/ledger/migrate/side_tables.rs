//! The small side tables: pauses and rates.

use sqlx::MySqlConnection;

use super::introspect::TableSchema;
use super::step::Step;
use super::{MigrateError, schema};
use crate::task::TableName;

/// A side table.
pub(super) struct SideTable {
    create: &'static str,
    name: fn(&TableName) -> String,
    /// What it is for, as in "for its pauses".
    what_for: &'static str,
    step: Step,
}

/// What is paused. No daemon starts without it: it would run what somebody has paused.
pub(super) const PAUSES: SideTable = SideTable {
    create: include_str!("../../../migrations/tb_time_limit_task_pauses.sql"),
    name: TableName::pauses,
    what_for: "its pauses",
    step: Step::CreatePauses,
};

/// How often tasks may start. Only daemons without Redis look at it, and those go on without it.
pub(super) const RATES: SideTable = SideTable {
    create: include_str!("../../../migrations/tb_time_limit_task_rates.sql"),
    name: TableName::rates,
    what_for: "its rates",
    step: Step::CreateRates,
};

impl SideTable {
    /// How to create it.
    pub(super) fn create_statement(&self, table: &TableName) -> String {
        schema::statement_of(self.create, table)
    }

    /// Whether it is still to be created.
    ///
    /// # Errors
    /// Something else has its name.
    pub(super) async fn step(
        &self,
        conn: &mut MySqlConnection,
        table: &TableName,
    ) -> Result<Option<Step>, MigrateError> {
        let name = (self.name)(table);
        let Some(found) = TableSchema::read(conn, &name).await? else {
            return Ok(Some(self.step.clone()));
        };
        match self.columns().find(|column| found.column(column).is_none()) {
            None => Ok(None),
            Some(column) => Err(MigrateError::Incompatible {
                table: table.clone(),
                problem: format!(
                    "table `{name}` for {} exists, but lacks column `{column}`: rename it",
                    self.what_for
                ),
            }),
        }
    }

    fn columns(&self) -> impl Iterator<Item = &'static str> {
        let lines = self.create.lines();
        lines.filter_map(|line| line.trim_start().strip_prefix('`')?.split('`').next())
    }
}
