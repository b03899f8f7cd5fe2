//! What is paused, and whether this user may pause.

use sqlx::{AssertSqlSafe, MySqlConnection, Row};

use super::Finding;
use super::checkup::{Checkup, Silent};
use super::ledger::number;
use crate::ledger::mysql::queries::Queries;

const PAUSES: &str = "ledger.pauses";

const COUNT: &str = "SELECT COUNT(*) FROM `{t}_pauses`";

/// Each matches no row, and is refused without its right.
const TRIALS: [(&str, &str); 2] = [
    (
        "INSERT",
        "INSERT INTO `{t}_pauses` (kind, class, method, since) SELECT '', '', '', 0 FROM DUAL WHERE 1 = 0",
    ),
    ("DELETE", "DELETE FROM `{t}_pauses` WHERE kind = ''"),
];

/// Examines the table of pauses, which is there.
pub(super) async fn examine(
    conn: &mut MySqlConnection,
    queries: &Queries,
    checkup: &mut Checkup,
) -> Result<(), Silent> {
    let Some(standing) = checkup.learn(&[PAUSES], count(conn, queries)).await? else {
        return Ok(());
    };
    let Some(refused) = checkup.learn(&[PAUSES], refused(conn, queries)).await? else {
        return Ok(());
    };
    checkup.add([judge(queries, standing, &refused)]);
    Ok(())
}

async fn count(conn: &mut MySqlConnection, queries: &Queries) -> sqlx::Result<i64> {
    let question = sqlx::query(AssertSqlSafe(queries.plain(COUNT)));
    question.fetch_one(conn).await?.try_get(0)
}

/// The rights that are missing.
async fn refused(conn: &mut MySqlConnection, queries: &Queries) -> sqlx::Result<Vec<&'static str>> {
    let mut refused = Vec::new();
    for (right, trial) in TRIALS {
        let trial = sqlx::query(AssertSqlSafe(queries.plain(trial)));
        match trial.execute(&mut *conn).await {
            Ok(_) => {}
            Err(error) if matches!(number(&error), Some(1044 | 1142 | 1143 | 1227 | 1370)) => {
                refused.push(right);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(refused)
}

fn judge(queries: &Queries, standing: i64, refused: &[&str]) -> Finding {
    if !refused.is_empty() {
        let found = format!(
            "this user may not {} on the table of pauses: `lapsed pause`, `resume` and `listen --hold-overdue` need that, a daemon does not",
            refused.join(", ")
        );
        return Finding::note(PAUSES, found).remedy(queries.plain(
            "`GRANT SELECT, INSERT, DELETE ON {t}_pauses TO ...`, for whoever is to pause",
        ));
    }
    match standing {
        0 => Finding::ok(PAUSES, "nothing is paused"),
        _ => {
            let found = match standing {
                1 => "a pause or hold stands: tasks that it covers stay pending".to_owned(),
                more => format!(
                    "{more} pauses, holds and releases stand: tasks that they cover stay pending"
                ),
            };
            Finding::note(PAUSES, found).remedy("see `lapsed pauses`")
        }
    }
}
