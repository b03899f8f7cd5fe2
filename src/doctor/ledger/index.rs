//! Index checks: the sweep uses `ix_due`, and no index is redundant.

use sqlx::mysql::MySqlRow;
use sqlx::{Column, MySqlConnection, Row};

use super::backlog::scan;
use super::number;
use lapsed::diagnosis::Finding;
use lapsed::ledger::mysql::queries::{Queries, SCAN_OVERDUE_OLDEST};
use lapsed::task::TableName;

pub(super) const INDEX: &str = "ledger.index";
pub(super) const LEGACY_INDEX: &str = "ledger.legacy_index";

/// Error number for a forced index that cannot be used.
const NO_SUCH_INDEX: u16 = 1176;

/// Indexes on `key` alone.
const KEY_INDEXES: &str = "SELECT CAST(s.INDEX_NAME AS CHAR), CAST(MIN(s.NON_UNIQUE) AS SIGNED) \
     FROM information_schema.STATISTICS s WHERE s.TABLE_SCHEMA = DATABASE() AND s.TABLE_NAME = ? \
     GROUP BY s.INDEX_NAME HAVING COUNT(*) = 1 AND MIN(s.COLUMN_NAME) = 'key'";

/// Query plan of the sweep: the index and, if reported, the access type.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AccessPlan {
    uses_index: bool,
    access: Option<String>,
}

/// Explains the sweep's scan. `None`: the index exists, but the server may not use it.
pub(super) async fn explain(
    conn: &mut MySqlConnection,
    queries: &Queries,
) -> sqlx::Result<Option<AccessPlan>> {
    // The tree format of MySQL 9 does not say whether the whole index is read.
    let question = format!(
        "EXPLAIN FORMAT=TRADITIONAL {}",
        queries.plain(SCAN_OVERDUE_OLDEST)
    );
    let rows = match scan(question, 1).fetch_all(conn).await {
        Err(error) if number(&error) == Some(NO_SUCH_INDEX) => return Ok(None),
        rows => rows?,
    };
    let text = |row: &MySqlRow, name: &str| {
        let column = row.columns().iter().find(|column| column.name() == name)?;
        row.try_get_unchecked::<Option<String>, _>(column.ordinal())
            .ok()
            .flatten()
    };
    // The traditional format has a column for the index; other formats are prose.
    let is_classic = |row: &MySqlRow| row.columns().iter().any(|column| column.name() == "key");
    let in_prose = |row: &MySqlRow| {
        (0..row.columns().len()).any(|index| {
            row.try_get_unchecked::<Option<String>, _>(index)
                .is_ok_and(|text| text.is_some_and(|text| text.contains("ix_due")))
        })
    };
    let uses_index = |row: &MySqlRow| match is_classic(row) {
        true => text(row, "key").is_some_and(|key| key == "ix_due"),
        false => in_prose(row),
    };
    Ok(Some(AccessPlan {
        uses_index: rows.iter().any(uses_index),
        access: rows.first().and_then(|row| text(row, "type")),
    }))
}

pub(super) fn judge_plan(table: &TableName, plan: Option<&AccessPlan>) -> Finding {
    let Some(AccessPlan { uses_index, access }) = plan else {
        return Finding::error(
            INDEX,
            "`ix_due` is ignored or invisible: every sweep is refused",
        )
        .remedy(format!(
            "`ALTER TABLE {table} ALTER INDEX ix_due NOT IGNORED` (MySQL: `VISIBLE`)"
        ));
    };
    let scans = matches!(access.as_deref(), Some("ALL" | "index"));
    if *uses_index && !scans {
        return Finding::ok(INDEX, "due tasks are found through `ix_due`");
    }
    Finding::warning(
        INDEX,
        "due tasks are not found through `ix_due`: each sweep reads the whole table",
    )
    .remedy(
        "run `ANALYZE TABLE` on it; if that does not help, drop `ix_due` and run `lapsed migrate`",
    )
}

/// An index on `key` alone, and whether it is unique.
pub(super) struct KeyIndex {
    name: String,
    unique: bool,
}

pub(super) async fn key_indexes(
    conn: &mut MySqlConnection,
    table: &TableName,
) -> sqlx::Result<Vec<KeyIndex>> {
    let rows = sqlx::query(KEY_INDEXES)
        .bind(table.as_str())
        .fetch_all(conn)
        .await?;
    rows.iter()
        .map(|row| {
            Ok(KeyIndex {
                name: row.try_get(0)?,
                unique: row.try_get::<i64, _>(1)? == 0,
            })
        })
        .collect()
}

pub(super) fn legacy_index(table: &TableName, indexes: &[KeyIndex]) -> Option<Finding> {
    let unique = indexes.iter().find(|index| index.unique)?;
    let spare = indexes.iter().find(|index| !index.unique)?;
    let (unique, spare) = (&unique.name, &spare.name);
    Some(
        Finding::note(
            LEGACY_INDEX,
            format!("index `{spare}` is redundant with `{unique}`, and each insert writes both"),
        )
        .remedy(format!("`ALTER TABLE {table} DROP INDEX {spare}`")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapsed::diagnosis::Severity;

    #[test]
    fn a_scan_of_the_table_or_of_the_whole_index_is_a_warning() {
        let judge = |uses_index, access: &str| {
            let access = Some(access.to_owned());
            judge_plan(
                &TableName::new("tasks").unwrap(),
                Some(&AccessPlan { uses_index, access }),
            )
            .severity
        };
        assert_eq!(judge(true, "range"), Severity::Ok);
        assert_eq!(judge(true, "index"), Severity::Warning);
        assert_eq!(judge(false, "ALL"), Severity::Warning);
    }

    #[test]
    fn an_unusable_index_is_an_error() {
        let judged = judge_plan(&TableName::new("tasks").unwrap(), None);
        assert_eq!(judged.severity, Severity::Error);
        assert!(judged.remedy.unwrap().contains("TABLE tasks ALTER INDEX"));
    }

    #[test]
    fn an_index_beside_a_unique_one_of_the_key_is_redundant() {
        let table = TableName::new("tasks").unwrap();
        let index = |name: &str, unique| KeyIndex {
            name: name.to_owned(),
            unique,
        };
        let judge = |indexes: &[KeyIndex]| legacy_index(&table, indexes);
        assert_eq!(judge(&[index("uk_key", true)]), None);
        assert_eq!(judge(&[index("key", false)]), None);
        let spare = judge(&[index("key", false), index("uk_key", true)]).unwrap();
        assert_eq!(spare.severity, Severity::Note);
        assert_eq!(
            spare.remedy.as_deref(),
            Some("`ALTER TABLE tasks DROP INDEX key`")
        );
    }
}
