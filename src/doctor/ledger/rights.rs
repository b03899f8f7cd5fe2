//! Rights of this user on a table: found by statements that match no row.

use sqlx::MySqlConnection;

use super::{is_about_rights, statement};
use crate::ledger::mysql::queries::Queries;

/// Runs test statements, each of which fails without its right. Returns the rights that this user lacks.
///
/// # Errors
/// A statement fails for another reason.
pub(super) async fn lacking(
    conn: &mut MySqlConnection,
    queries: &Queries,
    trials: &[(&'static str, &str)],
) -> sqlx::Result<Vec<&'static str>> {
    let mut lacking = Vec::new();
    for (right, trial) in trials {
        match statement(queries.plain(trial)).execute(&mut *conn).await {
            Ok(_) => {}
            Err(error) if is_about_rights(&error) => lacking.push(*right),
            Err(error) => return Err(error),
        }
    }
    Ok(lacking)
}
