//! The small table of pauses beside the tasks'.

use sqlx::MySqlConnection;

use super::found::Found;
use super::step::Step;
use super::{MigrateError, Table, shape};

const CREATE: &str = include_str!("../../../migrations/tb_time_limit_task_pauses.sql");

/// How to create it.
pub(super) fn create_statement(table: &Table) -> String {
    shape::statement_of(CREATE, table)
}

/// Whether it is still to be created.
///
/// # Errors
/// Something else has its name.
pub(super) async fn step(
    conn: &mut MySqlConnection,
    table: &Table,
) -> Result<Option<Step>, MigrateError> {
    let name = table.pauses();
    let Some(found) = Found::read(conn, &name).await? else {
        return Ok(Some(Step::CreatePauses));
    };
    match columns().find(|column| found.column(column).is_none()) {
        None => Ok(None),
        Some(column) => Err(MigrateError::Incompatible {
            table: table.clone(),
            problem: format!(
                "table `{name}` for its pauses exists, but lacks column `{column}`: rename it"
            ),
        }),
    }
}

fn columns() -> impl Iterator<Item = &'static str> {
    let lines = CREATE.lines();
    lines.filter_map(|line| line.trim_start().strip_prefix('`')?.split('`').next())
}
