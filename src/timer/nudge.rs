//! Raises each task at its due millisecond, and makes Redis drop its key then.
//!
//! Redis emits `expired` when it *deletes* a key: when somebody touches it, or when its own slow walk
//! over all keys comes by, minutes later in a big database. So there are three steps for each key:
//!
//! 1. *ask*, a moment before it is due, how long it has to live: a program that counts in seconds may have armed it for
//!    a little later than its row says, and that later moment is the one that is meant;
//! 2. *raise* the signal at the due millisecond, from memory, whether or not Redis has answered: the ledger knows that the
//!    task is due;
//! 3. *touch* the key right after it, which makes Redis drop it and tell every listener.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::due_queue::PART;
use super::{Alarm, AlarmClock, DueQueue, Signal, SignalSink, Source};
use crate::clock::LedgerClock;
use crate::config::NudgeConfig;
use crate::redis::{Keyspace, Ttl};
use crate::task::{TaskKey, UnixMs};

/// Most due times held in memory at once.
const CAPACITY: usize = 200_000;

/// Keys asked for in one pipeline.
const BATCH: usize = 1000;

/// Pipelines whose replies are awaited at once.
const IN_FLIGHT: usize = 16;

/// How long before its due time Redis is asked for a key: as long as its answer may take.
const ASK_AHEAD_MS: i64 = 20;
const ASK_AHEAD: Duration = Duration::from_millis(ASK_AHEAD_MS as u64);

/// A key can go one millisecond after it is due, not sooner (measured).
const AFTER_DUE: Duration = Duration::from_millis(1);

/// When a key is touched whose signal is out. Its expiry was rounded up to a millisecond when it was armed: sooner, many
/// would have to be touched twice.
const TOUCHED_AFTER: Duration = Duration::from_millis(2);

/// So many that fall due at once are a burst.
const BURST: usize = 256;

/// The same in a burst, whose keys were armed in long pipelines, the last some milliseconds after the first: sooner, many
/// would have to be touched twice; and Redis has enough to do just then.
const TOUCHED_AFTER_BURST: Duration = Duration::from_millis(20);

/// When keys are touched again whose touch was not answered. What does not fit is touched before its row is forgotten.
const TOUCHED_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A key that outlives its task's due time by no more than this was armed for it, over a slow link perhaps.
const SAME_MS: u64 = 2;

/// A foreign key that outlives it by no more than this is believed to be the same task, a little later; and any key is
/// touched again at its own time.
const NEAR_MS: u64 = 2000;

/// Raises a signal for each expected key when it falls due.
#[derive(Debug)]
pub(super) struct Nudge {
    enabled: bool,
    clock: LedgerClock,
    keyspace: Keyspace,
    /// To be asked for, and then expected.
    ahead: DueQueue,
    /// To be raised.
    expected: DueQueue,
    /// To be touched when they are due, so that they go: raised already, or raised by the event that this brings about.
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

    /// Takes alarms in; when nudging is off, drops them.
    pub(super) fn expect(&self, alarms: Vec<Alarm>) {
        if self.enabled {
            let asked_at = |alarm: Alarm| Alarm {
                due: UnixMs(alarm.due.0.saturating_sub(ASK_AHEAD_MS)),
                ..alarm
            };
            // What does not fit lies furthest ahead: the look-ahead will bring it again.
            self.ahead.insert(alarms.into_iter().map(asked_at));
        }
    }

    /// These keys fall due then. They are touched, and nothing is raised but what their events raise: who knows only
    /// a key does not know whether it is a task's, and must not displace what is known from the ledger.
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

    /// Never returns.
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
                // With no pipeline free they are raised unasked.
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

    /// Asks for one batch, and postpones the foreign keys that turn out to be due a little later than their rows.
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
            // With more than that it was created anew for much later: the ledger knows what is meant.
            (SAME_MS < outlives_ms && outlives_ms <= NEAR_MS)
                .then(|| (alarm, now.plus(Duration::from_millis(left))))
        };
        let later: Vec<(Alarm, UnixMs)> =
            batch.into_iter().zip(found).filter_map(outlive).collect();
        if !later.is_empty() {
            self.postpone_foreign(later, deadline).await;
        }
    }

    /// A key of ours that lives longer was only armed over a slow link: its task is due when its row says so. A foreign
    /// one is due when Redis says so.
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
        let mut alarm_clock = AlarmClock::of_the_kernel();
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
        let mut alarm_clock = AlarmClock::of_the_kernel();
        loop {
            let due = self.touched.due(&self.clock, &mut alarm_clock).await;
            let keys: Vec<TaskKey> = due.into_iter().map(|alarm| alarm.key).collect();
            // Their signals are out. Without an answer they are touched later: Redis would drop them when it comes across
            // them, and say so when their rows may be forgotten.
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
    sink.raise(Signal {
        key,
        source,
        arming,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::redis::{Commands, Endpoint};

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
    async fn no_more_is_held_than_fits() {
        let nudge = nudge(true);
        nudge.expect(alarms(CAPACITY));
        nudge.expect(alarms(CAPACITY + 1000));
        assert_eq!(nudge.ahead.len(), CAPACITY);
    }

    #[tokio::test]
    async fn switched_off_it_expects_nothing() {
        let nudge = nudge(false);
        nudge.expect(alarms(1));
        assert!(nudge.ahead.is_empty());
    }
}
