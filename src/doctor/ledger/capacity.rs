//! Capacity checks: remaining ids, and the size of the table against the buffer pool.

use sqlx::{MySqlConnection, Row};

use super::statement;
use lapsed::diagnosis::Finding;
use lapsed::ledger::mysql::queries::Queries;
use lapsed::task::TableName;
use lapsed_core::format::{bytes, count};

pub(super) const ID: &str = "ledger.id";
pub(super) const BUFFER_POOL: &str = "ledger.buffer_pool";

const SIZE: &str = "SELECT CAST(COALESCE(DATA_LENGTH, 0) + COALESCE(INDEX_LENGTH, 0) AS SIGNED) \
     FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?";

/// Next id as the server reports it, and the column type.
const NEXT_ID: &str = "SELECT CAST(COALESCE(t.AUTO_INCREMENT, 0) AS SIGNED), CAST(c.COLUMN_TYPE AS CHAR) \
     FROM information_schema.TABLES t JOIN information_schema.COLUMNS c \
       ON c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME AND c.COLUMN_NAME = 'id' \
     WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = ?";

const LAST_ID: &str = "SELECT CAST(COALESCE(MAX(id), 0) AS SIGNED) FROM `{t}`";

pub(super) async fn next_id(
    conn: &mut MySqlConnection,
    table: &TableName,
    queries: &Queries,
) -> sqlx::Result<Option<(u64, String)>> {
    let counter = sqlx::query(NEXT_ID)
        .bind(table.as_str())
        .fetch_optional(&mut *conn)
        .await?;
    let Some(counter) = counter else {
        return Ok(None);
    };
    let last = statement(queries.plain(LAST_ID)).fetch_one(conn).await?;
    let (counter, column_type): (i64, String) = (counter.try_get(0)?, counter.try_get(1)?);
    let next = counter.max(last.try_get::<i64, _>(0)?);
    Ok(Some((next.unsigned_abs(), column_type)))
}

/// Judges the remaining ids. `column_type` as in `int(10) unsigned`.
pub(super) fn id_capacity(table: &TableName, next: u64, column_type: &str) -> Finding {
    let column_type = column_type.to_ascii_lowercase();
    let word = column_type.split([' ', '(']).next().unwrap_or_default();
    let bits = match word {
        "tinyint" => 8,
        "smallint" => 16,
        "mediumint" => 24,
        "int" | "integer" => 32,
        _ => 64,
    };
    let signed = u32::from(!column_type.contains("unsigned"));
    let most = u64::MAX >> (64 - bits + signed);
    let used = next as f64 / most as f64;
    if used <= 0.8 {
        return Finding::ok(
            ID,
            format!(
                "{:.0} % of the ids of `{column_type}` are used",
                used * 100.0
            ),
        );
    }
    Finding::warning(
        ID,
        format!(
            "{:.0} % of the ids of `{column_type}` are used ({} of {}): after the last one no task can be created; each re-creation of a key uses one up too",
            used * 100.0,
            count(next),
            count(most)
        ),
    )
    .remedy(format!(
        "`ALTER TABLE {table} MODIFY id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT`: it copies the table, and writers wait meanwhile"
    ))
}

pub(super) async fn size(conn: &mut MySqlConnection, table: &TableName) -> sqlx::Result<u64> {
    let row = sqlx::query(SIZE)
        .bind(table.as_str())
        .fetch_optional(conn)
        .await?;
    let size: i64 = row.map_or(Ok(0), |row| row.try_get(0))?;
    Ok(size.unsigned_abs())
}

pub(super) fn buffer_pool(size: u64, pool: Option<u64>) -> Finding {
    let Some(pool) = pool else {
        return Finding::unknown(
            BUFFER_POOL,
            "the server does not show `innodb_buffer_pool_size`",
        );
    };
    let (has, needs) = (bytes(pool), bytes(size));
    if size <= pool {
        let found = format!("the table and its indexes ({needs}) fit into the buffer pool ({has})");
        return Finding::ok(BUFFER_POOL, found);
    }
    Finding::warning(
        BUFFER_POOL,
        format!("the table and its indexes ({needs}) do not fit into the buffer pool ({has}): measured, that takes throughput from 20,000 tasks a second to 3,000"),
    )
    .remedy(format!(
        "set `innodb_buffer_pool_size` to {} or more, or delete rows that are finished (`status` 1 to 3)",
        bytes(size.saturating_add(size / 4))
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapsed::diagnosis::Severity;

    #[test]
    fn ids_warn_when_four_fifths_are_used() {
        let judge = |next, column_type| {
            id_capacity(&TableName::new("tasks").unwrap(), next, column_type).severity
        };
        assert_eq!(judge(3_400_000_000, "int(10) unsigned"), Severity::Ok);
        assert_eq!(judge(3_500_000_000, "int(10) unsigned"), Severity::Warning);
        assert_eq!(judge(1_800_000_000, "INT(11)"), Severity::Warning);
        assert_eq!(judge(60_000, "smallint unsigned"), Severity::Warning);
        assert_eq!(judge(3_500_000_000, "bigint(20) unsigned"), Severity::Ok);
        assert_eq!(judge(3_500_000_000, "bigint"), Severity::Ok);
    }

    #[test]
    fn a_table_that_outgrows_the_buffer_pool_is_reported_with_the_cost() {
        let mib = |n: u64| n * 1024 * 1024;
        let judged = buffer_pool(mib(142), Some(mib(128)));
        assert_eq!(judged.severity, Severity::Warning);
        assert!(
            judged
                .found
                .contains("(142 MiB) do not fit into the buffer pool (128 MiB)")
        );
        assert!(judged.remedy.unwrap().contains("178 MiB"));
        assert_eq!(buffer_pool(mib(128), Some(mib(128))).severity, Severity::Ok);
        assert_eq!(buffer_pool(0, None).severity, Severity::Note);
    }
}
