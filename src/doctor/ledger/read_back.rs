//! Read-back check: detects a proxy that sends `SELECT` to a replica.

use sqlx::MySqlConnection;

use super::access::NO_SUCH_TABLE;
use super::{is_about_rights, number, statement};
use lapsed::diagnosis::Finding;
use lapsed::ledger::mysql::queries::Queries;

pub(super) const READ_BACK: &str = "ledger.read_back";

/// Test row in the table of rates, with a name that no route has. Nothing lists that table.
const WRITE: &str = "INSERT INTO `{t}_rates` (route) VALUES (?)";
const READ: &str = "SELECT route FROM `{t}_rates` WHERE route = ?";
const REMOVE: &str = "DELETE FROM `{t}_rates` WHERE route = ?";

/// Writes a row and reads it back, if this user may write and delete there; else returns `None`.
pub(super) async fn read_back(
    conn: &mut MySqlConnection,
    queries: &Queries,
) -> sqlx::Result<Option<bool>> {
    let name = format!("#lapsed doctor {:016x}", rand::random::<u64>());
    let asks = |template| statement(queries.plain(template)).bind(name.clone());
    // Delete first, so that no row stays where this user may not delete it.
    for template in [REMOVE, WRITE] {
        match asks(template).execute(&mut *conn).await {
            Ok(_) => {}
            Err(error) if is_about_rights(&error) || number(&error) == Some(NO_SUCH_TABLE) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
    let read = asks(READ).fetch_optional(&mut *conn).await;
    asks(REMOVE).execute(&mut *conn).await?;
    Ok(Some(read?.is_some()))
}

pub(super) fn judge(read: Option<bool>) -> Finding {
    match read {
        Some(true) => Finding::ok(READ_BACK, "a row can be read back as soon as it is written"),
        Some(false) => Finding::error(
            READ_BACK,
            "a row that was just written cannot be read: a proxy sends SELECT to a replica, so claimed tasks never run",
        )
        .remedy("send every statement of `ledger.url` to the server that takes writes: no read/write splitting"),
        None => Finding::unknown(
            READ_BACK,
            "this user may not write a row of the table of rates and delete it",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assertions::assert_is;
    use lapsed::diagnosis::Severity;

    #[test]
    fn a_split_of_reads_and_writes_is_an_error() {
        assert_is(&judge(Some(true)), Severity::Ok, "read back");
        assert_is(&judge(Some(false)), Severity::Error, "to a replica");
        assert_is(&judge(None), Severity::Note, "could not be checked");
    }
}
