//! Pause check: active pauses, and the permission to pause.

use sqlx::{MySqlConnection, Row};

use super::rights::lacking;
use super::statement;
use crate::doctor::Finding;
use crate::doctor::runner::{Runner, Unresponsive};
use crate::ledger::mysql::queries::Queries;

const PAUSES: &str = "ledger.pauses";

const COUNT: &str = "SELECT COUNT(*) FROM `{t}_pauses`";

/// Test statements. Each matches no row and fails without its privilege.
const TRIALS: [(&str, &str); 2] = [
    (
        "INSERT",
        "INSERT INTO `{t}_pauses` (kind, class, method, since) SELECT '', '', '', 0 FROM DUAL WHERE 1 = 0",
    ),
    ("DELETE", "DELETE FROM `{t}_pauses` WHERE kind = ''"),
];

/// Checks the table of pauses, which exists.
pub(super) async fn examine(
    conn: &mut MySqlConnection,
    queries: &Queries,
    runner: &mut Runner,
) -> Result<(), Unresponsive> {
    let Some(active) = runner.query(&[PAUSES], count(conn, queries)).await? else {
        return Ok(());
    };
    let Some(refused) = runner
        .query(&[PAUSES], lacking(conn, queries, &TRIALS))
        .await?
    else {
        return Ok(());
    };
    runner.add([judge(queries, active, &refused)]);
    Ok(())
}

async fn count(conn: &mut MySqlConnection, queries: &Queries) -> sqlx::Result<i64> {
    let question = statement(queries.plain(COUNT));
    question.fetch_one(conn).await?.try_get(0)
}

fn judge(queries: &Queries, active: i64, refused: &[&str]) -> Finding {
    if !refused.is_empty() {
        let found = format!(
            "this user may not {} on the table of pauses: `lapsed pause`, `resume` and `listen --hold-overdue` need that, a daemon does not",
            refused.join(", ")
        );
        return Finding::note(PAUSES, found).remedy(queries.plain(
            "`GRANT SELECT, INSERT, DELETE ON {t}_pauses TO ...`, for the user that pauses",
        ));
    }
    match active {
        0 => Finding::ok(PAUSES, "nothing is paused"),
        _ => {
            let found = match active {
                1 => "a pause or hold is active: tasks that it covers stay pending".to_owned(),
                more => format!(
                    "{more} pauses, holds and releases are active: tasks that they cover stay pending"
                ),
            };
            Finding::note(PAUSES, found).remedy("see `lapsed pauses`")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;
    use crate::doctor::finding::tests::assert_is;
    use crate::task::TableName;

    #[test]
    fn active_pauses_and_missing_rights_are_noted() {
        let queries = Queries::new(&TableName::new("tasks").unwrap());
        assert_is(&judge(&queries, 0, &[]), Severity::Ok, "nothing is paused");
        assert_is(&judge(&queries, 1, &[]), Severity::Note, "a pause or hold");
        assert_is(&judge(&queries, 2, &[]), Severity::Note, "2 pauses");
        let refused = judge(&queries, 0, &["INSERT", "DELETE"]);
        assert_is(&refused, Severity::Note, "may not INSERT, DELETE");
        assert!(refused.remedy.unwrap().contains("ON tasks_pauses TO"));
    }
}
