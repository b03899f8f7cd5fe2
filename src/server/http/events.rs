//! Hints for open pages: which parts of what they show may have changed.
//!
//! One ticker serves all clients: the engine has no work for any of them. A hint holds no data, so that no client sees what
//! it may not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::time::sleep;

use lapsed_core::telemetry::{Metrics, TaskMarks};

/// Shortest interval of hints: at most two a second.
const EVERY: Duration = Duration::from_millis(500);

/// Time between two hints for each client, so that all of them together get at most 250 messages a second.
const EVERY_PER_CLIENT: Duration = Duration::from_millis(4);

/// Hints that a slow client may be behind. Those that it misses are made up for by one with every topic.
const BEHIND_MAX: usize = 16;

/// What may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// Counts and lateness.
    Stats,
    /// Tasks.
    Tasks,
    /// Pauses and holds.
    Pauses,
    /// Daemons and pull workers.
    Workers,
    /// The audit log.
    Audit,
}

impl Topic {
    /// Every topic.
    pub const ALL: [Self; 5] = [
        Self::Stats,
        Self::Tasks,
        Self::Pauses,
        Self::Workers,
        Self::Audit,
    ];

    /// The name in a hint.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stats => "stats",
            Self::Tasks => "tasks",
            Self::Pauses => "pauses",
            Self::Workers => "workers",
            Self::Audit => "audit",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A hint as JSON: a list of topics.
pub type Hint = Arc<str>;

/// Collects what has changed, and tells all clients.
pub struct Events {
    touched: AtomicU8,
    hints: broadcast::Sender<Hint>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            touched: AtomicU8::new(0),
            hints: broadcast::Sender::new(BEHIND_MAX),
        }
    }
}

impl Events {
    /// Notes that this has changed.
    pub fn touch(&self, topic: Topic) {
        self.touched.fetch_or(topic.bit(), Ordering::Relaxed);
    }

    /// Receives hints from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Hint> {
        self.hints.subscribe()
    }

    /// Time until the next hint: with many clients, hints are rarer.
    fn pause(&self) -> Duration {
        let clients = u32::try_from(self.hints.receiver_count()).unwrap_or(u32::MAX);
        EVERY.max(EVERY_PER_CLIENT.saturating_mul(clients))
    }

    /// A hint with every topic, for a client that has missed some.
    pub fn everything() -> Hint {
        hint(u8::MAX)
    }

    /// Sends hints. `trouble` says what is wrong with the daemon: a change of it is a hint, too. Never returns.
    pub async fn run<T: PartialEq>(&self, metrics: &Metrics, trouble: impl Fn() -> T) {
        let mut before = (metrics.marks(), trouble());
        loop {
            sleep(self.pause()).await;
            let now = (metrics.marks(), trouble());
            for topic in changed(&before.0, &now.0) {
                self.touch(topic);
            }
            if before.1 != now.1 {
                self.touch(Topic::Stats);
            }
            before = now;
            let touched = self.touched.swap(0, Ordering::Relaxed);
            if touched != 0 {
                // Without a client there is nothing to send.
                let _ = self.hints.send(hint(touched));
            }
        }
    }
}

fn changed(before: &TaskMarks, now: &TaskMarks) -> Vec<Topic> {
    let mut topics = Vec::new();
    if before.tasks != now.tasks {
        topics.extend([Topic::Tasks, Topic::Stats]);
    }
    if before.stats != now.stats {
        topics.push(Topic::Stats);
    }
    if before.pauses != now.pauses {
        topics.push(Topic::Pauses);
    }
    if before.members != now.members {
        topics.push(Topic::Workers);
    }
    topics
}

fn hint(bits: u8) -> Hint {
    let topics = Topic::ALL.iter().filter(|topic| bits & topic.bit() != 0);
    let names: Vec<&str> = topics.map(|topic| topic.as_str()).collect();
    serde_json::to_string(&names)
        .expect("names can be written as JSON")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn changes_between_two_ticks_are_one_hint_for_every_client() {
        let (events, metrics) = (Events::default(), Metrics::default());
        let mut clients = [events.subscribe(), events.subscribe()];
        let is_bad = std::cell::Cell::new(false);
        let ticking = events.run(&metrics, || is_bad.get());
        let watching = async {
            tokio::time::sleep(EVERY / 2).await;
            events.touch(Topic::Audit);
            for _ in 0..100 {
                metrics.started("route", None, 1);
            }
            for client in &mut clients {
                assert_eq!(
                    &*client.recv().await.unwrap(),
                    r#"["stats","tasks","audit"]"#
                );
            }
            tokio::time::sleep(EVERY * 3).await;
            assert!(clients[0].try_recv().is_err(), "nothing has changed");
            is_bad.set(true);
            assert_eq!(&*clients[0].recv().await.unwrap(), r#"["stats"]"#);
        };
        tokio::select! {
            () = ticking => unreachable!("it never returns"),
            () = watching => {}
        }
        assert_eq!(
            &*Events::everything(),
            r#"["stats","tasks","pauses","workers","audit"]"#
        );
    }

    #[tokio::test(start_paused = true)]
    async fn many_clients_get_fewer_hints() {
        let (events, metrics) = (Events::default(), Metrics::default());
        let mut clients: Vec<_> = (0..500).map(|_| events.subscribe()).collect();
        let watching = async {
            let begun = tokio::time::Instant::now();
            for seconds in [2, 4] {
                events.touch(Topic::Audit);
                clients[499].recv().await.unwrap();
                assert_eq!(begun.elapsed().as_secs(), seconds);
            }
        };
        tokio::select! {
            () = events.run(&metrics, || ()) => unreachable!("it never returns"),
            () = watching => {}
        }
    }
}
