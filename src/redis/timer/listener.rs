//! Listener: keeps one subscription to expired events, and reconnects forever.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::key_inspector::KeyInspector;
use super::listener_state::{Flags, ListenerState};
use super::marks::Marks;
use super::session::Session;
use super::{EngineSink, Hearing};
use crate::{Connected, EventKind, Events, Keyspace, Loss, RedisError};
use lapsed_core::config::SentinelConfig;
use lapsed_core::task::RetryPolicy;
use lapsed_core::telemetry::Metrics;

/// Backoff between sessions: none after a session that received events, then up to 10 s.
const RECONNECT: RetryPolicy =
    RetryPolicy::endless(Duration::from_millis(100), Duration::from_secs(8));

/// Keeps one subscription open.
#[derive(Debug)]
pub(super) struct Listener {
    state: ListenerState,
}

/// How a session ended.
struct End {
    /// `None` if the session ended to change its subscriptions.
    loss: Option<Loss>,
    /// True if a probe arrived: the next session may begin at once.
    proven: bool,
}

impl Listener {
    pub(super) fn new(
        keyspace: Keyspace,
        events: Events,
        config: SentinelConfig,
        marks: Marks,
        inspector: Arc<KeyInspector>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            state: ListenerState::new(keyspace, events, config, marks, inspector, metrics),
        }
    }

    /// True if events are received now.
    pub(super) fn is_listening(&self) -> bool {
        self.state.is_listening()
    }

    /// What other daemons may rely on.
    pub(super) fn hearing(&self) -> Hearing {
        self.state.hearing()
    }

    /// Requests a replay of recent events: another daemon has fallen silent.
    pub(super) fn replay_events(&self) {
        self.state.silenced.notify_one();
    }

    /// Marks the subscription as closed.
    pub(super) fn stopped(&self) {
        self.state.set_listening(false);
    }

    /// Runs sessions forever.
    pub(super) async fn run(&self, sink: &dyn EngineSink) {
        self.state.set_listening(false);
        let mut failures = 0u16;
        loop {
            let ended = self.session(sink).await;
            if let Ok(End { loss: None, .. }) = ended {
                tracing::info!(
                    redis.node = self.state.node(),
                    hears_all = self.state.hears_all(),
                    "subscribing again: the members have changed"
                );
                continue;
            }
            self.state.set_listening(false);
            // Receive all events until the members are known again.
            self.state.set_hears_all(true);
            match ended {
                Ok(End { loss, proven }) => {
                    let loss = loss.unwrap_or(Loss::Closed);
                    tracing::warn!(redis.node = self.state.node(), reason = %loss, "lost the subscription");
                    failures = if proven {
                        0
                    } else {
                        failures.saturating_add(1)
                    };
                }
                Err(error) => {
                    if let Some(held_back) = self.state.failures.admit(error.reason()) {
                        let remedy = error.remedy();
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(
                            redis.node = self.state.node(),
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
                let endpoint = self.state.keyspace.commands().endpoint();
                sleep(endpoint.pause_after(failures, &RECONNECT)).await;
            }
        }
    }

    /// Runs one session, from connecting to its loss.
    async fn session(&self, sink: &dyn EngineSink) -> Result<End, RedisError> {
        let commands = self.state.keyspace.commands();
        let mut connected = Connected::open(commands.endpoint()).await?;
        commands.forget_failures();
        let run_id = self.state.require_master().await?;
        let flags = self.state.check_flags().await?;
        if let Some(me) = sink.member() {
            self.subscribe_hints(&mut connected, me).await?;
        }
        if !self.state.hints.work() {
            self.state.set_hears_all(true);
        }
        let hints_only = sink.member().filter(|_| !self.state.hears_all());
        let channel = self.state.marks.channel();
        // Before the events, so that `doctor` counts no daemon as another client.
        let marked = match hints_only {
            Some(_) => false,
            None => self.subscribe_marks(&mut connected, &channel).await?,
        };
        if hints_only.is_none() {
            connected.subscribe(EventKind::Expired).await?;
            let armings = match self.state.events {
                Events::ExpiredAndArmings => self.subscribe_armings(&mut connected).await?,
                Events::Expired => false,
            };
            self.state.set_hears_armings(armings);
        }
        self.state.marks.begin(marked);
        let (subscription, backlog) = connected.subscription();
        self.state.inspector.set_server(run_id.clone());
        self.state.check_clocks().await?;
        self.state.inspector.set_backlog(Some(backlog.clone()));
        self.state.subscribed(run_id, sink);
        let session = Session::new(&self.state, sink);
        let promised = matches!(flags, Flags::On | Flags::ExpiredOnly);
        self.state.set_listening(promised || hints_only.is_some());
        let handle = |kind, heard| session.handle(kind, heard);
        let message = |message: &[u8]| session.message(message);
        let marks = async {
            match marked {
                true => self.state.marks.publish(&channel).await,
                false => std::future::pending().await,
            }
        };
        let probes = async {
            match hints_only {
                Some(me) => session.probe_hints(me, &backlog).await,
                None => session.probe(&backlog).await,
            }
        };
        let sentinels = async {
            match hints_only {
                Some(_) => std::future::pending().await,
                None => self.state.sentinels.keep(sink, &self.state.metrics).await,
            }
        };
        let loss = tokio::select! {
            loss = subscription.listen(self.state.keyspace.names(), handle, message) => Some(loss),
            never = self.state.inspector.inspect(sink) => match never {},
            never = self.state.hints.send() => match never {},
            never = marks => match never {},
            never = session.replay_events() => match never {},
            () = session.mode_change() => None,
            loss = probes => Some(loss),
            loss = session.recheck() => Some(loss),
            never = sentinels => match never {},
        };
        self.state.inspector.set_backlog(None);
        let proven = session.is_proven();
        Ok(End { loss, proven })
    }

    /// Subscribes to hints. Without the rights for it, this daemon receives all events itself.
    async fn subscribe_hints(&self, connected: &mut Connected, me: u64) -> Result<(), RedisError> {
        let heard = match connected.subscribe_hints(me).await {
            Ok(()) => {
                self.state
                    .hints
                    .send_probe(me, self.state.probe.await_one())
                    .await
            }
            Err(error) => Err(error),
        };
        self.state.hints.set_work(heard.is_ok());
        match heard {
            Err(error) if error.is_refusal() => {
                if let Some(held_back) = self.state.warnings.admit("hints") {
                    tracing::info!(
                        redis.node = self.state.node(),
                        held_back,
                        error = &error as &dyn std::error::Error,
                        "this daemon receives every event itself, even among several daemons; give the user the rights that SECURITY.md lists for several daemons"
                    );
                }
                Ok(())
            }
            heard => heard,
        }
    }

    /// Subscribes to the marks that date events. Returns false without the right for it.
    async fn subscribe_marks(
        &self,
        connected: &mut Connected,
        channel: &str,
    ) -> Result<bool, RedisError> {
        match connected.subscribe_channels(&[channel.to_owned()]).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_refusal() => {
                if let Some(held_back) = self.state.warnings.admit("marks") {
                    tracing::info!(
                        redis.node = self.state.node(),
                        channel,
                        held_back,
                        error = &error as &dyn std::error::Error,
                        "events that are read late cannot be told from new ones: a bare key may run again after this daemon was frozen; give the user the channels that SECURITY.md lists"
                    );
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Subscribes to arming events. Without the rights for it, the session continues without them. Returns true if all
    /// are received.
    async fn subscribe_armings(&self, connected: &mut Connected) -> Result<bool, RedisError> {
        for kind in EventKind::OF_ARMINGS {
            match connected.subscribe(kind).await {
                Ok(()) => {}
                Err(error @ RedisError::NoPermission { .. }) => {
                    if let Some(held_back) = self.state.warnings.admit("inspector") {
                        tracing::warn!(
                            redis.node = self.state.node(), channel = %kind, held_back,
                            error = &error as &dyn std::error::Error,
                            "may not subscribe to arming events: keys without a row are adopted when they expire and in audits; give the user the channels that SECURITY.md lists"
                        );
                    }
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
