//! State of the listener that its sessions share: what is received, and what was last seen of the server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use super::hints::Hints;
use super::key_inspector::KeyInspector;
use super::marks::Marks;
use super::probe::Probe;
use super::replay::Replay;
use super::sentinel::Sentinels;
use super::{Cause, Hearing, SignalSink};
use crate::{Events, Keyspace, Notifications, RedisError, Role, ensure_notifications};
use lapsed_core::config::SentinelConfig;
use lapsed_core::telemetry::Metrics;
use lapsed_core::telemetry::log::LogLimiter;

/// What the sessions of the listener share.
#[derive(Debug)]
pub(super) struct ListenerState {
    pub(super) keyspace: Keyspace,
    /// The events to subscribe to.
    pub(super) events: Events,
    pub(super) sentinels: Sentinels,
    pub(super) probe: Probe,
    /// Dates events.
    pub(super) marks: Marks,
    /// Inspects keys that programs changed.
    pub(super) inspector: Arc<KeyInspector>,
    pub(super) metrics: Arc<Metrics>,
    /// Forwards expired keys to their owners.
    pub(super) hints: Hints,
    listening: AtomicBool,
    /// True if this daemon receives all events, and not only hints.
    hears_all: AtomicBool,
    /// True if these include armings and deletions, as far as the rights of its user go.
    hears_armings: AtomicBool,
    /// True if it announces that it will stop to receive them.
    ends: AtomicBool,
    /// Events that other daemons handle.
    replay: Mutex<Replay>,
    /// Signals that one of those daemons has fallen silent.
    pub(super) silenced: Notify,
    server: Mutex<ServerState>,
    /// Limits log lines about transient failures.
    pub(super) failures: LogLimiter,
    /// Limits log lines about states that last until an operator acts.
    pub(super) warnings: LogLimiter,
}

/// What earlier sessions saw of the server.
#[derive(Debug, Default)]
struct ServerState {
    run_id: Option<String>,
    /// True once a subscription was confirmed.
    subscribed: bool,
    /// The flags at the last check.
    flags: Option<Flags>,
}

/// What the server publishes, as far as known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flags {
    On,
    /// It publishes `expired`, but no arming events.
    ExpiredOnly,
    Off,
    Unknown,
}

impl ListenerState {
    pub(super) fn new(
        keyspace: Keyspace,
        events: Events,
        config: SentinelConfig,
        marks: Marks,
        inspector: Arc<KeyInspector>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            events,
            marks,
            inspector,
            sentinels: Sentinels::new(config, keyspace.clone()),
            probe: Probe::new(keyspace.clone()),
            hints: Hints::new(keyspace.clone()),
            keyspace,
            metrics,
            listening: AtomicBool::new(false),
            hears_all: AtomicBool::new(true),
            hears_armings: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            replay: Mutex::default(),
            silenced: Notify::new(),
            server: Mutex::default(),
            failures: LogLimiter::every(Duration::from_secs(30)),
            warnings: LogLimiter::every(Duration::from_secs(600)),
        }
    }

    /// True if events are received now.
    pub(super) fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Relaxed)
    }

    /// What other daemons may rely on.
    pub(super) fn hearing(&self) -> Hearing {
        let stays = self.hears_all() && !self.ends.load(Ordering::Relaxed);
        let hears = stays && self.is_listening();
        let armings = self.hears_armings();
        Hearing {
            all: hears && armings,
            expired_only: hears && !armings,
            forwards: self.hints.work(),
        }
    }

    /// True if the latest subscription to all events includes armings and deletions, and the server publishes them.
    pub(super) fn hears_armings(&self) -> bool {
        self.hears_armings.load(Ordering::Relaxed) && self.flags() != Some(Flags::ExpiredOnly)
    }

    pub(super) fn set_hears_armings(&self, armings: bool) {
        self.hears_armings.store(armings, Ordering::Relaxed);
    }

    pub(super) fn hears_all(&self) -> bool {
        self.hears_all.load(Ordering::Relaxed)
    }

    pub(super) fn set_hears_all(&self, all: bool) {
        self.hears_all.store(all, Ordering::Relaxed);
        self.announce_end(false);
    }

    pub(super) fn announce_end(&self, ends: bool) {
        self.ends.store(ends, Ordering::Relaxed);
    }

    /// Recent events that other daemons handle.
    pub(super) fn replay(&self) -> MutexGuard<'_, Replay> {
        self.replay
            .lock()
            .expect("nothing panics while holding the replay")
    }

    /// Returns the server's run id. Refuses a replica, which publishes no `expired`.
    pub(super) async fn require_master(&self) -> Result<Option<String>, RedisError> {
        let server = self.keyspace.server().await?;
        if server.is_cluster_node
            && self.keyspace.commands().cluster().is_none()
            && let Some(held_back) = self.failures.admit("cluster")
        {
            tracing::warn!(
                redis.node = self.node(),
                remedy = "let `redis.url` begin with `redis+cluster://`",
                held_back,
                "this redis is a node of a cluster: it refuses keys of other nodes, and announces only its own"
            );
        }
        match server.role {
            Some(Role::Replica) => Err(RedisError::Replica(None)),
            Some(Role::Master) | None => Ok(server.run_id),
        }
    }

    /// Notes a step of the clock of Redis or of the ledger.
    pub(super) async fn check_clocks(&self) -> Result<(), RedisError> {
        match self.inspector.check_clocks().await {
            Ok(_) => Ok(()),
            // Without the right to note it, a step is not noticed.
            Err(error) if error.is_refusal() => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn check_flags(&self) -> Result<Flags, RedisError> {
        let notifications = ensure_notifications(self.keyspace.commands(), self.events).await?;
        let flags = match notifications {
            Notifications::On | Notifications::Added(_) => Flags::On,
            Notifications::ExpiredOnly { .. } => Flags::ExpiredOnly,
            Notifications::Off { .. } => Flags::Off,
            Notifications::Unknown => Flags::Unknown,
        };
        let before = self.server().flags.replace(flags);
        match notifications {
            Notifications::Added(flags) => tracing::info!(
                redis.node = self.node(), %flags,
                "switched events on in `notify-keyspace-events`; put it into the server's configuration to make it last"
            ),
            Notifications::ExpiredOnly { flags, refusal } if before != Some(Flags::ExpiredOnly) => {
                tracing::warn!(
                    redis.node = self.node(), %flags, error = &refusal as &dyn std::error::Error,
                    "continuing without arming events: `notify-keyspace-events` lacks `g` and may not be changed; bare keys are adopted when they expire and in audits, and delays below the sweep's interval may start late"
                )
            }
            Notifications::Off { flags, refusal } if before != Some(Flags::Off) => tracing::warn!(
                redis.node = self.node(), %flags, error = &refusal as &dyn std::error::Error,
                wanted = self.events.flags(),
                "continuing without events: `notify-keyspace-events` lacks `Ex` and may not be changed; have it set in the server's configuration"
            ),
            Notifications::Unknown if before != Some(Flags::Unknown) => tracing::info!(
                redis.node = self.node(),
                "cannot read `notify-keyspace-events`; a probe will tell whether events come"
            ),
            _ => {}
        }
        Ok(flags)
    }

    pub(super) fn subscribed(&self, run_id: Option<String>, sink: &dyn SignalSink) {
        let (again, other_server) = {
            let mut server = self.server();
            let again = std::mem::replace(&mut server.subscribed, true);
            let before = std::mem::replace(&mut server.run_id, run_id);
            (again, before.is_some() && before != server.run_id)
        };
        tracing::info!(
            redis.node = self.node(),
            redis.db = self.database(),
            "subscribed to expired events"
        );
        if again {
            self.metrics.resubscribed();
        }
        // Events before the confirmation are lost.
        sink.sweep(Cause::Subscribed);
        if self.hears_all() {
            sink.audit(Cause::Subscribed);
        }
        if other_server {
            tracing::warn!(
                redis.node = self.node(),
                "redis was restarted or is another server"
            );
            self.sentinels.forget();
            sink.audit(Cause::RedisChanged);
        }
    }

    pub(super) fn set_listening(&self, listening: bool) {
        self.listening.store(listening, Ordering::Relaxed);
        self.metrics.subscription(self.node(), listening);
    }

    pub(super) fn flags(&self) -> Option<Flags> {
        self.server().flags
    }

    pub(super) fn node(&self) -> &str {
        self.keyspace.commands().endpoint().node()
    }

    fn database(&self) -> i64 {
        self.keyspace.commands().endpoint().database()
    }

    fn server(&self) -> MutexGuard<'_, ServerState> {
        self.server.lock().expect("nothing panics while holding it")
    }
}
