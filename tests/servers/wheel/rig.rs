//! Servers with a wheel, and what a producer does.

use std::ops::Deref;

use lapsed::Handlers;

use crate::support::daemon::Daemon;
use crate::support::handlers::handlers;
use crate::support::rig::Rig;
use crate::support::wait::until;

/// A revolution takes a second.
pub const SMALL: &str = "wheel = { slots = 5, tick = '200ms' }";

/// Nothing but the wheel starts a task.
pub const ALONE: &str = "sweep.enabled = false\nsweep.interval = '1h'\nnudge.enabled = false";

/// Servers with a wheel.
pub struct WheelRig(Rig);

impl Deref for WheelRig {
    type Target = Rig;

    fn deref(&self) -> &Rig {
        &self.0
    }
}

impl WheelRig {
    pub async fn new(settings: &str) -> Self {
        let timer = "timer = 'wheel'\nwheel.class = 'Job'";
        let timer = timer.parse::<toml::Table>().unwrap();
        let mut all: toml::Table = settings.parse().unwrap();
        for (name, value) in timer {
            match (all.get_mut(&name), value) {
                (Some(toml::Value::Table(known)), toml::Value::Table(more)) => known.extend(more),
                (_, value) => {
                    all.insert(name, value);
                }
            }
        }
        Self(Rig::new(&toml::to_string(&all).unwrap()).await)
    }

    pub fn inner(&mut self) -> &mut Rig {
        &mut self.0
    }

    /// A daemon whose wheel turns.
    pub async fn turning(&self) -> Daemon {
        self.turning_with(handlers()).await
    }

    pub async fn turning_with(&self, handlers: Handlers) -> Daemon {
        let daemon = self.daemon_with(handlers);
        daemon.hears_events().await;
        daemon
    }

    /// What the producer of the seed document does.
    pub async fn push(&self, slot: i64, uid: &str, cycle_num: i64) {
        let entry = format!(
            r#"{{"method":"record","params":{{"uid":"{uid}","msg":"No:{uid}"}},"cycle_num":{cycle_num}}}"#
        );
        self.push_text(slot, &entry).await;
    }

    pub async fn push_text(&self, slot: i64, element: &str) {
        let _: i64 = self
            .redis_says(&["RPUSH", &format!("task_{slot}"), element])
            .await;
    }

    pub async fn list(&self, name: &str) -> Vec<String> {
        self.redis_says(&["LRANGE", name, "0", "-1"]).await
    }

    /// Waits until nothing of lapsed is left in Redis but the last tick.
    pub async fn until_empty(&self) {
        until("only the last tick is left", async || {
            let mut keys: Vec<String> = self.redis_says(&["KEYS", "task_*"]).await;
            // Counts of equal entries expire a minute after these are due.
            keys.retain(|key| !key.starts_with("task_lapsed:seen:"));
            keys == ["task_lapsed:tick"]
        })
        .await;
    }

    /// Payloads of all tasks, in order.
    pub async fn payloads(&self) -> Vec<Option<String>> {
        let query = "SELECT payload FROM tb_time_limit_task ORDER BY payload";
        sqlx::query_scalar(query)
            .fetch_all(&self.sql)
            .await
            .unwrap()
    }

    pub async fn rows(&self) -> i64 {
        self.number("SELECT COUNT(*) FROM tb_time_limit_task").await
    }

    pub async fn until_rows(&self, count: i64) {
        until(format!("{count} tasks have rows"), async || {
            self.rows().await == count
        })
        .await;
    }
}
