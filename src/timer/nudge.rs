//! Asks Redis for each key at its due millisecond.
//!
//! Redis emits `expired` when it *deletes* a key: when somebody touches it, or when its own slow walk
//! over all keys comes by, minutes later in a big database. A `PTTL` right after the due time makes
//! Redis drop the key and tell every listener, and its reply is a signal too. If no reply comes, the
//! signal is raised all the same: the ledger knows that the task is due.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::{Agenda, Alarm, Signal, SignalSink, Source};
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

/// A key can go one millisecond after it is due, not sooner (measured).
const AFTER_DUE: Duration = Duration::from_millis(1);

/// How long Redis may keep the signals of one wake-up waiting.
const PATIENCE: Duration = Duration::from_millis(20);

/// A foreign key that has no more than this to live is believed to be the same task, a little later.
const NEAR_MS: u64 = 2000;

/// A key that should have gone and has no more than this to live was touched a moment too early; one
/// with more was armed again.
const TOO_EARLY_MS: u64 = 5;

/// Raises a signal for each expected key when it falls due.
#[derive(Debug)]
pub(super) struct Nudge {
    enabled: bool,
    clock: LedgerClock,
    keyspace: Keyspace,
    /// To be asked for.
    expected: Agenda,
    /// Foreign keys that Redis holds a little longer: to be raised then.
    postponed: Agenda,
    /// To be touched when they are due, so that they go: raised already, or raised by the event that this brings about.
    touched: Agenda,
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
            expected: Agenda::new(CAPACITY),
            postponed: Agenda::new(CAPACITY),
            touched: Agenda::new(CAPACITY),
        }
    }

    /// Takes alarms in; when nudging is off, drops them.
    pub(super) fn expect(&self, alarms: Vec<Alarm>) {
        if self.enabled {
            let asked_at = |alarm: Alarm| Alarm {
                due: alarm.due.plus(AFTER_DUE),
                ..alarm
            };
            // What does not fit lies furthest ahead: the look-ahead will bring it again.
            self.expected.insert(alarms.into_iter().map(asked_at));
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
            self.expected.remove(key);
            self.postponed.remove(key);
        }
    }

    /// Never returns.
    pub(super) async fn run(self: Arc<Self>, sink: Arc<dyn SignalSink>) {
        tokio::join!(
            self.ask_when_due(&sink),
            self.raise_postponed(sink.as_ref()),
            self.touch_when_due(),
        );
    }

    async fn ask_when_due(self: &Arc<Self>, sink: &Arc<dyn SignalSink>) {
        let slots = Arc::new(Semaphore::new(IN_FLIGHT));
        let mut asking = JoinSet::new();
        loop {
            let mut due = self.expected.due(&self.clock).await;
            let deadline = Instant::now() + PATIENCE;
            while !due.is_empty() {
                let later = due.split_off(due.len().min(BATCH));
                let batch = std::mem::replace(&mut due, later);
                let slot = timeout_at(deadline, Arc::clone(&slots).acquire_owned()).await;
                let Ok(Ok(slot)) = slot else {
                    self.raise_unasked(batch, sink.as_ref());
                    continue;
                };
                asking.spawn(Arc::clone(self).ask(batch, deadline, Arc::clone(sink), slot));
            }
            while asking.try_join_next().is_some() {}
        }
    }

    /// Asks for one batch and raises every signal of it, by the deadline at the latest, except those of
    /// foreign keys that turn out to be due a little later.
    async fn ask(
        self: Arc<Self>,
        batch: Vec<Alarm>,
        deadline: Instant,
        sink: Arc<dyn SignalSink>,
        _slot: OwnedSemaphorePermit,
    ) {
        let keys: Vec<TaskKey> = batch.iter().map(|alarm| alarm.key.clone()).collect();
        let Ok(Ok(found)) = timeout_at(deadline, self.keyspace.pttl(&keys)).await else {
            return batch
                .into_iter()
                .for_each(|alarm| raise(alarm, sink.as_ref()));
        };
        let mut still_there = Vec::new();
        for (alarm, ttl) in batch.into_iter().zip(found) {
            match Reply::from(ttl) {
                Reply::Gone => raise(alarm, sink.as_ref()),
                Reply::Going => {
                    self.touch_again(&alarm.key, Duration::ZERO);
                    raise(alarm, sink.as_ref());
                }
                Reply::Near(left) => still_there.push((alarm, left)),
            }
        }
        if !still_there.is_empty() {
            self.tell_apart(still_there, deadline, sink.as_ref()).await;
        }
    }

    /// A key of ours that is still there was only armed over a slow link: its task is due. A foreign
    /// one is due when Redis says so.
    async fn tell_apart(
        &self,
        still_there: Vec<(Alarm, Duration)>,
        deadline: Instant,
        sink: &dyn SignalSink,
    ) {
        let keys: Vec<TaskKey> = still_there
            .iter()
            .map(|(alarm, _)| alarm.key.clone())
            .collect();
        let ours = match timeout_at(deadline, self.keyspace.are_ours(&keys)).await {
            Ok(Ok(ours)) => ours,
            Ok(Err(_)) | Err(_) => vec![true; keys.len()],
        };
        for ((alarm, left), is_ours) in still_there.into_iter().zip(ours) {
            if is_ours {
                self.touch_again(&alarm.key, left);
                raise(alarm, sink);
            } else {
                let due = self.clock.now().plus(left + AFTER_DUE);
                self.postponed.insert([Alarm { due, ..alarm }]);
            }
        }
    }

    async fn raise_postponed(&self, sink: &dyn SignalSink) {
        loop {
            let due = self.postponed.due(&self.clock).await;
            self.raise_unasked(due, sink);
        }
    }

    fn raise_unasked(&self, batch: Vec<Alarm>, sink: &dyn SignalSink) {
        for alarm in batch {
            self.touch_again(&alarm.key, Duration::ZERO);
            raise(alarm, sink);
        }
    }

    fn touch_again(&self, key: &TaskKey, left: Duration) {
        let due = self.clock.now().plus(left + 2 * AFTER_DUE);
        let (key, arming) = (key.clone(), None);
        self.touched.insert([Alarm { key, due, arming }]);
    }

    async fn touch_when_due(&self) {
        loop {
            let due = self.touched.due(&self.clock).await;
            let keys: Vec<TaskKey> = due.into_iter().map(|alarm| alarm.key).collect();
            // Their signals are out; without an answer Redis drops them when it comes across them.
            let found = self.keyspace.pttl(&keys).await.unwrap_or_default();
            for (key, ttl) in keys.iter().zip(found) {
                if let Ttl::Ms(left @ ..=TOO_EARLY_MS) = ttl {
                    self.touch_again(key, Duration::from_millis(left));
                }
            }
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

/// What the answer about a due key calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reply {
    /// Raise: it is gone, or it says nothing about this task.
    Gone,
    /// Raise, and touch it once more.
    Going,
    /// It depends on whose it is.
    Near(Duration),
}

impl From<Ttl> for Reply {
    fn from(ttl: Ttl) -> Self {
        match ttl {
            Ttl::Ms(0 | 1) => Self::Going,
            Ttl::Ms(left @ ..=NEAR_MS) => Self::Near(Duration::from_millis(left)),
            // Re-created for much later, or never to expire: the ledger knows what is meant.
            Ttl::Missing | Ttl::Forever | Ttl::Ms(_) => Self::Gone,
        }
    }
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
        assert_eq!(nudge.expected.len(), CAPACITY);
    }

    #[tokio::test]
    async fn switched_off_it_expects_nothing() {
        let nudge = nudge(false);
        nudge.expect(alarms(1));
        assert!(nudge.expected.is_empty());
    }

    #[test]
    fn what_a_reply_calls_for() {
        let near = |ms| Reply::Near(Duration::from_millis(ms));
        let rules = [
            (Ttl::Missing, Reply::Gone),
            (Ttl::Ms(0), Reply::Going),
            (Ttl::Ms(1), Reply::Going),
            (Ttl::Ms(2), near(2)),
            (Ttl::Ms(2000), near(2000)),
            (Ttl::Ms(2001), Reply::Gone),
            (Ttl::Forever, Reply::Gone),
        ];
        for (ttl, reply) in rules {
            assert_eq!(Reply::from(ttl), reply, "{ttl:?}");
        }
    }
}
