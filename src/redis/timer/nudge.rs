//! Raises each task at its due millisecond, and makes Redis delete its key then.
//!
//! Redis publishes `expired` when it *deletes* a key: when a client touches it, or when the active expiry cycle reaches
//! it, minutes later in a big database. So each key takes three steps:
//!
//! 1. *query* its remaining time shortly before it is due. A program that counts in whole seconds may have armed it for
//!    a little later than its row says; the later time counts;
//! 2. *raise* the signal at the due millisecond from memory, whether or not Redis has answered;
//! 3. *touch* the key afterwards, so that Redis deletes it and notifies every listener.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::{Alarm, AlarmClock, DueQueue, Signal, SignalSink, Source};
use crate::{Keyspace, Ttl};
use lapsed_core::clock::LedgerClock;
use lapsed_core::config::NudgeConfig;
use lapsed_core::task::{TaskKey, UnixMs};
use lapsed_core::timer::due_queue::PART;

/// Most due times held in memory.
const CAPACITY: usize = 200_000;

/// Most keys queried in one pipeline.
const BATCH: usize = 1000;

/// Most pipelines that wait for a reply.
const IN_FLIGHT: usize = 16;

/// How long before the due time a key is queried. Redis must answer within this time.
const ASK_AHEAD_MS: i64 = 20;
const ASK_AHEAD: Duration = Duration::from_millis(ASK_AHEAD_MS as u64);

/// Redis deletes a key one millisecond after its expiry at the earliest (measured).
const AFTER_DUE: Duration = Duration::from_millis(1);

/// Delay from the signal to the touch. The expiry was rounded up to a millisecond, so an earlier touch would often have
/// to be repeated.
const TOUCHED_AFTER: Duration = Duration::from_millis(2);

/// Alarms due at once from which on they count as a burst.
const BURST: usize = 256;

/// The same delay in a burst. Its keys were armed in long pipelines, the last some milliseconds after the first, and
/// Redis is busy at that time.
const TOUCHED_AFTER_BURST: Duration = Duration::from_millis(20);

/// Delay before a touch that was not answered is repeated.
const TOUCHED_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A key that outlives the due time of its task by at most this was armed for it.
const SAME_MS: u64 = 2;

/// A key of another program that outlives the due time by at most this belongs to the same task, a little later. A key
/// with at most this time left is touched again.
const NEAR_MS: u64 = 2000;

/// Raises a signal for each expected key when it falls due.
#[derive(Debug)]
pub(super) struct Nudge {
    enabled: bool,
    clock: LedgerClock,
    keyspace: Keyspace,
    /// Alarms to query, then to expect.
    ahead: DueQueue,
    /// Alarms to raise.
    expected: DueQueue,
    /// Keys to touch at their expiry: their signal is raised already, or their `expired` event raises it.
    touched: DueQueue,
}

impl Nudge {
    pub(super) fn new(config: NudgeConfig, clock: LedgerClock, keyspace: Keyspace) -> Self {
        let NudgeConfig {
            enabled,
            horizon: _,
        } = config;
        Self {
            enabled,
            clock,
            keyspace,
            ahead: DueQueue::new(CAPACITY),
            expected: DueQueue::new(CAPACITY),
            touched: DueQueue::new(CAPACITY),
        }
    }

    /// Accepts alarms. Drops them if nudging is off.
    pub(super) fn expect(&self, alarms: Vec<Alarm>) {
        if self.enabled {
            let asked_at = |alarm: Alarm| Alarm {
                due: UnixMs(alarm.due.0.saturating_sub(ASK_AHEAD_MS)),
                ..alarm
            };
            // The latest alarms are dropped if it is full; the look-ahead brings them again.
            self.ahead.insert(alarms.into_iter().map(asked_at));
        }
    }

    /// Touches these keys at their expiry and raises no signal: it is unknown whether they belong to tasks, and they
    /// must not replace alarms from the ledger.
    pub(super) fn touch(&self, keys: impl IntoIterator<Item = (TaskKey, UnixMs)>) {
        if self.enabled {
            let touched_at = |(key, due): (TaskKey, UnixMs)| Alarm {
                key,
                due: due.plus(AFTER_DUE),
                arming: None,
            };
            self.touched.insert(keys.into_iter().map(touched_at));
        }
    }

    pub(super) fn forget(&self, keys: &[TaskKey]) {
        for key in keys {
            self.ahead.remove(key);
            self.expected.remove(key);
        }
    }

    /// Runs forever.
    pub(super) async fn run(self: Arc<Self>, sink: Arc<dyn SignalSink>) {
        tokio::join!(
            self.ask_ahead(),
            self.raise_when_due(sink.as_ref()),
            self.touch_when_due(),
        );
    }

    async fn ask_ahead(self: &Arc<Self>) {
        let slots = Arc::new(Semaphore::new(IN_FLIGHT));
        let mut asking = JoinSet::new();
        let mut alarm_clock = AlarmClock::of_the_runtime();
        loop {
            let mut near = self.ahead.due(&self.clock, &mut alarm_clock).await;
            for alarm in &mut near {
                alarm.due = alarm.due.plus(ASK_AHEAD);
            }
            self.expected.insert(near.iter().cloned());
            for batch in near.chunks(BATCH) {
                // Without a free pipeline they are raised without a query.
                let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
                    break;
                };
                asking.spawn(Arc::clone(self).ask(batch.to_vec(), slot));
            }
            while asking.try_join_next().is_some() {}
            if near.len() == PART {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Queries one batch, and postpones keys of other programs that expire a little after their rows are due.
    async fn ask(self: Arc<Self>, batch: Vec<Alarm>, _slot: OwnedSemaphorePermit) {
        let deadline = Instant::now() + ASK_AHEAD;
        let keys: Vec<TaskKey> = batch.iter().map(|alarm| alarm.key.clone()).collect();
        let Ok(Ok(found)) = timeout_at(deadline, self.keyspace.pttl(&keys)).await else {
            return;
        };
        let now = self.clock.now();
        let outlive = |(alarm, ttl): (Alarm, Ttl)| {
            let Ttl::Ms(left) = ttl else { return None };
            let outlives_ms = left.saturating_sub(alarm.due.since(now).as_millis() as u64);
            // A longer time means that the task was created again; the ledger knows its due time.
            (SAME_MS < outlives_ms && outlives_ms <= NEAR_MS)
                .then(|| (alarm, now.plus(Duration::from_millis(left))))
        };
        let later: Vec<(Alarm, UnixMs)> =
            batch.into_iter().zip(found).filter_map(outlive).collect();
        if !later.is_empty() {
            self.postpone_foreign(later, deadline).await;
        }
    }

    /// Postpones alarms whose key another program armed. A key of lapsed that lives longer was armed over a slow link,
    /// and its row decides.
    async fn postpone_foreign(&self, later: Vec<(Alarm, UnixMs)>, deadline: Instant) {
        let keys: Vec<TaskKey> = later.iter().map(|(alarm, _)| alarm.key.clone()).collect();
        let Ok(Ok(ours)) = timeout_at(deadline, self.keyspace.are_ours(&keys)).await else {
            return;
        };
        let foreign = later.into_iter().zip(ours).filter(|(_, is_ours)| !is_ours);
        let postponed = foreign.map(|((alarm, gone), _)| Alarm { due: gone, ..alarm });
        self.expected.insert(postponed);
    }

    async fn raise_when_due(&self, sink: &dyn SignalSink) {
        let mut alarm_clock = super::alarm_clock(self.keyspace.commands());
        loop {
            let due = self.expected.due(&self.clock, &mut alarm_clock).await;
            let (is_part, keys) = (due.len() == PART, due.iter().map(|alarm| alarm.key.clone()));
            let after = match due.len() {
                BURST.. => TOUCHED_AFTER_BURST,
                _ => TOUCHED_AFTER,
            };
            let touched: Vec<_> = keys.map(|key| (key, after)).collect();
            due.into_iter().for_each(|alarm| raise(alarm, sink));
            self.touch_soon(touched.into_iter());
            if is_part {
                tokio::task::yield_now().await;
            }
        }
    }

    fn touch_soon(&self, keys: impl Iterator<Item = (TaskKey, Duration)>) {
        let now = self.clock.now();
        self.touched.insert(keys.map(|(key, wait)| Alarm {
            key,
            due: now.plus(wait),
            arming: None,
        }));
    }

    async fn touch_when_due(&self) {
        let mut alarm_clock = super::alarm_clock(self.keyspace.commands());
        loop {
            let due = self.touched.due(&self.clock, &mut alarm_clock).await;
            let keys: Vec<TaskKey> = due.into_iter().map(|alarm| alarm.key).collect();
            // Their signals are raised. A touch that fails is repeated, because Redis would delete the key at any later
            // time, when its row may already be deleted.
            let Ok(found) = self.keyspace.pttl(&keys).await else {
                self.touch_soon(keys.into_iter().map(|key| (key, TOUCHED_AGAIN_AFTER)));
                continue;
            };
            let going = keys
                .into_iter()
                .zip(found)
                .filter_map(|(key, ttl)| match ttl {
                    Ttl::Ms(left @ ..=NEAR_MS) => {
                        Some((key, Duration::from_millis(left) + AFTER_DUE))
                    }
                    _ => None,
                });
            self.touch_soon(going);
        }
    }
}

fn raise(alarm: Alarm, sink: &dyn SignalSink) {
    let Alarm { key, arming, .. } = alarm;
    let source = Source::Nudge;
    sink.raise(Signal::new(key, source, arming));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Commands, Endpoint};
    use lapsed_core::config::Config;

    fn nudge(enabled: bool) -> Nudge {
        let Config { redis, nudge, .. } = Config::default();
        let commands = Commands::new(Endpoint::new(&redis).unwrap());
        let clock = LedgerClock::starting_at(UnixMs(0));
        Nudge::new(
            NudgeConfig { enabled, ..nudge },
            clock,
            Keyspace::new(commands, ""),
        )
    }

    fn alarms(count: usize) -> Vec<Alarm> {
        let alarm = |number: usize| Alarm {
            key: TaskKey::build("C", "m", [number.to_string()]).unwrap(),
            due: UnixMs(1),
            arming: None,
        };
        (0..count).map(alarm).collect()
    }

    #[tokio::test]
    async fn the_nudge_holds_at_most_its_capacity() {
        let nudge = nudge(true);
        nudge.expect(alarms(CAPACITY));
        nudge.expect(alarms(CAPACITY + 1000));
        assert_eq!(nudge.ahead.count(), CAPACITY);
    }

    #[tokio::test]
    async fn a_disabled_nudge_expects_nothing() {
        let nudge = nudge(false);
        nudge.expect(alarms(1));
        assert_eq!(nudge.ahead.count(), 0);
    }
}
