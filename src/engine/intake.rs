//! The one door for signals: bounded, and coalesced by key.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::fleet::Share;
use crate::ledger::Arming;
use crate::task::TaskKey;
use crate::telemetry::Metrics;
use crate::timer::{Cause, Signal, Source};

/// Most signals that wait, from timers and from the sweep. The sweep comes again, so it needs few.
const FRESH_MAX: usize = 131_072;
const SWEPT_MAX: usize = 4_096;

/// How long after its settlement a signal of the same arming is an echo.
const ECHO_OF_ARMING: Duration = Duration::from_secs(1);

/// How long after it an event of the same key is.
const ECHO_OF_KEY: Duration = Duration::from_millis(50);

/// Signals that wait to be claimed, and the keys that are on their way.
///
/// A key is here once: a second signal for a waiting key is dropped, one for a key in flight is kept
/// and raised again when that run is settled, since it may be about a newer arming.
#[derive(Debug)]
pub struct Intake {
    queues: Mutex<Queues>,
    fresh_arrived: Notify,
    swept_arrived: Notify,
    /// Room was made for the sweep.
    drained: Notify,
    sweep_wanted: Notify,
    /// The strongest cause since the last audit.
    audit_cause: Mutex<Option<Cause>>,
    audit_wanted: Notify,
    metrics: Arc<Metrics>,
    share: Arc<Share>,
}

#[derive(Debug, Default)]
struct Queues {
    fresh: VecDeque<Signal>,
    swept: VecDeque<Signal>,
    known: HashMap<TaskKey, Place>,
    /// Armings that were settled a moment ago, for their echoes: one task is signalled by an event, a nudge, ...
    settled: HashMap<TaskKey, (Arming, Instant)>,
    /// The same, the oldest first.
    settled_order: VecDeque<(Instant, TaskKey)>,
}

impl Queues {
    /// Whether a signal is about an arming that was settled just now. One that does not know its arming is
    /// believed to be only for a moment: the key may have been created anew.
    fn is_echo(&self, signal: &Signal) -> bool {
        match (self.settled.get(&signal.key), signal.arming) {
            (None, _) => false,
            (Some((settled, at)), Some(arming)) => {
                *settled == arming && at.elapsed() < ECHO_OF_ARMING
            }
            (Some((_, at)), None) => signal.source == Source::Event && at.elapsed() < ECHO_OF_KEY,
        }
    }

    fn forget_settled(&mut self, now: Instant) {
        while let Some((at, _)) = self.settled_order.front()
            && now.duration_since(*at) >= ECHO_OF_ARMING
        {
            let (at, key) = self.settled_order.pop_front().expect("just looked at");
            if self
                .settled
                .get(&key)
                .is_some_and(|(_, latest)| *latest == at)
            {
                self.settled.remove(&key);
            }
        }
    }

    fn lane(&mut self, lane: Lane) -> &mut VecDeque<Signal> {
        match lane {
            Lane::Fresh => &mut self.fresh,
            Lane::Swept => &mut self.swept,
        }
    }
}

/// Which signals wait together: a backlog that the sweep works off must not make fresh ones late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// From timers and from this process.
    Fresh,
    /// From the sweep.
    Swept,
}

impl Lane {
    fn of(source: Source) -> Self {
        match source {
            Source::Event | Source::Nudge | Source::Direct => Self::Fresh,
            Source::Sweep => Self::Swept,
        }
    }

    fn capacity(self) -> usize {
        match self {
            Self::Fresh => FRESH_MAX,
            Self::Swept => SWEPT_MAX,
        }
    }
}

#[derive(Debug)]
enum Place {
    Waiting,
    InFlight { again: Option<Signal> },
}

impl Intake {
    /// An empty one.
    pub fn new(metrics: Arc<Metrics>, share: Arc<Share>) -> Self {
        Self {
            queues: Mutex::default(),
            fresh_arrived: Notify::new(),
            swept_arrived: Notify::new(),
            drained: Notify::new(),
            sweep_wanted: Notify::new(),
            audit_cause: Mutex::default(),
            audit_wanted: Notify::new(),
            metrics,
            share,
        }
    }

    /// Waits until signals wait in this lane; somebody else may take them first.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ready(&self, lane: Lane) -> usize {
        loop {
            let arrived = self.arrived(lane).notified();
            let waiting = self.queues().lane(lane).len();
            if waiting > 0 {
                return waiting;
            }
            arrived.await;
        }
    }

    /// Whether nothing waits in this lane.
    pub fn is_empty(&self, lane: Lane) -> bool {
        self.queues().lane(lane).is_empty()
    }

    /// How many signals wait in this lane.
    pub fn waiting(&self, lane: Lane) -> usize {
        self.queues().lane(lane).len()
    }

    /// Takes at most `limit` signals. What is taken is in flight until [`land`](Self::land).
    pub fn take(&self, lane: Lane, limit: usize) -> Vec<Signal> {
        let mut queues = self.queues();
        let queue = queues.lane(lane);
        let before = queue.len();
        let count = before.min(limit);
        let taken: Vec<Signal> = queue.drain(..count).collect();
        let left = queue.len();
        for signal in &taken {
            queues
                .known
                .insert(signal.key.clone(), Place::InFlight { again: None });
        }
        drop(queues);
        if left > 0 {
            self.arrived(lane).notify_one();
        }
        // Only what was full has a sweep waiting for room; asked for after each signal, a sweep that finds the
        // same row again and again would never rest.
        if lane == Lane::Swept && before >= SWEPT_MAX / 2 && left < SWEPT_MAX / 2 {
            self.drained.notify_one();
        }
        taken
    }

    fn arrived(&self, lane: Lane) -> &Notify {
        match lane {
            Lane::Fresh => &self.fresh_arrived,
            Lane::Swept => &self.swept_arrived,
        }
    }

    /// These keys are no longer in flight; what was signalled about them meanwhile is raised again.
    pub fn land<'a>(&self, keys: impl IntoIterator<Item = &'a TaskKey>) {
        let mut queues = self.queues();
        let again: Vec<Signal> = keys
            .into_iter()
            .filter_map(|key| match queues.known.remove(key) {
                Some(Place::InFlight { again }) => again,
                Some(Place::Waiting) | None => None,
            })
            .collect();
        drop(queues);
        again
            .into_iter()
            .for_each(|signal| self.admit(Lane::of(signal.source), signal));
    }

    /// These keys are about to be settled, which looks at the arming: what was signalled about them until
    /// now says nothing that the settlement will not find out.
    pub fn settling<'a>(&self, keys: impl IntoIterator<Item = &'a TaskKey>) {
        let mut queues = self.queues();
        for key in keys {
            if let Some(Place::InFlight { again }) = queues.known.get_mut(key) {
                *again = None;
            }
        }
    }

    /// As [`land`](Self::land), for armings that are finished: their echoes are dropped.
    pub fn land_settled<'a>(&self, armings: impl IntoIterator<Item = (&'a TaskKey, Arming)>) {
        let now = Instant::now();
        let mut queues = self.queues();
        queues.forget_settled(now);
        let mut keys = Vec::new();
        for (key, arming) in armings {
            queues.settled.insert(key.clone(), (arming, now));
            queues.settled_order.push_back((now, key.clone()));
            keys.push(key);
        }
        drop(queues);
        self.land(keys);
    }

    /// Waits until a sweep is asked for, or the sweep's queue has room again.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn sweep_wanted(&self) {
        tokio::select! {
            () = self.sweep_wanted.notified() => {}
            () = self.drained.notified() => {}
        }
    }

    /// Waits until an audit is asked for; asks are answered by being taken.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn audit_wanted(&self) -> Cause {
        loop {
            let wanted = self.audit_wanted.notified();
            if let Some(cause) = self.audit_cause().take() {
                return cause;
            }
            wanted.await;
        }
    }

    fn audit_cause(&self) -> MutexGuard<'_, Option<Cause>> {
        self.audit_cause
            .lock()
            .expect("nothing panics while holding it")
    }

    /// Whether an audit is asked for that does not wait for its turn.
    pub fn audit_is_urgent(&self) -> bool {
        *self.audit_cause() == Some(Cause::RedisChanged)
    }

    /// How many more signals of the sweep fit.
    pub fn swept_room(&self) -> usize {
        SWEPT_MAX.saturating_sub(self.queues().swept.len())
    }

    /// As [`raise`](Self::raise), into this lane.
    pub fn raise_in(&self, lane: Lane, signal: Signal) {
        self.metrics.signalled(signal.source.as_str());
        self.admit(lane, signal);
    }

    fn admit(&self, lane: Lane, signal: Signal) {
        let mut queues = self.queues();
        let is_echo = queues.is_echo(&signal);
        match queues.known.get_mut(&signal.key) {
            Some(Place::Waiting) => return self.drop_signal("coalesced"),
            Some(Place::InFlight { again }) => {
                *again = Some(signal);
                return;
            }
            None if is_echo => return self.drop_signal("coalesced"),
            None => {}
        }
        let queue = queues.lane(lane);
        if queue.len() >= lane.capacity() {
            drop(queues);
            self.drop_signal("overflow");
            return self.sweep(Cause::Overflow);
        }
        let (key, swept) = (signal.key.clone(), signal.source == Source::Sweep);
        queue.push_back(signal);
        queues.known.insert(key, Place::Waiting);
        drop(queues);
        if swept {
            self.metrics.recovered("overdue", 1);
        }
        self.arrived(lane).notify_one();
    }

    fn drop_signal(&self, reason: &'static str) {
        self.metrics.dropped(reason, 1);
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues
            .lock()
            .expect("nothing panics while holding the queues")
    }
}

/// For timers, by way of the [`Door`](super::door::Door), and for the engine itself.
impl Intake {
    /// As [`SignalSink::raise`](crate::timer::SignalSink::raise).
    pub fn raise(&self, signal: Signal) {
        // Every daemon hears every event; what another one claims just now is not asked for.
        if let Source::Event | Source::Nudge = signal.source
            && !self.share.owns(&signal.key)
        {
            return self.drop_signal("not_ours");
        }
        self.raise_in(Lane::of(signal.source), signal);
    }

    /// As [`SignalSink::sweep`](crate::timer::SignalSink::sweep).
    pub fn sweep(&self, cause: Cause) {
        tracing::trace!(cause = cause.as_str(), "sweep wanted");
        self.sweep_wanted.notify_one();
    }

    /// As [`SignalSink::audit`](crate::timer::SignalSink::audit).
    pub fn audit(&self, cause: Cause) {
        let mut wanted = self.audit_cause();
        // A Redis that lost its data does not wait for its turn.
        if *wanted != Some(Cause::RedisChanged) {
            *wanted = Some(cause);
        }
        drop(wanted);
        self.audit_wanted.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::UnixMs;

    fn signal(name: &str, source: Source) -> Signal {
        Signal {
            key: TaskKey::build("C", "m", [name]).unwrap(),
            source,
            arming: None,
        }
    }

    fn intake() -> Intake {
        let clock = crate::clock::LedgerClock::starting_at(UnixMs(0));
        let share = Share::new(crate::fleet::MemberId(1), clock);
        Intake::new(Arc::new(Metrics::default()), Arc::new(share))
    }

    fn waiting(intake: &Intake) -> usize {
        let queues = intake.queues();
        queues.fresh.len() + queues.swept.len()
    }

    #[test]
    fn a_repeated_signal_comes_out_once() {
        let intake = intake();
        intake.raise(signal("a", Source::Event));
        intake.raise(signal("a", Source::Nudge));
        assert_eq!(intake.take(Lane::Fresh, 10), [signal("a", Source::Event)]);
        assert_eq!(waiting(&intake), 0);
    }

    #[test]
    fn a_signal_for_a_key_in_flight_comes_out_after_it_landed() {
        let intake = intake();
        intake.raise(signal("a", Source::Event));
        let taken = intake.take(Lane::Fresh, 1);
        intake.raise(signal("a", Source::Nudge));
        assert_eq!(waiting(&intake), 0);
        intake.land(taken.iter().map(|signal| &signal.key));
        assert_eq!(intake.take(Lane::Fresh, 1), [signal("a", Source::Nudge)]);
    }

    #[test]
    fn a_signal_from_before_the_settlement_is_answered_by_it() {
        let intake = intake();
        intake.raise(signal("a", Source::Event));
        let taken = intake.take(Lane::Fresh, 1);
        intake.raise(signal("a", Source::Nudge));
        intake.settling(taken.iter().map(|signal| &signal.key));
        intake.land(taken.iter().map(|signal| &signal.key));
        assert_eq!(waiting(&intake), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn echoes_of_a_settled_arming_are_dropped_and_a_new_arming_is_not() {
        let intake = intake();
        let settled = Arming {
            row: 1,
            due: UnixMs(10),
        };
        let of = |arming| Signal {
            arming: Some(arming),
            ..signal("a", Source::Nudge)
        };
        intake.raise(of(settled));
        let taken = intake.take(Lane::Fresh, 1);
        intake.land_settled(taken.iter().map(|signal| (&signal.key, settled)));
        intake.raise(signal("a", Source::Event));
        intake.raise(of(settled));
        assert_eq!(waiting(&intake), 0);
        let newer = Arming {
            due: UnixMs(20),
            ..settled
        };
        intake.raise(of(newer));
        assert_eq!(intake.take(Lane::Fresh, 1), [of(newer)]);
        intake.land(&[taken[0].key.clone()]);
        tokio::time::advance(ECHO_OF_KEY).await;
        intake.raise(signal("a", Source::Event));
        assert_eq!(waiting(&intake), 1);
    }

    #[tokio::test]
    async fn the_sweep_waits_in_a_lane_of_its_own() {
        let intake = intake();
        for name in ["a", "b", "c"] {
            intake.raise(signal(name, Source::Sweep));
        }
        intake.raise(signal("d", Source::Direct));
        assert_eq!(
            (
                intake.ready(Lane::Fresh).await,
                intake.ready(Lane::Swept).await
            ),
            (1, 3)
        );
        assert_eq!(intake.take(Lane::Fresh, 9), [signal("d", Source::Direct)]);
        assert_eq!(intake.take(Lane::Swept, 2).len(), 2);
    }

    #[tokio::test]
    async fn overflow_drops_and_asks_for_a_sweep() {
        let intake = intake();
        for n in 0..=SWEPT_MAX {
            intake.raise(signal(&n.to_string(), Source::Sweep));
        }
        assert_eq!(waiting(&intake), SWEPT_MAX);
        intake.sweep_wanted().await;
    }

    #[tokio::test]
    async fn a_redis_that_lost_its_data_is_the_strongest_cause_of_an_audit() {
        let intake = intake();
        intake.audit(Cause::RedisChanged);
        intake.audit(Cause::Sentinel);
        assert_eq!(intake.audit_wanted().await, Cause::RedisChanged);
        intake.audit(Cause::Sentinel);
        assert_eq!(intake.audit_wanted().await, Cause::Sentinel);
    }
}
