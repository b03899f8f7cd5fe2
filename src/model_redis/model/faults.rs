//! Faults of the server.

use std::time::Duration;

use super::ModelRedis;
use crate::events::{Class, Flags, Judge};

/// What is left of the data after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    Nothing,
    /// What the last [`snapshot`](ModelRedis::snapshot) has, or nothing.
    Snapshot,
    /// Everything.
    All,
}

impl ModelRedis {
    /// Deletes all keys, without events.
    pub fn flush_all(&self) {
        let mut state = self.state();
        state.data.clear();
        state.note("flushall", 0, b"", None);
    }

    /// Copies the data, for a restart.
    pub fn snapshot(&self) {
        let mut state = self.state();
        state.snapshot = Some(state.data.clone());
    }

    /// Ends the process and starts it anew: connections are closed, the run id changes, settings are those of the file,
    /// and keys that are due by now are not loaded.
    pub fn restart(&self, keep: Keep) {
        let mut state = self.state();
        let state = &mut *state;
        match keep {
            Keep::Nothing => state.data.clear(),
            Keep::Snapshot => state.data = state.snapshot.clone().unwrap_or_default(),
            Keep::All => {}
        }
        let now = state.now();
        state.data.values_mut().for_each(|db| db.forget_due(now));
        state.start();
        state.note("restart", 0, b"", None);
        state.expiries.notify_one();
    }

    /// Sets `notify-keyspace-events` as a client would. Ignores a text that Redis would refuse.
    pub fn set_flags(&self, flags: &str) {
        let mut state = self.state();
        if let Some(flags) = Flags::parse(flags) {
            state.flags = flags;
        }
    }

    /// Loses this part of the key events, for each subscriber.
    pub fn drop_events(&self, part: f64) {
        self.state().odds.lost = part;
    }

    /// Delivers this part of the key events twice.
    pub fn duplicate_events(&self, part: f64) {
        self.state().odds.twice = part;
    }

    /// Delivers this part of the key events late, by any time up to `late_max`: others overtake them.
    pub fn delay_events(&self, part: f64, late_max: Duration) {
        let mut state = self.state();
        (state.odds.late, state.odds.late_max) = (part, late_max);
    }

    /// Has `judge` decide about each message before the parts above are drawn; `None` ends it.
    pub fn judge_messages(&self, judge: Option<Judge>) {
        self.state().judge = judge;
    }

    /// Publishes that a key has expired, whether or not it exists. Returns the number of subscribers.
    pub fn forge_event(&self, db: u32, key: &str) -> usize {
        let mut state = self.state();
        state.note("forged", db, key.as_bytes(), None);
        let channel = format!("__keyevent@{db}__:expired");
        state.publish(channel.as_bytes(), key.as_bytes(), true)
    }

    /// Answers nothing and deletes nothing until [`resume`](Self::resume). Connections stay open, and new ones too.
    pub fn pause(&self) {
        self.shared.hangs.send_replace(true);
    }

    /// Ends a pause.
    pub fn resume(&self) {
        self.shared.hangs.send_replace(false);
    }

    /// Refuses new connections, or accepts them again.
    pub fn refuse(&self, refuses: bool) {
        self.refuses.send_replace(refuses);
    }

    /// Closes the connections of links whose name the filter accepts. Returns their number.
    pub fn kill_connections(&self, filter: impl Fn(&str) -> bool) -> usize {
        let mut state = self.state();
        let before = state.clients.len();
        state.clients.retain(|_, client| !filter(&client.link));
        before - state.clients.len()
    }

    /// Sets the server's clock forward, or back.
    pub fn step_clock(&self, by_ms: i64) {
        self.state().step_clock(by_ms.saturating_mul(1000));
    }

    /// Switches the expiry cycles off, or on: without them, a key expires when it is used.
    pub fn expire_actively(&self, does: bool) {
        let mut state = self.state();
        state.expires_actively = does;
        state.expiries.notify_one();
    }

    /// Makes the server a replica, which refuses writes and expires nothing.
    pub fn become_replica(&self) {
        self.state().is_replica = true;
    }

    /// Makes the server a master.
    pub fn become_master(&self) {
        let mut state = self.state();
        state.is_replica = false;
        state.expiries.notify_one();
    }

    /// Deletes a key as a replica hears of it from its master: the event is `del`.
    pub fn delete_by_master(&self, db: u32, key: &str) {
        let mut state = self.state();
        if state.db(db).remove(key.as_bytes()).is_some() {
            state.notify(Class::Generic, "del", db, key.as_bytes());
        }
    }
}
