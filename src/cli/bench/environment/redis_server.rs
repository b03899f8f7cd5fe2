//! Redis of a benchmark.

use anyhow::Context as _;

use super::Environment;

/// A Redis user of private servers that may not change the notification flags.
const NO_EVENTS_USER: &str = "no-events";

impl Environment {
    /// A connection to Redis; `None` if it is not used or not reachable.
    pub async fn redis(&self) -> Option<redis::aio::MultiplexedConnection> {
        if !self.uses_redis() {
            return None;
        }
        let client = redis::Client::open(self.config.redis.url.expose()).ok()?;
        client.get_multiplexed_async_connection().await.ok()
    }

    /// Memory that Redis uses for its data, in bytes; `None` if it is not used.
    pub async fn redis_memory(&self) -> anyhow::Result<Option<u64>> {
        let Some(mut redis) = self.redis().await else {
            return Ok(None);
        };
        let info: String = redis::cmd("INFO")
            .arg("memory")
            .query_async(&mut redis)
            .await
            .context("read the memory of redis")?;
        let used = info
            .lines()
            .find_map(|line| line.strip_prefix("used_memory:"));
        Ok(used.and_then(|used| used.trim().parse().ok()))
    }

    /// The URL of the user of the private Redis that may not change the notification flags; `None` without private servers.
    pub(super) fn url_without_events(&self) -> Option<String> {
        let port = self.private.as_ref()?.redis.port();
        Some(format!(
            "redis://{NO_EVENTS_USER}:{NO_EVENTS_USER}@127.0.0.1:{port}/0"
        ))
    }

    /// Switches expired events of the private Redis on or off; a daemon that connects as this user cannot switch them back.
    pub async fn announce(&self, on: bool) -> anyhow::Result<()> {
        let mut redis = self.redis().await.context("connect to redis")?;
        redis::pipe()
            .cmd("CONFIG")
            .arg("SET")
            .arg("notify-keyspace-events")
            .arg(if on { "Ex" } else { "" })
            .cmd("ACL")
            .arg("SETUSER")
            .arg(NO_EVENTS_USER)
            .arg("on")
            .arg(format!(">{NO_EVENTS_USER}"))
            .arg(&["~*", "&*", "+@all", "-config"])
            .exec_async(&mut redis)
            .await
            .context("set the notification flags of the private redis")
    }

    /// Kills the private Redis.
    pub fn stop_redis(&mut self) {
        if let Some(private) = &mut self.private {
            private.redis.kill();
        }
    }

    /// Restarts the private Redis, empty, if it was killed.
    pub async fn start_redis(&mut self) -> anyhow::Result<()> {
        if let Some(private) = &mut self.private
            && private.redis.pid().is_none()
        {
            private.redis.start_again().await?;
        }
        Ok(())
    }

    /// Deletes the keys of this benchmark, if Redis is up.
    pub(super) async fn delete_keys(&self) -> anyhow::Result<()> {
        let Some(mut redis) = self.redis().await else {
            return Ok(());
        };
        let prefix = &self.config.redis.key_prefix;
        delete_keys(&mut redis, prefix)
            .await
            .with_context(|| format!("delete the keys `{prefix}*` of this measurement"))
    }
}

async fn delete_keys(
    redis: &mut redis::aio::MultiplexedConnection,
    prefix: &str,
) -> redis::RedisResult<()> {
    let mut cursor = 0u64;
    loop {
        let (next, keys): (u64, Vec<Vec<u8>>) = redis::cmd("SCAN")
            .arg(cursor)
            .arg("MATCH")
            .arg(format!("{prefix}*"))
            .arg("COUNT")
            .arg(5_000)
            .query_async(redis)
            .await?;
        if !keys.is_empty() {
            // `UNLINK` would free their memory later, while that of the next entries is measured.
            redis::cmd("DEL").arg(&keys).exec_async(redis).await?;
        }
        if next == 0 {
            return Ok(());
        }
        cursor = next;
    }
}
