//! Member: a live daemon of the ledger, as the others know it.

use std::sync::Arc;

use super::asked_queues::step;
use super::{AskedQueues, Capabilities, Heartbeat, MemberId, Readiness};
use crate::task::UnixMs;

/// A live daemon of the ledger, as its heartbeat describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub id: MemberId,
    /// Host and process.
    pub name: String,
    /// Version of its program; empty for one that does not state it.
    pub version: String,
    /// When it joined, on the ledger's clock.
    pub since: UnixMs,
    /// Whether it accepts tasks.
    pub readiness: Readiness,
    /// True if it listens to all events of all keys.
    pub listening: bool,
    /// True if it listens to the expiry of all keys, but does not receive their armings and deletions.
    pub expired_only: bool,
    /// The name of its timer, and what tells which keys it watches; empty for one that does not state it.
    pub timer: String,
    /// What it can run.
    pub capabilities: Arc<Capabilities>,
    /// For each idle route, when a worker asked last; 0 if none has since the start, empty if that is not known.
    pub idle_since: Vec<UnixMs>,
    /// The pull queues that workers have asked it for; empty for one that does not state it.
    pub queues: Arc<AskedQueues>,
    /// True for this daemon.
    pub is_this: bool,
}

impl Member {
    /// The name of its timer, as `timer` in the configuration has it; empty if it is not known.
    pub fn timer_name(&self) -> &str {
        let name = self.timer.split([':', '+']).next();
        name.unwrap_or_default()
    }

    /// The member without what changes each second while workers ask it. Unequal ones differ in what pages show.
    #[must_use]
    pub fn steady(self) -> Self {
        Self {
            idle_since: self.idle_since.into_iter().map(step).collect(),
            queues: Arc::new(self.queues.steady()),
            ..self
        }
    }
}

impl From<Heartbeat> for Member {
    fn from(heartbeat: Heartbeat) -> Self {
        let Heartbeat {
            id,
            name,
            version,
            since,
            until: _,
            readiness,
            listening,
            expired_only,
            forwards: _,
            timer,
            capabilities,
            idle_since,
            queues,
        } = heartbeat;
        Self {
            id,
            name,
            version,
            since,
            readiness,
            listening,
            expired_only,
            timer,
            capabilities: Arc::new(capabilities),
            idle_since,
            queues: Arc::new(queues),
            is_this: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::AskedQueue;

    fn member(timer: &str) -> Member {
        Member {
            id: MemberId(1),
            name: "host:7".to_owned(),
            version: String::new(),
            since: UnixMs(0),
            readiness: Readiness::Ready,
            listening: true,
            expired_only: false,
            timer: timer.to_owned(),
            capabilities: Arc::default(),
            idle_since: Vec::new(),
            queues: Arc::default(),
            is_this: false,
        }
    }

    #[test]
    fn a_member_names_its_timer_if_it_states_one() {
        for (stated, name) in [
            ("key_expiry", "key_expiry"),
            ("wheel:task_/3600/1000ms", "wheel"),
            ("sorted_set:0a1b/s", "sorted_set"),
            ("key_expiry+queues:default", "key_expiry"),
            ("ledger_poll", "ledger_poll"),
            ("", ""),
        ] {
            assert_eq!(member(stated).timer_name(), name);
        }
    }

    #[test]
    fn a_member_whose_workers_ask_each_second_is_the_same_while_nothing_else_changes() {
        const START: i64 = 1_800_000_000_000;
        let asked = |waiting: u32, after_ms: i64| {
            let at = UnixMs(START + after_ms);
            let queue = AskedQueue {
                name: "mail".to_owned(),
                workers: 2,
                waiting,
                asked: at,
            };
            let asked = Member {
                idle_since: vec![at],
                queues: Arc::new(AskedQueues::new(vec![queue])),
                ..member("key_expiry")
            };
            asked.steady()
        };
        let waits = |after_ms| asked(2, after_ms).queues;
        assert_eq!(waits(0), waits(3_600_000));
        for waiting in [0, 2] {
            assert_eq!(asked(waiting, 0), asked(waiting, 9_999));
        }
        assert_ne!(asked(0, 0).queues, asked(0, 10_000).queues);
        assert_ne!(asked(2, 0).idle_since, asked(2, 10_000).idle_since);
        assert_ne!(asked(1, 0), asked(2, 0));
    }
}
