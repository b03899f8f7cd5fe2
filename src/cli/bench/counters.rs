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
        let sql = match &mut self.sql {
            Some(sql) => Some(questions(sql).await?),
            None => None,
        };
        let redis = match &mut self.redis {
            Some(redis) => calls(redis).await.ok(),
            None => None,
        };
        Ok(Counts { sql, redis })
    }
}

impl Counts {
    /// Difference to `earlier`, without the statements of the reading itself.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            sql: self
                .sql
                .zip(earlier.sql)
                .map(|(now, then)| now.saturating_sub(then + 1)),
            redis: self
                .redis
                .zip(earlier.redis)
                .map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

async fn questions(sql: &mut MySqlConnection) -> anyhow::Result<u64> {
    let (_, questions): (String, String) = sqlx::query_as("SHOW GLOBAL STATUS LIKE 'Questions'")
        .fetch_one(sql)
        .await
        .context("read `SHOW GLOBAL STATUS`")?;
    questions.parse().context("read `Questions`")
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
        let at = |sql, redis| Counts { sql, redis };
        assert_eq!(
            at(Some(110), Some(7)).since(at(Some(100), Some(4))),
            at(Some(9), Some(3))
        );
        assert_eq!(
            at(Some(5), None).since(at(Some(5), Some(4))),
            at(Some(0), None)
        );
        assert_eq!(at(None, None).since(at(None, None)), at(None, None));
    }
}
