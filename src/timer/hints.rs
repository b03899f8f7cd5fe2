//! Hints: a daemon that hears everything passes on what has expired to the owners that do not.
//!
//! Each daemon has a channel of its own. A message is some keys, one to a line: whoever could forge one could as well let
//! keys expire. A hint that is lost costs what a lost event does: the sweep finds the task.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use crate::redis::{Keyspace, ProbeId, RedisError};
use crate::task::TaskKey;

/// Most keys that wait to be sent, and of one message.
const WAITING_MAX: usize = 65_536;
const MESSAGE_MAX: usize = 512;

/// How long to wait when Redis did not answer.
const OUTAGE_PAUSE: Duration = Duration::from_millis(200);

/// What a probe's message begins with: no key does.
const PROBE: &str = "?";

/// Sends hints to other daemons, and reads those that come in.
#[derive(Debug)]
pub(super) struct Hints {
    keyspace: Keyspace,
    waiting: Mutex<Waiting>,
    arrived: Notify,
    /// This user may send and receive them.
    work: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    by_member: HashMap<u64, Vec<TaskKey>>,
    keys: usize,
}

/// What a message says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hint {
    /// These keys have expired.
    Expired(Vec<TaskKey>),
    /// A probe has come back.
    Probe(ProbeId),
}

impl Hints {
    pub(super) fn new(keyspace: Keyspace) -> Self {
        Self {
            keyspace,
            waiting: Mutex::default(),
            arrived: Notify::new(),
            work: AtomicBool::new(false),
        }
    }

    /// Whether they can be sent and received.
    pub(super) fn work(&self) -> bool {
        self.work.load(Ordering::Relaxed)
    }

    pub(super) fn set_work(&self, work: bool) {
        self.work.store(work, Ordering::Relaxed);
    }

    /// This key of that member's has expired. Never blocks; tells whether there was room.
    pub(super) fn tell(&self, member: u64, key: TaskKey) -> bool {
        let mut waiting = self.waiting();
        if waiting.keys >= WAITING_MAX {
            return false;
        }
        waiting.keys += 1;
        waiting.by_member.entry(member).or_default().push(key);
        drop(waiting);
        self.arrived.notify_one();
        true
    }

    /// Sends what waits, for ever. What comes together goes together.
    pub(super) async fn send(&self) -> Infallible {
        loop {
            let arrived = self.arrived.notified();
            let Waiting { by_member, .. } = std::mem::take(&mut *self.waiting());
            if by_member.is_empty() {
                arrived.await;
                continue;
            }
            let messages = by_member.into_iter().flat_map(|(member, keys)| {
                let messages = keys.chunks(MESSAGE_MAX).map(|keys| (member, lines(keys)));
                messages.collect::<Vec<_>>()
            });
            if let Err(error) = self.keyspace.publish_hints(messages.collect()).await {
                self.failed(&error);
                tokio::time::sleep(OUTAGE_PAUSE).await;
            }
        }
    }

    /// Sends this daemon a probe of its own.
    pub(super) async fn send_probe(&self, me: u64, id: ProbeId) -> Result<(), RedisError> {
        let message = vec![(me, format!("{PROBE}{id}"))];
        let sent = self.keyspace.publish_hints(message).await;
        sent.inspect_err(|error| self.failed(error))
    }

    fn failed(&self, error: &RedisError) {
        tracing::debug!(%error, "could not pass on what has expired");
        if error.is_refusal() {
            self.set_work(false);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting
            .lock()
            .expect("nothing panics while holding the hints")
    }
}

impl Hint {
    /// Reads a message. Lines that are no keys are left out.
    pub(super) fn read(message: &[u8]) -> Self {
        let text = String::from_utf8_lossy(message);
        if let Some(id) = text.strip_prefix(PROBE).and_then(ProbeId::read) {
            return Self::Probe(id);
        }
        let keys = text.lines().take(MESSAGE_MAX);
        Self::Expired(keys.filter_map(|key| TaskKey::parse(key).ok()).collect())
    }
}

fn lines(keys: &[TaskKey]) -> String {
    let keys: Vec<&str> = keys.iter().map(TaskKey::as_str).collect();
    keys.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_back_and_what_is_no_key_is_left_out() {
        let keys: Vec<TaskKey> = ["A@b@1", "A@b@2"]
            .map(|key| TaskKey::parse(key).unwrap())
            .into();
        assert_eq!(
            Hint::read(lines(&keys).as_bytes()),
            Hint::Expired(keys.clone())
        );
        let spoiled = format!("\u{0}\n{}\nno key\n\u{fffd}", lines(&keys));
        assert_eq!(Hint::read(spoiled.as_bytes()), Hint::Expired(keys));
        let id = ProbeId::random();
        assert_eq!(Hint::read(format!("?{id}").as_bytes()), Hint::Probe(id));
        for nothing in [&b"?"[..], b"", b"\xff\xfe"] {
            assert_eq!(Hint::read(nothing), Hint::Expired(Vec::new()));
        }
    }
}
