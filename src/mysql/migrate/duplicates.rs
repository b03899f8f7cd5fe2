//! Moves the surplus rows of duplicated keys to a table of their own, so that the unique key can be added.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, MySqlConnection};

use super::error::{is_one_of, number};
use super::introspect::TableSchema;
use super::{MigrateError, compare};
use lapsed_core::task::TableName;

const BATCH: usize = 500;
const TRIES: u32 = 10;

/// Ranks the row to keep first: the live one that is due last, else the newest.
const RANK: &str = "ROW_NUMBER() OVER (PARTITION BY `key` \
    ORDER BY (status = 0 AND sts = 0) DESC, IF(status = 0 AND sts = 0, end_time, 0) DESC, id DESC)";

/// Counts the rows that a unique key would refuse. Reads the whole table, or its index on the key.
pub(super) async fn count(
    conn: &mut MySqlConnection,
    table: &TableName,
    found: &TableSchema,
) -> Result<u64, MigrateError> {
    let key = match compare::key_collation_to_be(found) {
        Some(collation) => format!("`key` COLLATE {collation}"),
        None => "`key`".to_owned(),
    };
    let statement = format!(
        "SELECT CAST(COALESCE(SUM(n - 1), 0) AS UNSIGNED) FROM \
         (SELECT COUNT(*) AS n FROM `{table}` GROUP BY {key} HAVING COUNT(*) > 1) AS duplicated"
    );
    sqlx::query_scalar(AssertSqlSafe(statement))
        .fetch_one(conn)
        .await
        .map_err(MigrateError::sql(format!(
            "count the duplicated keys of table `{table}`"
        )))
}

/// Moves all surplus rows. Each batch is one transaction: if the process is killed, every row is in exactly one table.
pub(super) async fn move_away(
    conn: &mut MySqlConnection,
    table: &TableName,
) -> Result<u64, MigrateError> {
    let action = || MigrateError::sql(format!("move surplus rows to `{}`", table.duplicates()));
    let found = TableSchema::read(conn, table.as_str()).await?;
    let columns: Vec<String> = found
        .iter()
        .flat_map(TableSchema::stored_columns)
        .map(|column| format!("`{}`", column.name.replace('`', "``")))
        .collect();
    let columns = columns.join(", ");

    let surplus = sqlx::query_scalar(AssertSqlSafe(surplus_statement(table, "TRUE")))
        .fetch_all(&mut *conn)
        .await
        .map_err(action())?;
    let mut moved = 0;
    for batch in surplus.chunks(BATCH) {
        moved += move_patiently(conn, table, &columns, batch)
            .await
            .map_err(action())?;
    }
    Ok(moved)
}

async fn move_patiently(
    conn: &mut MySqlConnection,
    table: &TableName,
    columns: &str,
    batch: &[u64],
) -> sqlx::Result<u64> {
    for tried in 1..TRIES {
        match move_batch(conn, table, columns, batch).await {
            Err(error) if is_one_of(&error, &number::TRANSIENT) => {
                tokio::time::sleep(Duration::from_millis(50) * tried).await;
            }
            moved => return moved,
        }
    }
    move_batch(conn, table, columns, batch).await
}

/// Moves those of `batch` that are still surplus once all rows of their keys are locked.
async fn move_batch(
    conn: &mut MySqlConnection,
    table: &TableName,
    columns: &str,
    batch: &[u64],
) -> sqlx::Result<u64> {
    let mut tx = conn.begin().await?;
    let batch = list(batch);
    let siblings: Vec<u64> = sqlx::query_scalar(AssertSqlSafe(format!(
        "SELECT CAST(sibling.id AS UNSIGNED) FROM `{table}` AS surplus JOIN `{table}` AS sibling ON sibling.`key` = surplus.`key` \
         WHERE surplus.id IN ({batch}) FOR UPDATE"
    )))
    .fetch_all(&mut *tx)
    .await?;
    if siblings.is_empty() {
        return Ok(0);
    }
    let among = format!("id IN ({})", list(&siblings));
    let surplus: Vec<u64> = sqlx::query_scalar(AssertSqlSafe(surplus_statement(table, &among)))
        .fetch_all(&mut *tx)
        .await?;
    if surplus.is_empty() {
        return Ok(0);
    }
    let surplus = list(&surplus);
    let copied = sqlx::raw_sql(AssertSqlSafe(format!(
        "INSERT INTO `{}` ({columns}) SELECT {columns} FROM `{table}` WHERE id IN ({surplus})",
        table.duplicates()
    )))
    .execute(&mut *tx)
    .await?
    .rows_affected();
    let deleted = sqlx::raw_sql(AssertSqlSafe(format!(
        "DELETE FROM `{table}` WHERE id IN ({surplus})"
    )))
    .execute(&mut *tx)
    .await?
    .rows_affected();
    if copied != deleted {
        // Dropping the transaction rolls back both.
        return Err(sqlx::Error::Protocol(format!(
            "{copied} rows copied, but {deleted} deleted"
        )));
    }
    tx.commit().await?;
    Ok(deleted)
}

fn surplus_statement(table: &TableName, among: &str) -> String {
    format!(
        "SELECT CAST(id AS UNSIGNED) FROM (SELECT id, {RANK} AS place FROM `{table}` WHERE {among}) AS ranked \
         WHERE place > 1 ORDER BY id"
    )
}

fn list(ids: &[u64]) -> String {
    let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
    ids.join(", ")
}
