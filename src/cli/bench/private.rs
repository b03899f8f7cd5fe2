//! Private servers of a benchmark.

use anyhow::Context;
use lapsed_sandbox::{PrivateMaria, PrivateRedis};

/// Bytes per row in the buffer pool, with index entries and a margin.
const BYTES_PER_ROW: u64 = 700;

/// Buffer pool for everything else.
const POOL_BASE_MB: u64 = 512;

/// Private servers; stopped when dropped.
pub struct Private {
    pub redis: PrivateRedis,
    pub maria: PrivateMaria,
}

impl Private {
    /// Starts them, with a buffer pool of this many megabytes, or one for this many rows. With `thread_pool`, the database runs
    /// as many statements at a time as there are cores.
    pub async fn start(
        rows: u64,
        buffer_pool_mb: Option<u64>,
        thread_pool: bool,
    ) -> anyhow::Result<Self> {
        let redis = PrivateRedis::options()
            .set("notify-keyspace-events", "Ex")
            .start();
        let pool_mb = buffer_pool_mb.unwrap_or_else(|| pool_mb(rows, memory_mb()));
        let maria = PrivateMaria::options()
            .durable(true)
            .buffer_pool(format!("{pool_mb}M"));
        let maria = match thread_pool {
            true => maria.set("thread-handling", "pool-of-threads"),
            false => maria,
        };
        let maria = match buffer_pool_mb {
            // A small one makes the server write changed pages all the time.
            Some(pool_mb) => maria.set("innodb-log-file-size", &format!("{}M", pool_mb / 4)),
            None => maria,
        };
        let maria = maria.start();
        let (redis, maria) = tokio::join!(redis, maria);
        Ok(Self {
            redis: redis.context("start a private redis")?,
            maria: maria.context("start a private database")?,
        })
    }
}

/// Size of a buffer pool that holds the table, at most half of the memory.
fn pool_mb(rows: u64, memory_mb: u64) -> u64 {
    (POOL_BASE_MB + rows * BYTES_PER_ROW / 1_000_000).min(memory_mb / 2)
}

fn memory_mb() -> u64 {
    let system = rustix::system::sysinfo();
    system.totalram * u64::from(system.mem_unit) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::{Connection, MySqlConnection};

    #[tokio::test]
    async fn the_database_has_a_thread_pool_if_it_is_asked_for() {
        for (thread_pool, expected) in [
            (true, "pool-of-threads"),
            (false, "one-thread-per-connection"),
        ] {
            let private = Private::start(0, None, thread_pool).await.unwrap();
            let url = private.maria.create_database("bench").await.unwrap();
            let mut connection = MySqlConnection::connect(&url).await.unwrap();
            let question = "SELECT CAST(@@thread_handling AS CHAR)";
            let answer: String = sqlx::query_scalar(question)
                .fetch_one(&mut connection)
                .await
                .unwrap();
            assert_eq!(answer, expected);
        }
    }

    #[test]
    fn the_pool_holds_the_table_and_leaves_half_of_the_machine() {
        assert_eq!(pool_mb(0, 16_000), 512);
        assert_eq!(pool_mb(1_000_000, 16_000), 1_212);
        assert_eq!(pool_mb(100_000_000, 16_000), 8_000);
    }
}
