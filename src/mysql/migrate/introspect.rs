//! Introspection: the schema of a table, as the server reports it.

use std::time::Duration;

use sqlx::mysql::MySqlRow;
use sqlx::{MySqlConnection, Row};

use super::MigrateError;

/// Casts every text of `information_schema`, since some servers send it as VARBINARY.
const TABLE: &str = "\
SELECT CAST(TABLE_TYPE AS CHAR) AS kind, CAST(ENGINE AS CHAR) AS engine, CAST(COALESCE(TABLE_ROWS, 0) AS SIGNED) AS row_count,
  CAST(TABLE_COMMENT AS CHAR) AS comment
FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?";

const COLUMNS: &str = "\
SELECT CAST(COLUMN_NAME AS CHAR) AS name, CAST(DATA_TYPE AS CHAR) AS data_type, CAST(COLUMN_TYPE AS CHAR) AS column_type,
  CAST(IS_NULLABLE AS CHAR) AS nullable, CAST(COLUMN_DEFAULT AS CHAR) AS default_value, CAST(EXTRA AS CHAR) AS extra,
  CAST(COALESCE(CHARACTER_MAXIMUM_LENGTH, 0) AS SIGNED) AS length, CAST(CHARACTER_SET_NAME AS CHAR) AS charset,
  CAST(COLLATION_NAME AS CHAR) AS collation_name, CAST(COLUMN_COMMENT AS CHAR) AS comment,
  CAST(GENERATION_EXPRESSION AS CHAR) AS expression
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? ORDER BY ORDINAL_POSITION";

const INDEXES: &str = "\
SELECT CAST(INDEX_NAME AS CHAR) AS name, CAST(NON_UNIQUE AS SIGNED) AS non_unique, CAST(COLUMN_NAME AS CHAR) AS column_name,
  CAST(SUB_PART AS SIGNED) AS prefix
FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? ORDER BY INDEX_NAME, SEQ_IN_INDEX";

/// How often a schema that is not whole is read, and the pause between two readings.
const TRIES: usize = 10;
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, PartialEq)]
pub(super) struct TableSchema {
    pub(super) kind: String,
    pub(super) engine: Option<String>,
    pub(super) rows_estimate: u64,
    pub(super) comment: String,
    pub(super) columns: Vec<Column>,
    pub(super) indexes: Vec<Index>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Column {
    pub(super) name: String,
    /// `decimal`
    pub(super) data_type: String,
    /// `decimal(13,3) unsigned`
    pub(super) column_type: String,
    pub(super) nullable: bool,
    pub(super) default: Option<String>,
    pub(super) extra: String,
    /// In characters; 0 for a column that is not text.
    pub(super) length: u64,
    pub(super) charset: Option<String>,
    pub(super) collation: Option<String>,
    pub(super) comment: String,
    /// Empty for ordinary columns.
    pub(super) expression: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Index {
    pub(super) name: String,
    pub(super) unique: bool,
    /// A prefix is written as in `key(20)`.
    pub(super) columns: Vec<String>,
}

impl TableSchema {
    /// Reads the schema of a table. `None` if there is no such table.
    pub(super) async fn read(
        conn: &mut MySqlConnection,
        table: &str,
    ) -> Result<Option<Self>, MigrateError> {
        let failed = MigrateError::sql(format!("read the schema of table `{table}`"));
        let mut schema = Self::query(conn, table).await;
        for _ in 1..TRIES {
            match &schema {
                // Another migration creates or changes the table at this moment.
                Ok(Some(seen)) if !seen.is_whole() => {
                    tokio::time::sleep(PAUSE).await;
                    schema = Self::query(conn, table).await;
                }
                _ => break,
            }
        }
        schema.map_err(failed)
    }

    async fn query(conn: &mut MySqlConnection, table: &str) -> sqlx::Result<Option<Self>> {
        let Some(head) = sqlx::query(TABLE)
            .bind(table)
            .fetch_optional(&mut *conn)
            .await?
        else {
            return Ok(None);
        };
        let columns = sqlx::query(COLUMNS)
            .bind(table)
            .fetch_all(&mut *conn)
            .await?;
        let indexes = sqlx::query(INDEXES)
            .bind(table)
            .fetch_all(&mut *conn)
            .await?;
        Ok(Some(Self {
            kind: head.try_get("kind")?,
            engine: head.try_get("engine")?,
            rows_estimate: head.try_get::<i64, _>("row_count")?.unsigned_abs(),
            comment: head
                .try_get::<Option<String>, _>("comment")?
                .unwrap_or_default(),
            columns: columns.iter().map(column).collect::<Result<_, _>>()?,
            indexes: group(&indexes)?,
        }))
    }

    /// False if the table was not there yet when its columns were read, or could not be opened to read its engine. Views have
    /// none.
    fn is_whole(&self) -> bool {
        !self.columns.is_empty() && (self.engine.is_some() || self.kind != "BASE TABLE")
    }

    pub(super) fn column(&self, name: &str) -> Option<&Column> {
        self.columns
            .iter()
            .find(|column| column.name.eq_ignore_ascii_case(name))
    }

    /// Returns the columns that an INSERT can name.
    pub(super) fn stored_columns(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| !column.is_generated())
    }
}

impl Column {
    pub(super) fn is_generated(&self) -> bool {
        !self.expression.is_empty()
    }

    pub(super) fn is_auto_increment(&self) -> bool {
        self.extra.to_ascii_lowercase().contains("auto_increment")
    }

    /// True if an INSERT may leave the column out.
    pub(super) fn is_optional(&self) -> bool {
        self.nullable || self.default.is_some() || self.is_generated() || self.is_auto_increment()
    }
}

fn column(row: &MySqlRow) -> sqlx::Result<Column> {
    let text = |name| row.try_get::<Option<String>, _>(name);
    Ok(Column {
        name: row.try_get("name")?,
        data_type: text("data_type")?.unwrap_or_default().to_ascii_lowercase(),
        column_type: text("column_type")?
            .unwrap_or_default()
            .to_ascii_lowercase(),
        nullable: text("nullable")?.as_deref() == Some("YES"),
        default: text("default_value")?,
        extra: text("extra")?.unwrap_or_default(),
        length: row.try_get::<i64, _>("length")?.unsigned_abs(),
        charset: text("charset")?,
        collation: text("collation_name")?,
        comment: text("comment")?.unwrap_or_default(),
        expression: text("expression")?.unwrap_or_default(),
    })
}

/// Groups rows, one for each column of an index, by index.
fn group(rows: &[MySqlRow]) -> sqlx::Result<Vec<Index>> {
    let mut indexes: Vec<Index> = Vec::new();
    for row in rows {
        let name: String = row.try_get("name")?;
        // An index on an expression has no column name.
        let column: Option<String> = row.try_get("column_name")?;
        let column = column.unwrap_or_else(|| "(expression)".to_owned());
        let column = match row.try_get::<Option<i64>, _>("prefix")? {
            Some(prefix) => format!("{column}({prefix})"),
            None => column,
        };
        match indexes.last_mut().filter(|index| index.name == name) {
            Some(index) => index.columns.push(column),
            None => indexes.push(Index {
                unique: row.try_get::<i64, _>("non_unique")? == 0,
                columns: vec![column],
                name,
            }),
        }
    }
    Ok(indexes)
}
