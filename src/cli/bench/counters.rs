//! Server counters: statements and commands of all clients.

use std::collections::HashMap;

use anyhow::Context;
use sqlx::MySqlConnection;

/// Reads the counters over separate connections.
pub struct Counters {
    sql: Option<MySqlConnection>,
    redis: Option<redis::aio::MultiplexedConnection>,
}

/// One reading, or the difference of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// `Questions`: statements of clients; pings and the preparing of statements are not counted. `None` without a server.
    pub sql: Option<u64>,
    /// `Innodb_data_fsyncs`: how often the database has waited for its disk; `None` without a server.
    pub syncs: Option<u64>,
    /// `Innodb_os_log_written`: bytes of the database's log; `None` without a server.
    pub log_bytes: Option<u64>,
    /// Calls in `INFO commandstats`, except `INFO` itself; `None` if Redis does not answer.
    pub redis: Option<u64>,
}

impl Counters {
    pub fn new(
        sql: Option<MySqlConnection>,
        redis: Option<redis::aio::MultiplexedConnection>,
    ) -> Self {
        Self { sql, redis }
    }

    /// Reads the counters of both servers.
    pub async fn read(&mut self) -> anyhow::Result<Counts> {
        let status = match &mut self.sql {
            Some(sql) => status(sql).await?,
            None => HashMap::new(),
        };
        let value = |name: &str| status.get(name).and_then(|value| value.parse().ok());
        let redis = match &mut self.redis {
            Some(redis) => calls(redis).await.ok(),
            None => None,
        };
        Ok(Counts {
            sql: value("Questions"),
            syncs: value("Innodb_data_fsyncs"),
            log_bytes: value("Innodb_os_log_written"),
            redis,
        })
    }
}

impl Counts {
    /// Difference to `earlier`, without the statements of the reading itself.
    pub fn since(self, earlier: Self) -> Self {
        let grown = |now: Option<u64>, then: Option<u64>| {
            now.zip(then).map(|(now, then)| now.saturating_sub(then))
        };
        Self {
            sql: grown(self.sql, earlier.sql).map(|statements| statements.saturating_sub(1)),
            syncs: grown(self.syncs, earlier.syncs),
            log_bytes: grown(self.log_bytes, earlier.log_bytes),
            redis: grown(self.redis, earlier.redis),
        }
    }
}

/// Reads the values of the database's status that are measured, by name.
async fn status(sql: &mut MySqlConnection) -> anyhow::Result<HashMap<String, String>> {
    let query = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Questions', 'Innodb_data_fsyncs', 'Innodb_os_log_written')";
    let rows: Vec<(String, String)> = sqlx::query_as(query)
        .fetch_all(sql)
        .await
        .context("read `SHOW GLOBAL STATUS`")?;
    Ok(rows.into_iter().collect())
}

async fn calls(redis: &mut redis::aio::MultiplexedConnection) -> redis::RedisResult<u64> {
    let text: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(redis)
        .await?;
    Ok(sum_of_calls(&text))
}

/// Adds up lines such as `cmdstat_pttl:calls=12,usec=30,..`.
fn sum_of_calls(text: &str) -> u64 {
    let calls: HashMap<&str, u64> = text
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name, rest.split(',').next()?.parse().ok()?))
        })
        .collect();
    let own = |name: &&&str| **name != "info";
    calls.keys().filter(own).map(|name| calls[name]).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_all_commands_but_the_question_itself_are_added() {
        let text = "# Commandstats\r\ncmdstat_pttl:calls=12,usec=30\r\ncmdstat_info:calls=5,usec=1\r\ncmdstat_config|get:calls=3,usec=9\r\n";
        assert_eq!(sum_of_calls(text), 15);
    }

    #[test]
    fn a_reading_does_not_count_itself() {
        let at = |sql, redis| Counts {
            sql,
            syncs: sql,
            log_bytes: None,
            redis,
        };
        let syncs = |counts: Counts, syncs| Counts { syncs, ..counts };
        assert_eq!(
            at(Some(110), Some(7)).since(at(Some(100), Some(4))),
            syncs(at(Some(9), Some(3)), Some(10))
        );
        assert_eq!(
            at(Some(5), None).since(at(Some(5), Some(4))),
            at(Some(0), None)
        );
        assert_eq!(at(None, None).since(at(None, None)), at(None, None));
    }
}
