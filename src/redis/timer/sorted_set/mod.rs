//! Sorted sets: every pending task is an entry, whose score is its due time.
//!
//! Programs add entries with `ZADD`, move them with another one, and cancel with `ZREM`. An entry of a program is a
//! *request*: it is proposed to the engine, and acknowledged once the ledger holds its task, by a score in microseconds.
//! So new requests are found by their scores, however many entries wait. Signals are raised from memory.

mod absence;
#[cfg(feature = "engine")]
pub mod delayed_sets;
mod inbox;
mod mark;
mod near;
mod overdue;
mod quiet;
mod requests;
mod session;
mod state;
mod writing;

use std::sync::Arc;

use async_trait::async_trait;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::overdue::Pages;
use self::session::Sessions;
use self::state::State;
use self::writing::Writing;
use super::{
    Acknowledgement, Alarm, AlarmStore, ArmMode, Armed, ArmedPage, EngineSink, Listening,
    Remaining, Taking, Timer, TimerError,
};
use crate::alarms::SetEntries;
use crate::alarms::set_entries::failed;
use crate::{Commands, Endpoint, Keyspace, LedgerName, RedisError};
use lapsed_core::clock::LedgerClock;
use lapsed_core::config::{RedisConfig, SortedSetConfig};
use lapsed_core::task::{TaskKey, UnixMs};
use lapsed_core::telemetry::Metrics;

/// The timer that uses sorted sets.
pub struct SortedSet {
    state: Arc<State>,
    sessions: Arc<Sessions>,
}

impl SortedSet {
    /// Does no I/O: connections are opened on first use.
    ///
    /// # Errors
    /// If the URL cannot be parsed.
    pub fn new(
        redis: &RedisConfig,
        sets: SortedSetConfig,
        clock: LedgerClock,
        metrics: Arc<Metrics>,
        ledger: LedgerName,
    ) -> Result<Self, RedisError> {
        let endpoint = Endpoint::new(redis)?;
        Ok(Self::on(endpoint, redis, sets, clock, metrics, ledger))
    }

    /// The same on this endpoint.
    #[doc(hidden)] // for a model of the server
    pub fn on(
        endpoint: Endpoint,
        redis: &RedisConfig,
        sets: SortedSetConfig,
        clock: LedgerClock,
        metrics: Arc<Metrics>,
        ledger: LedgerName,
    ) -> Self {
        let commands = Commands::new(endpoint);
        let keyspace = Keyspace::new(commands.clone(), &redis.key_prefix);
        let entries = SetEntries::on(commands, redis, sets, clock.clone(), ledger);
        let state = Arc::new(State::new(entries, keyspace, clock, metrics));
        Self {
            sessions: Arc::new(Sessions::new(Arc::clone(&state))),
            state,
        }
    }
}

#[async_trait]
impl AlarmStore for SortedSet {
    async fn arm(&self, alarms: &[Alarm], mode: ArmMode) -> Result<Armed, TimerError> {
        let armed = match mode {
            ArmMode::Replace => Writing(&self.state).replace(alarms).await,
            ArmMode::IfMissing => Writing(&self.state).repair(alarms).await,
        };
        armed.map_err(|error| failed("cannot write entries", error))
    }

    async fn disarm(&self, keys: &[TaskKey]) -> Result<(), TimerError> {
        self.state.signals.forget(keys);
        self.state.entries.disarm(keys).await
    }

    async fn remaining(&self, keys: &[TaskKey]) -> Result<Vec<Remaining>, TimerError> {
        self.state.entries.remaining(keys).await
    }
}

#[async_trait]
impl Timer for SortedSet {
    async fn run(&self, sink: Arc<dyn EngineSink>, stop: CancellationToken) {
        self.state.set_sink(Some(sink.clone()));
        // Separate tasks, so that signals do not wait for Redis. All end with the set.
        let mut parts = JoinSet::new();
        let (state, to) = (Arc::clone(&self.state), Arc::clone(&sink));
        let alarm_clock = super::alarm_clock(self.state.keyspace.commands());
        parts.spawn(async move { match state.signals.raise(to.as_ref(), alarm_clock).await {} });
        let sessions = Arc::clone(&self.sessions);
        parts.spawn(async move { sessions.run(sink.as_ref()).await });
        if let Some(Some(Err(ended))) = stop.run_until_cancelled(parts.join_next()).await
            && let Ok(panic) = ended.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
        parts.shutdown().await;
        self.state.set_sink(None);
        self.sessions.stopped();
    }

    fn expect(&self, alarms: Vec<Alarm>) {
        self.state.expect(alarms);
    }

    fn scope(&self) -> String {
        self.state.entries.scope()
    }

    fn entries(self: Arc<Self>) -> Option<Arc<dyn super::Entries>> {
        Some(self)
    }

    fn listening(self: Arc<Self>) -> Option<Arc<dyn Listening>> {
        Some(self)
    }
}

#[async_trait]
impl super::Entries for SortedSet {
    fn counts_absence(&self, _key: Option<&TaskKey>) -> bool {
        true
    }

    async fn take(&self, alarms: &[Alarm]) -> Result<Vec<Taking>, TimerError> {
        let taken = Writing(&self.state).take(alarms).await;
        taken.map_err(|error| failed("cannot take entries", error))
    }

    async fn retake(&self, entries: &[(Option<UnixMs>, Alarm)]) -> Result<(), TimerError> {
        let retaken = self.state.entries.retake(entries).await;
        retaken.map_err(|error| failed("cannot take entries", error))
    }

    async fn restore(&self, lost: &[Alarm]) -> Result<(), TimerError> {
        let restored = Writing(&self.state).restore(lost).await;
        restored.map_err(|error| failed("cannot write entries", error))
    }

    async fn acknowledge(&self, entries: &[Acknowledgement]) -> Result<(), TimerError> {
        let acknowledged = Writing(&self.state).acknowledge(entries).await;
        acknowledged.map_err(|error| failed("cannot acknowledge entries", error))
    }

    async fn settle(&self, ended: &[Alarm]) -> Result<(), TimerError> {
        let settled = Writing(&self.state).settle(ended).await;
        settled.map_err(|error| failed("cannot remove entries of ended tasks", error))
    }

    async fn audited(&self, began: UnixMs) {
        let State {
            entries,
            keyspace,
            clock,
            marks,
            ..
        } = &*self.state;
        self.sessions.audited_within(clock.now().since(began));
        if let Err(error) = marks.audited(entries, keyspace, began).await {
            self.state
                .warn("cannot mark the sorted sets after an audit", &error);
        }
    }
}

#[async_trait]
impl Listening for SortedSet {
    fn is_listening(&self) -> bool {
        self.sessions.is_up()
    }

    async fn scan_foreign(
        &self,
        cursor: Option<u64>,
        wants: &(dyn for<'a> Fn(&'a TaskKey) -> bool + Send + Sync),
    ) -> Result<ArmedPage, TimerError> {
        let page = Pages(&self.state).read(cursor, wants).await;
        page.map_err(|error| failed("cannot read entries", error))
    }
}
