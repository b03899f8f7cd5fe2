//! The identity of a ledger: a random number in the comment of its table.
//!
//! It moves with the table to a replica that takes over, and into a dump. Daemons that share a Redis database recognize by
//! it whether they share a ledger, too.

use sqlx::MySqlConnection;

use super::MigrateError;
use super::introspect::TableSchema;
use lapsed_core::task::TableName;

/// The text before the number.
const MARK: &str = "lapsed:";
const DIGITS: usize = 16;

/// Generates an identity, as written in a comment.
pub(super) fn random() -> String {
    format!("{MARK}{:016x}", rand::random::<u64>())
}

/// Returns the identity in a comment.
pub(super) fn of_comment(comment: &str) -> Option<&str> {
    let marked = comment.split_whitespace();
    let mut marked = marked.filter_map(|word| word.strip_prefix(MARK));
    marked.find(|id| id.len() == DIGITS && id.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Reads the identity of a table. `None` if it was last migrated before identities existed.
///
/// # Errors
/// [`MigrateError::Sql`] if the server does not answer.
pub async fn identity(
    conn: &mut MySqlConnection,
    table: &TableName,
) -> Result<Option<String>, MigrateError> {
    let found = TableSchema::read(conn, table.as_str()).await?;
    Ok(found.and_then(|found| of_comment(&found.comment).map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_read_from_among_other_words() {
        let id = random();
        let read = of_comment(&format!("tasks of the shop {id}")).map(|it| format!("{MARK}{it}"));
        assert_eq!(read, Some(id));
        for none in [
            "",
            "lapsed:",
            "lapsed:xyz",
            "lapsed:0123456789abcdeg",
            "tasks",
        ] {
            assert_eq!(of_comment(none), None, "{none}");
        }
    }
}
