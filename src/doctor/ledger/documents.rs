//! Documents check: the table of the audit log, the history and the answers of batches.

use sqlx::MySqlConnection;

use super::number;
use super::rates::NO_SUCH_TABLE;
use super::rights::lacking;
use crate::Config;
use crate::doctor::Finding;
use crate::doctor::runner::{Runner, Unresponsive};
use crate::ledger::mysql::queries::Queries;

pub(in crate::doctor) const DOCUMENTS: &str = "ledger.documents";

/// Test statements. Each matches no row, and fails without its privilege, column or index.
const TRIALS: [(&str, &str); 4] = [
    (
        "SELECT",
        "SELECT name, written_at, body FROM `{t}_documents` FORCE INDEX (ix_written) WHERE collection = ''",
    ),
    (
        "INSERT",
        "INSERT INTO `{t}_documents` (collection, name, written_at, body) SELECT '', '', 0, '' FROM DUAL WHERE 1 = 0",
    ),
    (
        "UPDATE",
        "UPDATE `{t}_documents` SET body = body WHERE collection = ''",
    ),
    (
        "DELETE",
        "DELETE FROM `{t}_documents` WHERE collection = ''",
    ),
];

const NO_SUCH_COLUMN: u16 = 1054;
const NO_SUCH_INDEX: u16 = 1176;

/// Checks the table of documents.
pub(super) async fn examine(
    config: &Config,
    conn: &mut MySqlConnection,
    queries: &Queries,
    runner: &mut Runner,
) -> Result<(), Unresponsive> {
    let lack = runner.query(&[DOCUMENTS], lack(conn, queries)).await?;
    let serves = config.http.listen.is_some();
    runner.add(lack.map(|lack| judge(queries, serves, &lack)));
    Ok(())
}

/// Why the table cannot be used.
enum Lack {
    Nothing,
    Table,
    /// It has another shape, as the server says.
    Shape(String),
    Rights(Vec<&'static str>),
}

async fn lack(conn: &mut MySqlConnection, queries: &Queries) -> sqlx::Result<Lack> {
    let error = match lacking(conn, queries, &TRIALS).await {
        Ok(rights) if rights.is_empty() => return Ok(Lack::Nothing),
        Ok(rights) => return Ok(Lack::Rights(rights)),
        Err(error) => error,
    };
    match (number(&error), error.as_database_error()) {
        (Some(NO_SUCH_TABLE), _) => Ok(Lack::Table),
        (Some(NO_SUCH_COLUMN | NO_SUCH_INDEX), Some(refusal)) => {
            Ok(Lack::Shape(refusal.message().to_owned()))
        }
        _ => Err(error),
    }
}

/// Judges the state. `serves`: whether a daemon with this configuration serves HTTP, which needs the table most.
fn judge(queries: &Queries, serves: bool, lack: &Lack) -> Finding {
    let table = queries.plain("`{t}_documents`");
    let (found, remedy) = match lack {
        Lack::Nothing => {
            return Finding::ok(DOCUMENTS, "the audit log and the history can be written");
        }
        Lack::Table => (
            format!("table {table} does not exist"),
            "run `lapsed migrate` (`lapsed migrate --dry-run` shows what it would do)".to_owned(),
        ),
        Lack::Shape(why) => (
            format!("table {table} is not as it should be: {why}"),
            format!("rename {table}, then run `lapsed migrate`, which creates it"),
        ),
        Lack::Rights(rights) => (
            format!("this user may not {} on {table}", rights.join(", ")),
            queries.plain(
                "`GRANT SELECT, INSERT, UPDATE, DELETE ON {t}_documents TO ...`; if the table does not exist, run `lapsed migrate` first",
            ),
        ),
    };
    let found = format!("{found}: {WITHOUT}");
    match serves {
        true => Finding::warning(DOCUMENTS, found).remedy(remedy),
        false => Finding::note(DOCUMENTS, found).remedy(remedy),
    }
}

/// What fails without the table. Tasks run.
pub(in crate::doctor) const WITHOUT: &str =
    "there is no audit log, no history across restarts, and `Idempotency-Key` fails";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;
    use crate::doctor::finding::tests::assert_is;
    use crate::task::TableName;

    #[test]
    fn what_is_missing_is_named_with_its_remedy() {
        let queries = Queries::new(&TableName::new("tasks").unwrap());
        let judge = |serves, lack| judge(&queries, serves, &lack);
        assert_is(&judge(true, Lack::Nothing), Severity::Ok, "can be written");
        for (lack, found, remedy) in [
            (
                Lack::Table,
                "`tasks_documents` does not exist: there is no audit log",
                "run `lapsed migrate`",
            ),
            (
                Lack::Shape("Unknown column 'body'".to_owned()),
                "not as it should be: Unknown column 'body'",
                "rename `tasks_documents`",
            ),
            (
                Lack::Rights(vec!["INSERT", "DELETE"]),
                "may not INSERT, DELETE on `tasks_documents`",
                "ON tasks_documents TO",
            ),
        ] {
            let finding = judge(true, lack);
            assert_is(&finding, Severity::Warning, found);
            assert!(finding.remedy.unwrap().contains(remedy));
        }
        assert_is(&judge(false, Lack::Table), Severity::Note, "does not exist");
    }
}
