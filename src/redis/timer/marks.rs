//! Marks: messages in the stream of events that date the events behind them.
//!
//! An event has no time, and the time at which it is read proves little: this process may have been frozen, its
//! connection held up, or thousands of events may have been in front of it. So each daemon that receives all events
//! publishes the ledger's time a few times a second, on a channel that all of them subscribe to. Redis delivers
//! messages in the order in which it published them, so an event was published after the mark that arrived before it,
//! however late it is read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::key_watch::Receipt;
use crate::{Keyspace, LedgerName, Names, RedisError};
use lapsed_core::clock::LedgerClock;
use lapsed_core::task::{EVENT_DELAY_MAX, UnixMs};

/// Time between two marks of a daemon.
const EVERY: Duration = Duration::from_millis(250);

/// Pause after Redis has refused a mark.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);

/// Prefix of a mark's message. No task key begins with it.
const PREFIX: &str = "!";

/// Publishes marks, and remembers the latest one that arrived.
#[derive(Debug)]
pub(super) struct Marks {
    keyspace: Keyspace,
    clock: LedgerClock,
    ledger: LedgerName,
    /// The mark that arrived last in this session. Marks are not ordered: the ledger's clock may be set back.
    latest: Mutex<Option<UnixMs>>,
    /// True if this Redis user may publish and subscribe to marks.
    work: AtomicBool,
}

impl Marks {
    pub(super) fn new(keyspace: Keyspace, clock: LedgerClock, ledger: LedgerName) -> Self {
        Self {
            keyspace,
            clock,
            ledger,
            latest: Mutex::default(),
            work: AtomicBool::new(false),
        }
    }

    /// The channel of this ledger's marks.
    pub(super) fn channel(&self) -> String {
        Names::marks(self.ledger.text())
    }

    /// Begins a session. Without the right to subscribe to marks, events count as published when they are read.
    pub(super) fn begin(&self, work: bool) {
        *self.latest() = None;
        self.set_work(work);
    }

    /// Notes a mark that has arrived.
    pub(super) fn heard(&self, mark: UnixMs) {
        *self.latest() = Some(mark);
    }

    /// Dates an event that is read now.
    pub(super) fn receipt(&self) -> Receipt {
        let is_old = |mark: &UnixMs| self.clock.now().since(*mark) > EVENT_DELAY_MAX;
        let late_since = match self.work.load(Ordering::Relaxed) {
            true => self.latest().filter(is_old),
            false => None,
        };
        Receipt {
            at: Instant::now(),
            late_since,
        }
    }

    /// Publishes marks on the channel, forever.
    ///
    /// # Cancel safety
    /// Cancel safe: a mark is published or not.
    pub(super) async fn publish(&self, channel: &str) -> std::convert::Infallible {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // The wall clock of this machine is no mark of the ledger's time.
            if !self.clock.is_known() {
                continue;
            }
            let mark = format!("{PREFIX}{}", self.clock.now().0);
            match self
                .keyspace
                .publish(vec![(channel.to_owned(), mark)])
                .await
            {
                Ok(()) => self.set_work(true),
                Err(error) if error.is_refusal() => self.refused(&error).await,
                // Marks of other daemons may still arrive. Otherwise events count as late, which is safe.
                Err(error) => tracing::debug!(%error, "cannot publish a mark"),
            }
        }
    }

    async fn refused(&self, error: &RedisError) {
        self.set_work(false);
        tracing::debug!(%error, "may not publish marks");
        sleep(REFUSED_PAUSE).await;
    }

    fn set_work(&self, work: bool) {
        self.work.store(work, Ordering::Relaxed);
    }

    fn latest(&self) -> MutexGuard<'_, Option<UnixMs>> {
        self.latest
            .lock()
            .expect("nothing panics while holding the latest mark")
    }
}

/// Parses a message.
pub(super) fn read(message: &[u8]) -> Option<UnixMs> {
    let text = std::str::from_utf8(message).ok()?;
    text.strip_prefix(PREFIX)?.parse().ok().map(UnixMs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_back_and_nothing_else_is_a_mark() {
        assert_eq!(read(b"!1795459396881"), Some(UnixMs(1_795_459_396_881)));
        for other in [&b"1795459396881"[..], b"!", b"!x", b"?1", b"A@b", b"\xff"] {
            assert_eq!(read(other), None);
        }
    }
}
