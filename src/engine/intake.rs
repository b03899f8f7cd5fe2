//! The one door for signals: bounded, and coalesced by key.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout};

use super::flow::Gate;
use super::lines::{Aside, Held, Lines, Picked, Refused, Waiting, Want};
use super::unroutable::Unroutable;
use crate::fleet::Share;
use crate::handler::Router;
use crate::ledger::Arming;
use crate::task::TaskKey;
use crate::telemetry::Metrics;
use crate::timer::{Cause, Signal, Source};

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
    gate: Arc<Gate>,
    router: Arc<Router>,
    slots: Arc<Semaphore>,
    unroutable: Unroutable,
    sweep_wanted: Notify,
    /// The strongest cause since the last audit.
    audit_cause: Mutex<Option<Cause>>,
    audit_wanted: Notify,
    metrics: Arc<Metrics>,
    share: Arc<Share>,
}

#[derive(Debug)]
struct Queues {
    lines: Lines,
    known: HashMap<TaskKey, Place>,
    /// Armings that were settled a moment ago, for their echoes: one task is signalled by an event, a nudge, ...
    settled: HashMap<TaskKey, (Arming, Instant)>,
    /// The same, the oldest first.
    settled_order: VecDeque<(Instant, TaskKey)>,
}

impl Queues {
    /// The signal, if it says anything new: not of a key that waits. One in flight keeps it for later.
    fn news(&mut self, signal: Signal, metrics: &Metrics) -> Option<Signal> {
        let is_echo = self.is_echo(&signal);
        match self.known.get_mut(&signal.key) {
            Some(Place::InFlight { again }) => {
                *again = Some(signal);
                None
            }
            None if !is_echo => Some(signal),
            Some(Place::Waiting) | None => {
                metrics.dropped("coalesced", 1);
                None
            }
        }
    }

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
}

#[derive(Debug)]
enum Place {
    Waiting,
    InFlight { again: Option<Signal> },
}

impl Intake {
    /// An empty one, for what this router runs in these slots.
    pub fn new(
        metrics: Arc<Metrics>,
        share: Arc<Share>,
        router: Arc<Router>,
        slots: Arc<Semaphore>,
    ) -> Self {
        let gate = Arc::<Gate>::default();
        let queues = Queues {
            lines: Lines::new(&router, Arc::clone(&gate)),
            known: HashMap::new(),
            settled: HashMap::new(),
            settled_order: VecDeque::new(),
        };
        Self {
            queues: Mutex::new(queues),
            gate,
            router,
            slots,
            unroutable: Unroutable::new(Arc::clone(&metrics)),
            sweep_wanted: Notify::new(),
            audit_cause: Mutex::default(),
            audit_wanted: Notify::new(),
            metrics,
            share,
        }
    }

    /// Waits until signals wait in this lane that may start; somebody else may take them first.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ready(&self, lane: Lane) -> usize {
        /// What is held is looked at again after so long, whether or not anybody said that it may start.
        const LOOK_AGAIN: Duration = Duration::from_millis(100);
        loop {
            let arrived = self.gate.arrived(lane).notified();
            match self.look(lane) {
                Waiting::Startable(count) => return count,
                Waiting::Nothing => arrived.await,
                Waiting::Held => drop(timeout(LOOK_AGAIN, arrived).await),
            }
        }
    }

    fn look(&self, lane: Lane) -> Waiting {
        let queues = self.queues_of_now();
        if queues.lines.waiting(lane) == 0 {
            return Waiting::Nothing;
        }
        self.gate.listen_for_ends();
        queues.lines.look(lane, self.slots.available_permits())
    }

    /// How many signals could start in this lane, if there were slots for all.
    pub fn startable(&self, lane: Lane) -> usize {
        match self.look(lane) {
            Waiting::Nothing | Waiting::Held => 0,
            Waiting::Startable(count) => count,
        }
    }

    /// Whether signals wait for nothing but slots that are left to other routes.
    pub fn is_crowded(&self) -> bool {
        let queues = self.queues();
        queues.lines.is_crowded(self.slots.available_permits())
    }

    /// Why signals of this route, if any wait, do not start now.
    pub fn held(&self, route: &str) -> Option<Held> {
        let queues = self.queues();
        queues
            .lines
            .held_route(route, self.slots.available_permits())
    }

    /// How many signals wait on each route that ever had any.
    pub fn waiting_by_route(&self) -> Vec<(String, usize)> {
        let queues = self.queues();
        let waiting = queues.lines.by_route();
        waiting
            .map(|(name, count)| (name.to_owned(), count))
            .collect()
    }

    /// Takes at most `limit` signals that may start. What is taken is in flight until [`land`](Self::land).
    pub fn take(&self, lane: Lane, limit: usize) -> Vec<Picked> {
        let mut queues = self.queues_of_now();
        let taken = queues
            .lines
            .take(lane, limit, self.slots.available_permits());
        let left = queues.lines.waiting(lane);
        for Picked { signal, .. } in &taken {
            queues
                .known
                .insert(signal.key.clone(), Place::InFlight { again: None });
        }
        drop(queues);
        if left > 0 && !taken.is_empty() {
            self.gate.arrived(lane).notify_one();
        }
        taken
    }

    /// Waits until routes with a rate are in want of starts.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wants(&self) -> Vec<Want> {
        loop {
            let starved = self.gate.starved.notified();
            let wants = self.queues().lines.wants();
            if !wants.is_empty() {
                return wants;
            }
            starved.await;
        }
    }

    /// Takes out of this route's line what is hindered from starting, as [`Lines::set_aside`] does. It is in flight until
    /// [`land`](Self::land).
    pub fn set_aside(&self, route: &str, most: usize, hindered: impl Fn(&Signal) -> bool) -> Aside {
        let mut queues = self.queues_of_now();
        let aside = queues.lines.set_aside(route, most, hindered);
        for Signal { key, .. } in &aside.signals {
            let place = Place::InFlight { again: None };
            queues.known.insert(key.clone(), place);
        }
        aside
    }

    /// Puts a signal that was set aside in its line again.
    pub fn put_back(&self, signal: Signal) {
        // What there is no room for is found by the sweep.
        self.admit(Lane::of(signal.source), signal).unwrap_or(());
    }

    /// So many starts were granted to this route.
    pub fn grant(&self, route: &str, starts: u32) {
        if starts > 0 {
            self.queues().lines.grant(route, starts);
            self.gate.open();
        }
    }

    /// This route may be in want again.
    pub fn answered(&self, route: &str) {
        self.queues().lines.answered(route);
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
            // What there is no room for is found by the sweep.
            .for_each(|signal| self.admit(Lane::of(signal.source), signal).unwrap_or(()));
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
            () = self.gate.drained.notified() => {}
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

    /// Whether there is room for so many more signals of the sweep, of whatever can start.
    pub fn has_room_to_sweep(&self, rows: usize) -> bool {
        let queues = self.queues();
        let free = self.slots.available_permits();
        queues.lines.has_room_to_sweep(rows, free)
    }

    /// As [`raise`](Self::raise), into this lane. Answers whether there was room for it.
    pub fn raise_in(&self, lane: Lane, signal: Signal) -> Result<(), Refused> {
        self.metrics.signalled(signal.source.as_str());
        self.admit(lane, signal)
    }

    fn admit(&self, lane: Lane, signal: Signal) -> Result<(), Refused> {
        let Some(signal) = self.queues().news(signal, &self.metrics) else {
            return Ok(());
        };
        let (swept, reloads) = (signal.source == Source::Sweep, self.router.reloads());
        // Without the lock: an expression takes a while.
        let Some(route) = self.router.find(&signal.key) else {
            self.unroutable.meet(&signal.key);
            return Ok(());
        };
        let mut queues = self.queues_of_now();
        if self.router.reloads() != reloads {
            drop(queues);
            return self.admit(lane, signal);
        }
        let Some(signal) = queues.news(signal, &self.metrics) else {
            return Ok(());
        };
        let key = signal.key.clone();
        if let Err(refused) = queues.lines.push(lane, route, signal) {
            drop(queues);
            match refused {
                Refused::Held => self.drop_signal("held"),
                Refused::Full => {
                    self.drop_signal("overflow");
                    self.sweep(Cause::Overflow);
                }
            }
            return Err(refused);
        }
        queues.known.insert(key, Place::Waiting);
        drop(queues);
        if swept {
            self.metrics.recovered("overdue", 1);
        }
        self.gate.arrived(lane).notify_one();
        Ok(())
    }

    fn drop_signal(&self, reason: &'static str) {
        self.metrics.dropped(reason, 1);
    }

    /// The queues by the routes as they are now: these may have been exchanged.
    fn queues_of_now(&self) -> MutexGuard<'_, Queues> {
        let mut queues = self.queues();
        if queues.lines.are_of(&self.router) {
            return queues;
        }
        for key in queues.lines.reroute(&self.router) {
            queues.known.remove(&key);
            if !self.router.runs(&key) {
                self.unroutable.meet(&key);
            }
        }
        self.gate.open();
        queues
    }

    /// Nothing here runs it.
    pub fn unroutable(&self, key: &TaskKey) {
        self.unroutable.meet(key);
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
        // What there is no room for is found by the sweep.
        self.raise_in(Lane::of(signal.source), signal).unwrap_or(());
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
    use crate::engine::lines::SWEPT_MAX;
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
        let mut handlers = crate::HandlerRegistry::new();
        handlers.on("C", "m", |_, _: Vec<String>| async { Ok(()) });
        Intake::new(
            Arc::new(Metrics::default()),
            Arc::new(share),
            Arc::new(Router::new(handlers, &crate::Config::default())),
            Arc::new(Semaphore::new(256)),
        )
    }

    fn waiting(intake: &Intake) -> usize {
        let queues = intake.queues();
        queues.lines.waiting(Lane::Fresh) + queues.lines.waiting(Lane::Swept)
    }

    fn take(intake: &Intake, lane: Lane, limit: usize) -> Vec<Signal> {
        let taken = intake.take(lane, limit).into_iter();
        taken.map(|picked| picked.signal).collect()
    }

    #[test]
    fn a_repeated_signal_comes_out_once() {
        let intake = intake();
        intake.raise(signal("a", Source::Event));
        intake.raise(signal("a", Source::Nudge));
        assert_eq!(take(&intake, Lane::Fresh, 10), [signal("a", Source::Event)]);
        assert_eq!(waiting(&intake), 0);
    }

    #[test]
    fn a_signal_for_a_key_in_flight_comes_out_after_it_landed() {
        let intake = intake();
        intake.raise(signal("a", Source::Event));
        let taken = take(&intake, Lane::Fresh, 1);
        intake.raise(signal("a", Source::Nudge));
        assert_eq!(waiting(&intake), 0);
        intake.land(taken.iter().map(|signal| &signal.key));
        assert_eq!(take(&intake, Lane::Fresh, 1), [signal("a", Source::Nudge)]);
    }

    #[test]
    fn a_signal_from_before_the_settlement_is_answered_by_it() {
        let intake = intake();
        intake.raise(signal("a", Source::Event));
        let taken = take(&intake, Lane::Fresh, 1);
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
        let taken = take(&intake, Lane::Fresh, 1);
        intake.land_settled(taken.iter().map(|signal| (&signal.key, settled)));
        intake.raise(signal("a", Source::Event));
        intake.raise(of(settled));
        assert_eq!(waiting(&intake), 0);
        let newer = Arming {
            due: UnixMs(20),
            ..settled
        };
        intake.raise(of(newer));
        assert_eq!(take(&intake, Lane::Fresh, 1), [of(newer)]);
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
        assert_eq!(take(&intake, Lane::Fresh, 9), [signal("d", Source::Direct)]);
        assert_eq!(take(&intake, Lane::Swept, 2).len(), 2);
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
