//! A time wheel in Redis.
//!
//! The *hand* visits one slot each tick: it reads the entries of lapsed that fall due during the tick a little ahead, and
//! memory raises each at its millisecond. The *inbox* takes entries of programs from the lists of the slots, and proposes
//! them for adoption. The ledger decides what is true: an entry that is missing is written again by an audit.

mod ahead;
mod entry;
mod hand;
mod inbox;
mod proposals;
mod recent;
mod wheel_clock;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::ahead::Ahead;
use self::entry::{Element, Garbage};
use self::hand::{Hand, LEFT_BEHIND};
use self::inbox::Inbox;
use self::wheel_clock::WheelClock;
use super::{
    Acknowledgement, Alarm, AlarmStore, ArmMode, Armed, ArmedPage, EngineSink, Entries, EntryState,
    Listening, Remaining, Timer, TimerError,
};
use crate::alarms::WheelSlots;
use crate::{Commands, Endpoint, Keyspace, RedisError, WheelKeys};
use lapsed_core::clock::LedgerClock;
use lapsed_core::config::{RedisConfig, WheelConfig};
use lapsed_core::task::{TaskKey, UnixMs};
use lapsed_core::telemetry::Metrics;

/// Slots of one page of the audit, and entries of each of them.
const AUDIT_SLOTS: u32 = 100;
const AUDIT_ENTRIES: usize = 100;

/// The key of the task that an element of a list becomes, but for its due time; `None` for an entry that the old executor has
/// run.
///
/// # Errors
/// Says why it is no entry.
pub fn task_of(element: &[u8], class: &str) -> Result<Option<TaskKey>, &'static str> {
    match Element::read(element, class) {
        Element::Marker => Ok(None),
        Element::Garbage(why) => Err(why.as_str()),
        Element::Entry(entry) => match entry.key(UnixMs(0)) {
            Ok(key) => Ok(Some(key)),
            Err(_) => Err(Garbage::Method.as_str()),
        },
    }
}

/// The timer that keeps its entries on a wheel.
#[derive(Debug)]
pub struct Wheel {
    clock: LedgerClock,
    wheel_clock: WheelClock,
    entries: WheelSlots,
    keys: WheelKeys,
    ahead: Arc<Ahead>,
    hand: Arc<Hand>,
    inbox: Arc<Inbox>,
    /// False in a process that only produces tasks.
    runs: AtomicBool,
}

impl Wheel {
    /// Does no I/O: the connection is opened on first use. `adopts`: whether entries of programs are taken at all.
    ///
    /// # Errors
    /// If the URL cannot be parsed.
    pub fn new(
        redis: &RedisConfig,
        config: &WheelConfig,
        adopts: bool,
        clock: LedgerClock,
        metrics: Arc<Metrics>,
    ) -> Result<Self, RedisError> {
        let endpoint = Endpoint::new(redis)?;
        Ok(Self::on(endpoint, redis, config, adopts, clock, metrics))
    }

    /// The same on this endpoint.
    #[doc(hidden)] // for a model of the server
    pub fn on(
        endpoint: Endpoint,
        redis: &RedisConfig,
        config: &WheelConfig,
        adopts: bool,
        clock: LedgerClock,
        metrics: Arc<Metrics>,
    ) -> Self {
        let WheelConfig {
            slots,
            tick,
            class,
            stopped_at,
            ..
        } = config;
        let commands = Commands::new(endpoint);
        let wheel_clock = WheelClock::new(*slots, *tick);
        let entries = WheelSlots::on(commands.clone(), redis, config, clock.clone());
        let keys = entries.keys.clone();
        let ahead = Arc::new(Ahead::new(clock.clone(), *tick));
        let inbox = Inbox::new(keys.clone(), wheel_clock, clock.clone(), class, metrics);
        let inbox = Arc::new(inbox);
        let hand = Hand::new(
            Keyspace::new(commands, &redis.key_prefix),
            keys.clone(),
            wheel_clock,
            clock.clone(),
            Arc::clone(&ahead),
            adopts.then(|| Arc::clone(&inbox)),
            *stopped_at,
        );
        Self {
            clock,
            wheel_clock,
            entries,
            keys,
            ahead,
            hand: Arc::new(hand),
            inbox,
            runs: AtomicBool::new(false),
        }
    }

    /// Has this process raise alarms that fall due before the hand would read their entries.
    fn expect_near(&self, alarms: &[Alarm]) {
        let near = self.clock.now().plus(self.wheel_clock.ticks(2));
        let near = alarms.iter().filter(|alarm| alarm.due <= near);
        if self.runs.load(Ordering::Relaxed) {
            self.ahead.expect_new(near.cloned());
        }
    }
}

#[async_trait]
impl AlarmStore for Wheel {
    async fn arm(&self, alarms: &[Alarm], mode: ArmMode) -> Result<Armed, TimerError> {
        let armed = self.entries.arm(alarms, mode).await;
        // Afterwards: an entry that is written when its task has ended would stay.
        self.expect_near(alarms);
        armed
    }

    async fn disarm(&self, keys: &[TaskKey]) -> Result<(), TimerError> {
        self.ahead.due.forget(keys);
        self.entries.disarm(keys).await
    }

    async fn remaining(&self, keys: &[TaskKey]) -> Result<Vec<Remaining>, TimerError> {
        self.entries.remaining(keys).await
    }
}

#[async_trait]
impl Timer for Wheel {
    async fn run(&self, sink: Arc<dyn EngineSink>, stop: CancellationToken) {
        self.runs.store(true, Ordering::Relaxed);
        // Separate tasks, so that signals do not wait for queries. Both end with the set.
        let mut parts = JoinSet::new();
        let (ahead, to_signals) = (Arc::clone(&self.ahead), Arc::clone(&sink));
        let alarm_clock = super::alarm_clock(self.keys.commands());
        parts.spawn(async move { ahead.due.raise(to_signals.as_ref(), alarm_clock).await });
        let hand = Arc::clone(&self.hand);
        parts.spawn(async move { hand.run(sink.as_ref()).await });
        if let Some(Some(Err(ended))) = stop.run_until_cancelled(parts.join_next()).await
            && let Ok(panic) = ended.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
        parts.shutdown().await;
        self.hand.stopped();
    }

    fn expect(&self, alarms: Vec<Alarm>) {
        let near = self.clock.now().plus(self.wheel_clock.ticks(2));
        let known = alarms.iter().filter(|alarm| alarm.due <= near);
        self.ahead.recent.insert_all(known);
        self.ahead.due.expect(alarms);
    }

    fn scope(&self) -> String {
        self.keys.scope()
    }

    fn entries(self: Arc<Self>) -> Option<Arc<dyn Entries>> {
        Some(self)
    }

    fn listening(self: Arc<Self>) -> Option<Arc<dyn Listening>> {
        Some(self)
    }
}

#[async_trait]
impl Entries for Wheel {
    async fn acknowledge(&self, entries: &[Acknowledgement]) -> Result<(), TimerError> {
        let answered = async {
            let pending = entries.iter().filter_map(|entry| match entry.state {
                EntryState::Pending(due) => Some((&entry.key, due)),
                EntryState::Ended | EntryState::Refused | EntryState::Unclear => None,
            });
            let pending: Vec<(&TaskKey, UnixMs)> = pending.collect();
            self.keys.arm(&pending, Some(self.clock.now())).await?;
            self.inbox.answered(entries).await
        };
        let answered = answered.await;
        answered.map_err(|error| TimerError::new("cannot answer entries", error))
    }

    async fn settle(&self, ended: &[Alarm]) -> Result<(), TimerError> {
        let entries: Vec<_> = ended.iter().map(|end| (&end.key, Some(end.due))).collect();
        let removed = self.keys.remove(&entries).await;
        removed.map_err(|error| TimerError::new("cannot remove entries", error))
    }
}

#[async_trait]
impl Listening for Wheel {
    fn is_listening(&self) -> bool {
        self.hand.is_listening()
    }

    async fn scan_foreign(
        &self,
        cursor: Option<u64>,
        _: &(dyn for<'a> Fn(&'a TaskKey) -> bool + Send + Sync),
    ) -> Result<ArmedPage, TimerError> {
        let first = cursor.and_then(|cursor| u32::try_from(cursor).ok());
        let first = first.unwrap_or(0);
        let end = first
            .saturating_add(AUDIT_SLOTS)
            .min(self.wheel_clock.slots());
        let slots: Vec<u32> = (first..end).collect();
        let below = self.clock.now().minus(LEFT_BEHIND);
        let found = self
            .keys
            .due_in(&slots, None, below, 0..AUDIT_ENTRIES)
            .await;
        let found = found.map_err(|error| TimerError::new("cannot read entries", error))?;
        Ok(ArmedPage {
            foreign: Vec::new(),
            overdue: found.into_iter().filter_map(hand::alarm).collect(),
            taken: Vec::new(),
            next: (end < self.wheel_clock.slots()).then_some(u64::from(end)),
        })
    }
}
