//! The default timer: every task is a Redis key that expires when the task falls due.
//!
//! The listener receives `expired` events and reconnects after a loss. The nudge queries each expected key at its due
//! millisecond, because Redis may otherwise delete an expired key much later. Keys that programs change are inspected
//! beside the subscription. Arming and disarming use the command connection directly.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::key_inspector::KeyInspector;
use super::listener::Listener;
use super::listeners::{Ear, Listeners};
use super::marks::Marks;
use super::nudge::Nudge;
use super::{
    Alarm, AlarmStore, ArmMode, Armed, ArmedPage, EngineSink, Hearing, Listening, Remaining,
    SignalSink, Timer, TimerError,
};
#[doc(hidden)] // for the tests
pub use crate::Events;
use crate::alarms::ExpiringKeys;
use crate::{Endpoint, Keyspace, LedgerName, RedisError};
use lapsed_core::clock::LedgerClock;
use lapsed_core::config::{NudgeConfig, RedisConfig, SentinelConfig};
use lapsed_core::task::{Countdown, TaskKey, UnixMs};
use lapsed_core::telemetry::Metrics;

/// The bits of a scan's cursor above these are the place of the server. A server's own cursor is below twice its number of
/// keys, times the number of slots.
const SERVER_SHIFT: u32 = 52;

/// The timer that uses expiring Redis keys.
#[derive(Debug)]
pub struct KeyExpiry {
    keys: ExpiringKeys,
    listeners: Arc<Listeners>,
    nudge: Arc<Nudge>,
}

impl KeyExpiry {
    /// Does no I/O: connections are opened on first use. `events` selects whether arming events are received, too.
    /// The daemons of a ledger share its name.
    ///
    /// # Errors
    /// If the URL cannot be parsed.
    pub fn new(
        redis: &RedisConfig,
        sentinel: SentinelConfig,
        nudge: NudgeConfig,
        events: Events,
        ledger: LedgerName,
        clock: LedgerClock,
        metrics: Arc<Metrics>,
    ) -> Result<Self, RedisError> {
        let endpoint = Endpoint::new(redis)?;
        Ok(Self::on(
            endpoint, redis, sentinel, nudge, events, ledger, clock, metrics,
        ))
    }

    /// The same on this endpoint.
    #[doc(hidden)] // for a model of the server
    #[expect(clippy::too_many_arguments, reason = "as `new`, and the endpoint")]
    pub fn on(
        endpoint: Endpoint,
        redis: &RedisConfig,
        sentinel: SentinelConfig,
        nudge: NudgeConfig,
        events: Events,
        ledger: LedgerName,
        clock: LedgerClock,
        metrics: Arc<Metrics>,
    ) -> Self {
        let keys = ExpiringKeys::on(endpoint, redis, clock.clone());
        let keyspace = keys.keyspace.clone();
        let horizon = nudge.horizon;
        let nudge = Arc::new(Nudge::new(nudge, clock.clone(), keyspace.clone()));
        let ear = {
            let nudge = Arc::clone(&nudge);
            move |keyspace: Keyspace, master| {
                let inspector = Arc::new(KeyInspector::new(
                    keyspace.clone(),
                    ledger.clone(),
                    clock.clone(),
                    Arc::clone(&nudge),
                    horizon,
                    Arc::clone(&metrics),
                ));
                let listener = Listener::new(
                    keyspace.clone(),
                    events,
                    sentinel,
                    Marks::new(keyspace, clock.clone(), ledger.clone()),
                    Arc::clone(&inspector),
                    Arc::clone(&metrics),
                );
                Ear {
                    master,
                    listener: Arc::new(listener),
                    inspector,
                }
            }
        };
        Self {
            listeners: Arc::new(Listeners::new(keyspace, ear)),
            nudge,
            keys,
        }
    }
}

#[async_trait]
impl AlarmStore for KeyExpiry {
    async fn arm(&self, alarms: &[Alarm], mode: ArmMode) -> Result<Armed, TimerError> {
        if mode == ArmMode::Replace {
            // No key is armed for these, so that none must be expected either.
            let latest = self.keys.latest();
            let beyond = alarms.iter().filter(|alarm| alarm.due > latest);
            let beyond: Vec<TaskKey> = beyond.map(|alarm| alarm.key.clone()).collect();
            self.nudge.forget(&beyond);
        }
        self.keys.arm(alarms, mode).await
    }

    fn horizon(&self) -> Option<Duration> {
        self.keys.horizon()
    }

    async fn disarm(&self, keys: &[TaskKey]) -> Result<(), TimerError> {
        self.nudge.forget(keys);
        self.keys.disarm(keys).await
    }

    async fn remaining(&self, keys: &[TaskKey]) -> Result<Vec<Remaining>, TimerError> {
        self.keys.remaining(keys).await
    }
}

#[async_trait]
impl Timer for KeyExpiry {
    async fn run(&self, sink: Arc<dyn EngineSink>, stop: CancellationToken) {
        // Separate tasks, so that events do not wait for queries. Both end with the set.
        let mut parts = JoinSet::new();
        let (listeners, nudge) = (Arc::clone(&self.listeners), Arc::clone(&self.nudge));
        let to_listeners = Arc::clone(&sink);
        let sink: Arc<dyn SignalSink> = sink;
        parts.spawn(async move { listeners.run(to_listeners).await });
        parts.spawn(async move { nudge.run(sink).await });
        if let Some(Some(Err(ended))) = stop.run_until_cancelled(parts.join_next()).await
            && let Ok(panic) = ended.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
        parts.shutdown().await;
        self.listeners.stopped();
    }

    fn expect(&self, alarms: Vec<Alarm>) {
        self.nudge.expect(alarms);
    }

    fn scope(&self) -> String {
        "key_expiry".to_owned()
    }

    fn listening(self: Arc<Self>) -> Option<Arc<dyn Listening>> {
        Some(self)
    }
}

#[async_trait]
impl Listening for KeyExpiry {
    fn is_listening(&self) -> bool {
        self.listeners.is_listening()
    }

    async fn scan_foreign(
        &self,
        cursor: Option<u64>,
        wants: &(dyn for<'a> Fn(&'a TaskKey) -> bool + Send + Sync),
    ) -> Result<ArmedPage, TimerError> {
        let page = self.scan(cursor.unwrap_or(0), wants).await;
        page.map_err(|error| {
            let passes = error.is_transient();
            let error = TimerError::new("cannot scan keys", error);
            if passes { error } else { error.lasting() }
        })
    }

    async fn inspect(
        &self,
        keys: &[TaskKey],
        since: UnixMs,
    ) -> Result<Vec<Option<Countdown>>, TimerError> {
        let found = self.find(keys, since).await;
        found.map_err(|error| TimerError::new("cannot inspect keys", error))
    }

    fn hearing(&self) -> Hearing {
        self.listeners.hearing()
    }

    fn replay_events(&self) {
        self.listeners
            .all()
            .iter()
            .for_each(|ear| ear.listener.replay_events());
    }
}

impl KeyExpiry {
    /// Reads a page of one server's keys. The cursor leads from each server to the next.
    async fn scan(
        &self,
        cursor: u64,
        wants: &(dyn for<'a> Fn(&'a TaskKey) -> bool + Send + Sync),
    ) -> Result<ArmedPage, RedisError> {
        let (place, at) = (cursor >> SERVER_SHIFT, cursor % (1 << SERVER_SHIFT));
        let ears = self.listeners.all();
        let ear = usize::try_from(place)
            .ok()
            .and_then(|place| ears.get(place));
        let ear = ear.ok_or(RedisError::NoMaster(None))?;
        let mut page = ear.inspector.scan(at, wants).await?;
        page.next = match page.next {
            Some(next) => Some((place << SERVER_SHIFT) | next),
            None => (place + 1 < ears.len() as u64).then_some((place + 1) << SERVER_SHIFT),
        };
        Ok(page)
    }

    /// Inspects each key on the server that has it.
    async fn find(
        &self,
        keys: &[TaskKey],
        since: UnixMs,
    ) -> Result<Vec<Option<Countdown>>, RedisError> {
        let mut all = vec![None; keys.len()];
        for (ear, places) in self.listeners.split(keys).await? {
            let keys: Vec<TaskKey> = places.iter().map(|place| keys[*place].clone()).collect();
            let found = ear.inspector.find(&keys, since).await?;
            for (place, found) in places.into_iter().zip(found) {
                all[place] = found;
            }
        }
        Ok(all)
    }
}
