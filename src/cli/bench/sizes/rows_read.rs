//! How many rows the database reads for a statement.

use anyhow::Context;
use sqlx::MySqlConnection;

/// Counters of rows and index entries that were read. Conditions on an index that the storage engine checks are not among the
/// rows of MySQL; MariaDB counts them apart.
const COUNTERS: &str = "SHOW GLOBAL STATUS WHERE Variable_name LIKE 'Handler\\_read%' OR Variable_name LIKE 'Handler\\_icp%'";

/// Reads the counter of all clients.
pub struct RowsRead {
    sql: MySqlConnection,
    /// What one reading itself adds.
    own: u64,
}

impl RowsRead {
    /// Finds out what a reading costs.
    pub async fn new(sql: MySqlConnection) -> anyhow::Result<Self> {
        let mut rows = Self { sql, own: 0 };
        // The first one also opens what the statement reads.
        rows.total().await?;
        let before = rows.total().await?;
        rows.own = rows.total().await?.saturating_sub(before);
        Ok(rows)
    }

    /// Starts counting.
    pub async fn start(&mut self) -> anyhow::Result<u64> {
        self.total().await
    }

    /// Returns the number of rows read since then.
    pub async fn since(&mut self, start: u64) -> anyhow::Result<u64> {
        Ok(self.total().await?.saturating_sub(start + self.own))
    }

    async fn total(&mut self) -> anyhow::Result<u64> {
        let rows: Vec<(String, String)> = sqlx::query_as(COUNTERS)
            .fetch_all(&mut self.sql)
            .await
            .context("read `SHOW GLOBAL STATUS`")?;
        Ok(read_of(&rows))
    }
}

/// Rows that were read, and index entries that a pushed condition left out.
fn read_of(counters: &[(String, String)]) -> u64 {
    let (mut read, mut tried, mut matched) = (0, 0, 0);
    for (name, value) in counters {
        let value: u64 = value.parse().unwrap_or(0);
        match name.as_str() {
            "Handler_icp_attempts" => tried = value,
            "Handler_icp_match" => matched = value,
            _ => read += value,
        }
    }
    read + tried.saturating_sub(matched)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_a_pushed_condition_leaves_out_were_read() {
        let counters = [
            ("Handler_icp_attempts", "100"),
            ("Handler_icp_match", "10"),
            ("Handler_read_key", "1"),
            ("Handler_read_next", "10"),
        ];
        let counters = counters.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(read_of(&counters), 101);
    }
}
