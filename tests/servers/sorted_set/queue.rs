//! A delay queue in a sorted set, as its producers see it.

use lapsed::UnixMs;
use redis::aio::MultiplexedConnection;

use crate::support::redis_commands::ask;
use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::wait::until;

/// The set of the old producers.
pub const SET: &str = "delay_queue_job";

/// Settings for a daemon that takes members of the set as `Job@record@<member>`.
pub const MAPPED: &str =
    "timer = 'sorted_set'\nsorted_set.member = 'Job@record@{member}'\nsweep.interval = '1h'";

/// The same, with the sweep and the look-ahead of a usual daemon.
pub const SWEPT: &str = "timer = 'sorted_set'\nsorted_set.member = 'Job@record@{member}'";

/// An old producer: it knows the set, members and seconds, and nothing of lapsed.
pub struct Queue {
    connection: MultiplexedConnection,
    set: String,
}

impl Queue {
    pub async fn of(rig: &Rig) -> Self {
        Self::named(rig, SET).await
    }

    pub async fn named(rig: &Rig, set: &str) -> Self {
        Self {
            connection: rig.redis_connection().await,
            set: set.to_owned(),
        }
    }

    /// `$redis->zAdd("delay_queue_job", $score, $id)`
    pub async fn add(&mut self, member: &str, score: impl ToString) {
        let words = ["ZADD", &self.set, &score.to_string(), member];
        let _: i64 = ask(&mut self.connection, &words).await;
    }

    /// `$redis->zRem("delay_queue_job", $id)`. Returns false if it was not there.
    pub async fn remove(&mut self, member: &str) -> bool {
        ask(&mut self.connection, &["ZREM", &self.set, member]).await
    }

    pub async fn score(&mut self, member: &str) -> Option<f64> {
        ask(&mut self.connection, &["ZSCORE", &self.set, member]).await
    }

    /// The members of tasks and of programs, in order of their scores.
    pub async fn members(&mut self) -> Vec<String> {
        let words = ["ZRANGEBYSCORE", &self.set, "-inf", "(inf"];
        ask(&mut self.connection, &words).await
    }

    /// What an old consumer sees: `zRangeByScore("delay_queue_job", 0, $now)`.
    pub async fn seen_by_consumers(&mut self, now_ms: i64) -> Vec<String> {
        let now = (now_ms / 1000).to_string();
        ask(
            &mut self.connection,
            &["ZRANGEBYSCORE", &self.set, "-inf", &now],
        )
        .await
    }

    /// Waits until lapsed has acknowledged a member: its score is then in microseconds.
    pub async fn until_acknowledged(&self, member: &str) {
        until(format!("`{member}` is acknowledged"), async || {
            let mut connection = self.connection.clone();
            let words = ["ZSCORE", &self.set, member];
            let score: Option<f64> = ask(&mut connection, &words).await;
            score.is_some_and(|score| score >= 1e14)
        })
        .await;
    }

    /// Waits until the set has no entry, besides the mark.
    pub async fn until_empty(&self) {
        until("the set is empty", async || {
            let mut connection = self.connection.clone();
            let words = ["ZCOUNT", &self.set, "-inf", "(inf"];
            ask::<i64>(&mut connection, &words).await == 0
        })
        .await;
    }
}

/// The time of a program that counts in seconds, so many seconds from now.
pub async fn seconds(rig: &Rig, from_now: i64) -> i64 {
    rig.now_ms().await / 1000 + from_now
}

/// The due time of a score in seconds.
pub fn due_of(seconds: i64) -> UnixMs {
    UnixMs(seconds * 1000 + 1)
}

/// A rig whose server publishes the events of sorted sets.
pub async fn with_events(settings: &str) -> Rig {
    let rig = Setup::new(settings).start().await;
    let words = ["CONFIG", "SET", "notify-keyspace-events", "Kz"];
    let () = rig.redis_says(&words).await;
    rig
}

/// The sets have kept their data since an audit: a missing entry is evidence.
pub async fn until_kept(rig: &Rig) {
    until("the mark is kept", async || {
        let words = ["ZRANGEBYSCORE", SET, "inf", "inf"];
        let marks: Vec<String> = rig.redis_says(&words).await;
        marks.iter().any(|mark| mark.starts_with("#lapsed:kept:"))
    })
    .await;
}
