//! Hints: a daemon that receives all events forwards expired keys to owners that do not.
//!
//! Each daemon has a channel. A message holds keys, one on each line. It is not authenticated: a client that may
//! publish can also let keys expire. A lost hint has the effect of a lost event: the sweep finds the task.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use crate::{Keyspace, ProbeId, RedisError};
use lapsed_core::task::TaskKey;

/// Most keys that wait to be sent, and most keys in one message.
const WAITING_MAX: usize = 65_536;
const MESSAGE_MAX: usize = 512;

/// Pause after a message that Redis did not accept.
const OUTAGE_PAUSE: Duration = Duration::from_millis(200);

/// Prefix of a probe's message. No task key begins with it.
const PROBE: &str = "?";

/// Sends hints to other daemons.
#[derive(Debug)]
pub(super) struct Hints {
    keyspace: Keyspace,
    waiting: Mutex<Waiting>,
    arrived: Notify,
    /// True if this Redis user may publish and subscribe to hints.
    work: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    by_member: HashMap<u64, Vec<TaskKey>>,
    keys: usize,
}

/// A message on this daemon's channel.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hint {
    /// Keys that have expired.
    Expired(Vec<TaskKey>),
    /// A probe that this daemon sent to itself.
    Probe(ProbeId),
}

/// Keys that are being sent. Queued again when dropped: the session may end meanwhile, and an owner that hears a key twice
/// looks it up twice.
struct Unsent<'a> {
    hints: &'a Hints,
    by_member: HashMap<u64, Vec<TaskKey>>,
}

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        self.hints.put_back(std::mem::take(&mut self.by_member));
    }
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

    /// True if hints can be sent and received.
    pub(super) fn work(&self) -> bool {
        self.work.load(Ordering::Relaxed)
    }

    pub(super) fn set_work(&self, work: bool) {
        self.work.store(work, Ordering::Relaxed);
    }

    /// Queues a hint: this member's key has expired. Never blocks. Returns false if the queue is full.
    pub(super) fn notify(&self, member: u64, key: TaskKey) -> bool {
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

    /// Sends queued hints, forever. Keys that are queued together share messages.
    pub(super) async fn send(&self) -> Infallible {
        loop {
            let arrived = self.arrived.notified();
            let mut unsent = self.take();
            if unsent.by_member.is_empty() {
                arrived.await;
                continue;
            }
            let messages = unsent.by_member.iter().flat_map(|(member, keys)| {
                let messages = keys.chunks(MESSAGE_MAX).map(|keys| (*member, lines(keys)));
                messages.collect::<Vec<_>>()
            });
            let sent = self.keyspace.publish_hints(messages.collect()).await;
            // The owner may adopt them.
            let is_over = sent
                .as_ref()
                .err()
                .is_none_or(|error| !error.is_transient());
            if is_over {
                unsent.by_member.clear();
            }
            drop(unsent);
            if let Err(error) = sent {
                self.failed(&error);
                tokio::time::sleep(OUTAGE_PAUSE).await;
            }
        }
    }

    fn take(&self) -> Unsent<'_> {
        let Waiting { by_member, .. } = std::mem::take(&mut *self.waiting());
        Unsent {
            hints: self,
            by_member,
        }
    }

    /// Queues keys again that were not sent, as far as there is room.
    fn put_back(&self, unsent: HashMap<u64, Vec<TaskKey>>) {
        let mut waiting = self.waiting();
        for (member, mut keys) in unsent {
            keys.truncate(WAITING_MAX - waiting.keys.min(WAITING_MAX));
            waiting.keys += keys.len();
            waiting.by_member.entry(member).or_default().extend(keys);
        }
    }

    /// Sends a probe to this daemon's channel.
    pub(super) async fn send_probe(&self, me: u64, id: ProbeId) -> Result<(), RedisError> {
        let message = vec![(me, format!("{PROBE}{id}"))];
        let sent = self.keyspace.publish_hints(message).await;
        sent.inspect_err(|error| self.failed(error))
    }

    fn failed(&self, error: &RedisError) {
        tracing::debug!(%error, "cannot forward expired keys");
        if error.is_refusal() {
            self.set_work(false);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting
            .lock()
            .expect("nothing panics while holding the queued hints")
    }
}

impl Hint {
    /// Parses a message. Skips lines that are not task keys.
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
    use crate::{Commands, Endpoint};
    use lapsed_core::config::Config;

    #[tokio::test]
    async fn what_was_being_sent_when_a_session_ended_is_sent_by_the_next() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", silent.local_addr().unwrap());
        let config = Config::from_toml(&format!("[redis]\nurl = '{url}'")).unwrap();
        let endpoint = Endpoint::new(&config.redis).unwrap();
        let hints = Hints::new(Keyspace::new(Commands::new(endpoint), ""));
        let keys: Vec<TaskKey> = (1..=3)
            .map(|n| TaskKey::build("A", "b", [n.to_string()]).unwrap())
            .collect();
        for key in &keys {
            assert!(hints.notify(7, key.clone()));
        }
        tokio::select! {
            never = hints.send() => match never {},
            accepted = silent.accept() => drop(accepted.unwrap()),
        }
        let unsent = hints.take();
        assert_eq!(unsent.by_member, HashMap::from([(7, keys)]));
    }

    #[test]
    fn a_message_is_read_back_without_lines_that_are_not_keys() {
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
