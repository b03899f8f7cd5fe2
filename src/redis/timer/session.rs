//! One session of the listener: dispatches events without waiting, and probes that events still arrive.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::hints::Hint;
use super::key_watch::{Change, Receipt};
use super::listener_state::{Flags, ListenerState};
use super::marks;
use super::probe::{self, Proof};
use super::replay::KeyEvent;
use super::{Cause, EngineSink, Signal, Source};
use crate::{Backlog, EventKind, Heard, Loss, RedisError};
use lapsed_core::task::{Foreign, TaskKey};
use lapsed_core::telemetry::DropReason;

/// Time between two checks of role and flags.
const RECHECK_EVERY: Duration = Duration::from_secs(30);

/// How long a daemon still receives all events after it has announced to stop. By then every member has read the
/// announcement, or knows that its list is stale.
const ENDS_AFTER: Duration = Duration::from_secs(5);

/// A confirmed subscription.
pub(super) struct Session<'a> {
    state: &'a ListenerState,
    sink: &'a dyn EngineSink,
    /// True once a probe has arrived.
    proven: AtomicBool,
}

impl<'a> Session<'a> {
    pub(super) fn new(state: &'a ListenerState, sink: &'a dyn EngineSink) -> Self {
        let proven = AtomicBool::new(false);
        Self {
            state,
            sink,
            proven,
        }
    }

    /// True if a probe has arrived on this connection.
    pub(super) fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }

    /// Dispatches an event. Never waits.
    pub(super) fn handle(&self, kind: EventKind, heard: Heard) {
        self.state.metrics.event_received();
        match kind {
            EventKind::Expired => self.handle_expired(heard),
            EventKind::Expire => self.handle_change(heard, Change::Armed),
            EventKind::Del | EventKind::Persist => self.handle_change(heard, Change::Disarmed),
        }
    }

    fn handle_expired(&self, heard: Heard) {
        match heard {
            Heard::Task(key) => self.expired(key, self.state.marks.receipt()),
            Heard::Sentinel(number) => {
                self.state.sentinels.heard(number);
                self.sink.sweep(Cause::Sentinel);
                self.sink.audit(Cause::Sentinel);
            }
            Heard::Probe(id) => self.state.probe.heard(id),
            Heard::Shared => {}
            Heard::Foreign(why) => self.count_foreign(why),
        }
    }

    /// Handles a change of a key. Ignores keys that this daemon cannot run.
    fn handle_change(&self, heard: Heard, change: Change) {
        if let Heard::Task(key) = heard
            && self.sink.wants(&key)
        {
            self.changed(key, change, self.state.marks.receipt());
        }
    }

    /// Raises a signal for an expired key, and forwards it to the owner if that does not receive it.
    fn expired(&self, key: TaskKey, receipt: Receipt) {
        self.state.inspector.expired(&key, self.sink);
        if !self.sink.owns(&key) {
            let is_notified = match self.sink.hint_recipient(&key) {
                None => true,
                Some(member) => self.state.hints.notify(member, key.clone()),
            };
            if !is_notified {
                self.state.metrics.dropped(DropReason::HintOverflow, 1);
            }
            self.state
                .replay()
                .keep(receipt, KeyEvent::Expired, key.clone());
            self.sink.expired_elsewhere(&key, is_notified);
        }
        self.signal(key, receipt);
    }

    fn signal(&self, key: TaskKey, receipt: Receipt) {
        self.sink.raise(Signal {
            published: Some(self.state.inspector.published(receipt)),
            ..Signal::new(key, Source::Event, None)
        });
    }

    /// Inspects the key, or leaves it to the daemons that come first.
    fn changed(&self, key: TaskKey, change: Change, receipt: Receipt) {
        match self.sink.listener_rank(&key) {
            0 | 1 => self.state.inspector.note(key, change, receipt, self.sink),
            _ => self
                .state
                .replay()
                .keep(receipt, KeyEvent::Changed(change), key),
        }
    }

    /// Handles a message on this daemon's channel, or a mark.
    pub(super) fn message(&self, message: &[u8]) {
        if let Some(mark) = marks::read(message) {
            return self.state.marks.heard(mark);
        }
        match Hint::read(message) {
            Hint::Expired(keys) => {
                let receipt = self.state.marks.receipt();
                keys.into_iter().for_each(|key| self.signal(key, receipt));
            }
            Hint::Probe(id) => self.state.probe.heard(id),
        }
    }

    /// Replays events that were left to others, whenever one of those falls silent.
    pub(super) async fn replay_events(&self) -> Infallible {
        loop {
            self.state.silenced.notified().await;
            let (events, lost) = self.state.replay().take();
            tracing::debug!(
                events = events.len(),
                "another daemon has fallen silent: replaying the events left to it"
            );
            for (receipt, event, key) in events {
                match event {
                    KeyEvent::Expired => self.expired(key, receipt),
                    KeyEvent::Changed(change) => self.changed(key, change, receipt),
                }
            }
            if lost {
                self.sink.audit(Cause::Overflow);
            }
        }
    }

    /// Waits until this daemon must subscribe to all events, or may subscribe to hints alone.
    pub(super) async fn mode_change(&self) {
        const CHECK_EVERY: Duration = Duration::from_millis(250);
        let mut redundant_since: Option<Instant> = None;
        loop {
            sleep(CHECK_EVERY).await;
            let redundant =
                self.state.hints.work() && self.sink.may_stop_listening(self.state.hears_armings());
            if self.state.hears_all() != redundant {
                redundant_since = None;
                self.state.announce_end(false);
                continue;
            }
            if !redundant {
                return self.state.set_hears_all(true);
            }
            // The other daemons must know first, to forward this daemon's events by then.
            self.state.announce_end(true);
            let since = *redundant_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= ENDS_AFTER {
                return self.state.set_hears_all(false);
            }
        }
    }

    /// Sends probes as hints to this daemon until one does not arrive.
    pub(super) async fn probe_hints(&self, me: u64, backlog: &Backlog) -> Loss {
        let mut ticks = interval(probe::EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let id = self.state.probe.await_one();
            match self.state.hints.send_probe(me, id).await {
                Ok(()) => {}
                Err(error) if error.is_transient() => {
                    self.warn("cannot send a probe", &error);
                    continue;
                }
                // This daemon must receive all events itself again.
                Err(_) => return Loss::Muted,
            }
            match self.state.probe.arrival(backlog).await {
                Proof::Heard => {
                    self.proven.store(true, Ordering::Relaxed);
                    self.state.set_listening(true);
                }
                Proof::Silent => return Loss::Muted,
            }
        }
    }

    fn count_foreign(&self, why: Foreign) {
        let reason = match why {
            Foreign::NotInGrammar => DropReason::Foreign,
            Foreign::TooLong => DropReason::TooLong,
            Foreign::NotUtf8 => DropReason::NotUtf8,
        };
        self.state.metrics.dropped(reason, 1);
        if let Some(held_back) = self.state.warnings.admit(reason.as_str()) {
            tracing::warn!(
                %reason,
                held_back,
                "keys that are not tasks expire in this database; give lapsed its own database"
            );
        }
    }

    /// Sends probes until one that should arrive does not.
    pub(super) async fn probe(&self, backlog: &Backlog) -> Loss {
        let mut ticks = interval(probe::EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match self.state.probe.send(backlog).await {
                Ok(Proof::Heard) => {
                    self.proven.store(true, Ordering::Relaxed);
                    self.state.set_listening(true);
                }
                Ok(Proof::Silent) if self.expects_events() => return Loss::Muted,
                Ok(Proof::Silent) => self.warn_silent(),
                Err(RedisError::Replica(_)) => return Loss::Demoted,
                // A master of a cluster without slots has no key to expire, and a slot may have moved with the key.
                Err(RedisError::NoMaster(None)) => self
                    .state
                    .set_listening(self.state.flags() != Some(Flags::Off)),
                // Proves nothing. If the connection is broken, too, its keep-alive detects it.
                Err(error) => {
                    self.warn("cannot send a probe", &error);
                    if !error.is_transient() {
                        // Without the right to probe, only the flags tell whether events come.
                        self.state
                            .set_listening(self.state.flags() != Some(Flags::Off));
                    }
                }
            }
        }
    }

    /// True if a new connection would receive events: the flags are set, or a probe has arrived.
    fn expects_events(&self) -> bool {
        let promised = matches!(self.state.flags(), Some(Flags::On | Flags::ExpiredOnly));
        self.is_proven() || promised
    }

    fn warn_silent(&self) {
        self.state.set_listening(false);
        if let Some(held_back) = self.state.warnings.admit("silent") {
            tracing::error!(
                redis.node = self.state.node(),
                remedy = "set `notify-keyspace-events` to `Exg`",
                held_back,
                "no expired events arrive: a bare SETEX is not seen, and is lost if it expires before a scan finds its key; \
                 tasks with a row are found by looking ahead in the ledger"
            );
        }
    }

    /// Checks role and flags: both can change while the connection stays open.
    pub(super) async fn recheck(&self) -> Loss {
        loop {
            sleep(RECHECK_EVERY).await;
            match self.state.require_master().await {
                Ok(_) => {}
                Err(RedisError::Replica(_)) => return Loss::Demoted,
                Err(error) => self.warn("cannot read the role of redis", &error),
            }
            if let Err(error) = self.state.check_clocks().await {
                self.warn("cannot compare the clocks of redis and the ledger", &error);
            }
            if let Err(error) = self.state.check_flags().await {
                self.warn("cannot check `notify-keyspace-events`", &error);
            }
        }
    }

    fn warn(&self, what: &'static str, error: &RedisError) {
        if let Some(held_back) = self.state.failures.admit(error.reason()) {
            let error = error as &dyn std::error::Error;
            tracing::warn!(redis.node = self.state.node(), error, held_back, "{what}");
        }
    }
}
