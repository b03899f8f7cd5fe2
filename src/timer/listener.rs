//! Listener: keeps one subscription to expired events, and reconnects forever.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::arming::Armings;
use super::hints::Hints;
use super::probe::Probe;
use super::replay::{Replay, Said};
use super::sentinel::Sentinels;
use super::session::Session;
use super::{Cause, Hearing, SignalSink};
use crate::config::SentinelConfig;
use crate::redis::{
    Connected, EventKind, Events, Keyspace, Loss, Notifications, RedisError, Role,
    ensure_notifications,
};
use crate::task::{Backoff, RetryPolicy, TaskKey};
use crate::telemetry::Metrics;
use crate::telemetry::log::RateLimit;

/// Between attempts to listen: at once after a session that received events, then up to 10 s apart.
const RECONNECT: RetryPolicy = RetryPolicy {
    backoff: Backoff::Exponential {
        base: Duration::from_millis(100),
        max: Duration::from_secs(8),
    },
    max_attempts: u16::MAX,
    jitter: 0.25,
    deadline: None,
};

/// The subscription and everything that lives and dies with it.
#[derive(Debug)]
pub(super) struct Listener {
    keyspace: Keyspace,
    /// What is listened to.
    events: Events,
    pub(super) sentinels: Sentinels,
    pub(super) probe: Probe,
    /// Keys that were said to be armed or disarmed.
    pub(super) armings: Arc<Armings>,
    pub(super) metrics: Arc<Metrics>,
    /// What has expired, on its way to its owners.
    pub(super) hints: Hints,
    listening: AtomicBool,
    /// Everything that happens to keys is heard, and not only what others pass on.
    hears_all: AtomicBool,
    /// That is to end soon.
    ends: AtomicBool,
    /// What was left to others.
    kept: Mutex<Replay>,
    /// One of them fell silent.
    pub(super) silenced: Notify,
    seen: Mutex<Seen>,
    /// Limits log lines about transient failures of the subscription.
    pub(super) failures: RateLimit,
    /// For what stays as it is until somebody changes it.
    pub(super) warnings: RateLimit,
}

/// What earlier sessions saw.
#[derive(Debug, Default)]
struct Seen {
    run_id: Option<String>,
    /// A subscription was confirmed at some time.
    subscribed: bool,
    /// What was last said about the flags.
    flags: Option<Flags>,
}

/// Whether the server is known to announce expired events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flags {
    On,
    /// Only those, and not that keys are armed.
    ExpiredOnly,
    Off,
    Unknown,
}

/// How a session ended.
struct End {
    /// `None`: another part is to be played.
    loss: Option<Loss>,
    /// Events were heard in it: the next attempt may follow at once.
    proven: bool,
}

impl Listener {
    pub(super) fn new(
        keyspace: Keyspace,
        events: Events,
        config: SentinelConfig,
        armings: Arc<Armings>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            events,
            armings,
            sentinels: Sentinels::new(config, keyspace.clone()),
            probe: Probe::new(keyspace.clone()),
            hints: Hints::new(keyspace.clone()),
            keyspace,
            metrics,
            listening: AtomicBool::new(false),
            hears_all: AtomicBool::new(true),
            ends: AtomicBool::new(false),
            kept: Mutex::default(),
            silenced: Notify::new(),
            seen: Mutex::default(),
            failures: RateLimit::every(Duration::from_secs(30)),
            warnings: RateLimit::every(Duration::from_secs(600)),
        }
    }

    /// Whether events are heard now.
    pub(super) fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Relaxed)
    }

    /// What the others may count on.
    pub(super) fn hearing(&self) -> Hearing {
        let stays = self.hears_all() && !self.ends.load(Ordering::Relaxed);
        Hearing {
            all: stays && self.is_listening(),
            passes_on: self.hints.work(),
        }
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

    /// Keeps an event that is another daemon's to act on.
    pub(super) fn keep(&self, at: Instant, said: Said, key: TaskKey) {
        self.kept().keep(at, said, key);
    }

    pub(super) fn take_kept(&self) -> (VecDeque<(Instant, Said, TaskKey)>, bool) {
        self.kept().take()
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Replay> {
        self.kept
            .lock()
            .expect("nothing panics while holding what is kept")
    }

    /// Another daemon fell silent.
    pub(super) fn judge_again(&self) {
        self.silenced.notify_one();
    }

    /// Nobody listens any more.
    pub(super) fn stopped(&self) {
        self.set_listening(false);
    }

    /// Never returns.
    pub(super) async fn run(&self, sink: &dyn SignalSink) {
        self.set_listening(false);
        let mut failures = 0u16;
        loop {
            let ended = self.session(sink).await;
            if let Ok(End { loss: None, .. }) = ended {
                tracing::info!(
                    redis.node = self.node(),
                    hears_all = self.hears_all(),
                    "subscribing anew: other daemons came or went"
                );
                continue;
            }
            self.set_listening(false);
            // Until it is known again who hears.
            self.set_hears_all(true);
            match ended {
                Ok(End { loss, proven }) => {
                    let loss = loss.unwrap_or(Loss::Closed);
                    tracing::warn!(redis.node = self.node(), reason = %loss, "lost the subscription");
                    failures = if proven {
                        0
                    } else {
                        failures.saturating_add(1)
                    };
                }
                Err(error) => {
                    if let Some(held_back) = self.failures.admit(error.reason()) {
                        let remedy = error.remedy();
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(
                            redis.node = self.node(),
                            error,
                            remedy,
                            held_back,
                            "cannot subscribe: tasks run from the ledger alone meanwhile"
                        );
                    }
                    failures = failures.saturating_add(1);
                }
            }
            if failures > 0 {
                sleep(RECONNECT.delay(failures, rand::random())).await;
            }
        }
    }

    /// One subscription, from connecting to its loss.
    async fn session(&self, sink: &dyn SignalSink) -> Result<End, RedisError> {
        let commands = self.keyspace.commands();
        let mut connected = Connected::open(commands.endpoint()).await?;
        commands.forget_failures();
        let run_id = self.require_master().await?;
        let flags = self.check_flags().await?;
        if let Some(me) = sink.member() {
            self.hear_hints(&mut connected, me).await?;
        }
        if !self.hints.work() {
            self.set_hears_all(true);
        }
        let told_by_others = sink.member().filter(|_| !self.hears_all());
        if told_by_others.is_none() {
            connected.hear(EventKind::Expired).await?;
            if self.events == Events::ExpiredAndArmings {
                self.hear_armings(&mut connected).await?;
            }
        }
        self.armings.of_server(run_id.clone());
        self.subscribed(run_id, sink);
        let session = Session::new(self, sink);
        let promised = matches!(flags, Flags::On | Flags::ExpiredOnly);
        self.set_listening(promised || told_by_others.is_some());
        let subscription = connected.subscription();
        let hand_on = |kind, heard| session.hand_on(kind, heard);
        let hint = |message: &[u8]| session.hint(message);
        let probes = async {
            match told_by_others {
                Some(me) => session.probe_hints(me).await,
                None => session.probe().await,
            }
        };
        let sentinels = async {
            match told_by_others {
                Some(_) => std::future::pending().await,
                None => self.sentinels.keep(sink, &self.metrics).await,
            }
        };
        let loss = tokio::select! {
            loss = subscription.listen(self.keyspace.names(), hand_on, hint) => Some(loss),
            never = self.armings.inspect(sink) => match never {},
            never = self.hints.send() => match never {},
            never = session.judge_again() => match never {},
            () = session.change_of_part() => None,
            loss = probes => Some(loss),
            loss = session.recheck() => Some(loss),
            never = sentinels => match never {},
        };
        let proven = session.is_proven();
        Ok(End { loss, proven })
    }

    /// Without the rights for it this daemon hears everything by itself.
    async fn hear_hints(&self, connected: &mut Connected, me: u64) -> Result<(), RedisError> {
        let heard = match connected.hear_hints(me).await {
            Ok(()) => self.hints.send_probe(me, self.probe.await_one()).await,
            Err(error) => Err(error),
        };
        self.hints.set_work(heard.is_ok());
        match heard {
            Err(error) if error.is_refusal() => {
                if let Some(held_back) = self.warnings.admit("hints") {
                    tracing::info!(
                        redis.node = self.node(),
                        held_back,
                        error = &error as &dyn std::error::Error,
                        "this daemon hears every event by itself, however many daemons there are; give the user the rights that SECURITY.md lists for several daemons"
                    );
                }
                Ok(())
            }
            heard => heard,
        }
    }

    /// Without the right to these channels it goes on: tasks start from the other nets.
    async fn hear_armings(&self, connected: &mut Connected) -> Result<(), RedisError> {
        for kind in EventKind::OF_ARMINGS {
            match connected.hear(kind).await {
                Ok(()) => {}
                Err(error @ RedisError::NoPermission { .. }) => {
                    if let Some(held_back) = self.warnings.admit("armings") {
                        tracing::warn!(
                            redis.node = self.node(), channel = %kind, held_back,
                            error = &error as &dyn std::error::Error,
                            "may not listen to what programs do to keys: those without a row are taken over when they expire and in audits; give the user the channels that SECURITY.md lists"
                        );
                    }
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A replica publishes no `expired`: whoever listens to one is deaf for ever.
    pub(super) async fn require_master(&self) -> Result<Option<String>, RedisError> {
        let server = self.keyspace.server().await?;
        match server.role {
            Some(Role::Replica) => Err(RedisError::Replica(None)),
            Some(Role::Master) | None => Ok(server.run_id),
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
        let before = self.seen().flags.replace(flags);
        match notifications {
            Notifications::Added(flags) => tracing::info!(
                redis.node = self.node(), %flags,
                "switched events on in `notify-keyspace-events`; put it into the server's configuration to make it last"
            ),
            Notifications::ExpiredOnly { flags, refusal } if before != Some(Flags::ExpiredOnly) => {
                tracing::warn!(
                    redis.node = self.node(), %flags, error = &refusal as &dyn std::error::Error,
                    "going on without hearing that keys are armed: `notify-keyspace-events` lacks `g` and may not be changed; bare keys are taken over when they expire and in audits, and delays below the sweep's interval may start late"
                )
            }
            Notifications::Off { flags, refusal } if before != Some(Flags::Off) => tracing::warn!(
                redis.node = self.node(), %flags, error = &refusal as &dyn std::error::Error,
                wanted = self.events.flags(),
                "going on without events: `notify-keyspace-events` lacks `Ex` and may not be changed; have it set in the server's configuration"
            ),
            Notifications::Unknown if before != Some(Flags::Unknown) => tracing::info!(
                redis.node = self.node(),
                "cannot read `notify-keyspace-events`; a probe will tell whether events come"
            ),
            _ => {}
        }
        Ok(flags)
    }

    fn subscribed(&self, run_id: Option<String>, sink: &dyn SignalSink) {
        let (again, other_server) = {
            let mut seen = self.seen();
            let again = std::mem::replace(&mut seen.subscribed, true);
            let before = std::mem::replace(&mut seen.run_id, run_id);
            (again, before.is_some() && before != seen.run_id)
        };
        tracing::info!(
            redis.node = self.node(),
            redis.db = self.database(),
            "subscribed to expired events"
        );
        if again {
            self.metrics.resubscribed();
        }
        // What was said before the confirmation is lost.
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
        self.seen().flags
    }

    pub(super) fn node(&self) -> &str {
        self.keyspace.commands().endpoint().node()
    }

    fn database(&self) -> i64 {
        self.keyspace.commands().endpoint().database()
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen
            .lock()
            .expect("nothing panics while holding what was seen")
    }
}
