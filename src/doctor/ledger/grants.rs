//! Permission check of the table: tries each statement of a daemon on no row.

use sqlx::{MySqlConnection, Row};

use super::{is_about_rights, statement};
use crate::doctor::Finding;
use crate::ledger::mysql::queries::Queries;
use crate::task::TableName;

pub(super) const GRANTS: &str = "ledger.grants";

const IDENTITY: &str = "SELECT CAST(CURRENT_USER() AS CHAR), CAST(DATABASE() AS CHAR)";

/// Test statements. Each matches no row, names only columns that every table has, and fails without its privilege.
const TRIALS: [(&str, &str); 4] = [
    ("SELECT", "SELECT id FROM `{t}` WHERE id = 0"),
    (
        "INSERT",
        "INSERT INTO `{t}` (`key`, status, start_time, end_time, sts) SELECT '', 0, 0, 0, 0 FROM DUAL WHERE 1 = 0",
    ),
    ("UPDATE", "UPDATE `{t}` SET status = status WHERE id = 0"),
    (DELETE, "DELETE FROM `{t}` WHERE id = 0"),
];

/// Privilege that only `[retention]`, `prune` and `discard` need.
const DELETE: &str = "DELETE";

/// User and database of this connection.
pub(super) async fn identity(conn: &mut MySqlConnection) -> sqlx::Result<(String, String)> {
    let row = sqlx::query(IDENTITY).fetch_one(conn).await?;
    Ok((row.try_get(0)?, row.try_get(1)?))
}

/// A refused privilege, the reason, and whether the reason is a missing privilege.
pub(super) struct Refused {
    right: &'static str,
    why: String,
    by_grants: bool,
}

pub(super) async fn refused(
    conn: &mut MySqlConnection,
    queries: &Queries,
) -> sqlx::Result<Vec<Refused>> {
    let mut refused = Vec::new();
    for (right, trial) in TRIALS {
        let tried = statement(queries.plain(trial)).execute(&mut *conn).await;
        match tried {
            Ok(_) => {}
            Err(error) => match error.as_database_error() {
                Some(refusal) => refused.push(Refused {
                    right,
                    why: refusal.message().to_owned(),
                    by_grants: is_about_rights(&error),
                }),
                None => return Err(error),
            },
        }
    }
    Ok(refused)
}

/// Judges the refusals. `deletes`: whether a daemon with this configuration deletes rows.
pub(super) fn grants(
    table: &TableName,
    (user, database): &(String, String),
    refused: &[Refused],
    deletes: bool,
) -> Vec<Finding> {
    let is_spare = |refused: &&Refused| refused.right == DELETE && !deletes;
    let (spare, needed): (Vec<&Refused>, Vec<&Refused>) = refused.iter().partition(is_spare);
    let (by_grants, otherwise): (Vec<&Refused>, Vec<&Refused>) =
        needed.iter().partition(|refused| refused.by_grants);
    // `CURRENT_USER()` returns `name@host`, and the name may contain an `@`.
    let (name, host) = user.rsplit_once('@').unwrap_or((user, "%"));
    let grant =
        |rights: &str| format!("`GRANT {rights} ON {database}.{table} TO '{name}'@'{host}'`");
    let mut findings = Vec::new();
    if !by_grants.is_empty() {
        let rights: Vec<&str> = by_grants.iter().map(|refused| refused.right).collect();
        let rights = rights.join(", ");
        findings.push(
            Finding::error(GRANTS, format!("{user} may not {rights} on `{table}`"))
                .remedy(grant(&rights)),
        );
    }
    for Refused { right, why, .. } in otherwise {
        findings.push(
            Finding::error(GRANTS, format!("{right} on `{table}` is refused: {why}"))
                .remedy("fix what the server reports"),
        );
    }
    if findings.is_empty() {
        let rights = match spare.is_empty() {
            true => "SELECT, INSERT, UPDATE and DELETE",
            false => "SELECT, INSERT and UPDATE",
        };
        findings.push(Finding::ok(GRANTS, format!("{user} may {rights}")));
    }
    if !spare.is_empty() {
        findings.push(
            Finding::note(
                GRANTS,
                format!("{user} may not DELETE on `{table}`: `lapsed prune`, `lapsed discard` and `[retention]` need that, nothing else does"),
            )
            .remedy(format!("{}, for the user that prunes", grant(DELETE))),
        );
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;

    #[test]
    fn missing_rights_are_named() {
        let refused = |right, by_grants| Refused {
            right,
            why: "no".to_owned(),
            by_grants,
        };
        let who = ("app@10.%".to_owned(), "shop".to_owned());
        let findings = grants(
            &TableName::new("tasks").unwrap(),
            &who,
            &[refused("INSERT", true), refused("UPDATE", true)],
            false,
        );
        assert_eq!(findings[0].severity, Severity::Error);
        assert_eq!(
            findings[0].remedy.as_deref(),
            Some("`GRANT INSERT, UPDATE ON shop.tasks TO 'app'@'10.%'`")
        );
        let findings = grants(
            &TableName::new("tasks").unwrap(),
            &who,
            &[refused("UPDATE", false)],
            false,
        );
        assert!(findings[0].found.contains("is refused: no"));
    }

    #[test]
    fn the_delete_right_is_required_only_if_rows_are_deleted() {
        let who = ("app@%".to_owned(), "shop".to_owned());
        let refused = [Refused {
            right: DELETE,
            why: "no".to_owned(),
            by_grants: true,
        }];
        let severities = |deletes| -> Vec<Severity> {
            let findings = grants(&TableName::new("tasks").unwrap(), &who, &refused, deletes);
            findings.iter().map(|finding| finding.severity).collect()
        };
        assert_eq!(severities(false), [Severity::Ok, Severity::Note]);
        assert_eq!(severities(true), [Severity::Error]);
    }
}
