//! One session of the listener: it passes events on at once, and probes that events still arrive.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::hints::Hint;
use super::key_watch::Change;
use super::listener::{Flags, Listener};
use super::probe::{self, Proof};
use super::replay::Said;
use super::{Cause, Signal, SignalSink, Source};
use crate::redis::{EventKind, Heard, Loss, RedisError};
use crate::task::{Foreign, TaskKey};
use crate::telemetry::DropReason;

/// Time between two checks of role and flags.
const RECHECK_EVERY: Duration = Duration::from_secs(30);

/// How long a daemon still listens to all keys after it has announced the end: by then every member has read the
/// announcement, or knows that its list is stale.
const ENDS_AFTER: Duration = Duration::from_secs(5);

/// A confirmed subscription and its proof.
pub(super) struct Session<'a> {
    listener: &'a Listener,
    sink: &'a dyn SignalSink,
    /// A probe came back.
    proven: AtomicBool,
}

impl<'a> Session<'a> {
    pub(super) fn new(listener: &'a Listener, sink: &'a dyn SignalSink) -> Self {
        let proven = AtomicBool::new(false);
        Self {
            listener,
            sink,
            proven,
        }
    }

    /// True if a probe has come back in it.
    pub(super) fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }

    /// Between the socket and the engine: nothing here waits.
    pub(super) fn hand_on(&self, kind: EventKind, heard: Heard) {
        self.listener.metrics.event_received();
        match kind {
            EventKind::Expired => self.hand_on_expired(heard),
            EventKind::Expire => self.note(heard, Change::Armed),
            EventKind::Del | EventKind::Persist => self.note(heard, Change::Disarmed),
        }
    }

    fn hand_on_expired(&self, heard: Heard) {
        match heard {
            Heard::Task(key) => self.expired(key, Instant::now()),
            Heard::Sentinel(number) => {
                self.listener.sentinels.heard(number);
                self.sink.sweep(Cause::Sentinel);
                self.sink.audit(Cause::Sentinel);
            }
            Heard::Probe(id) => self.listener.probe.heard(id),
            Heard::Fleet => {}
            Heard::Foreign(why) => self.count_foreign(why),
        }
    }

    /// What programs do to keys matters for those that are tasks here. All others are none of our business.
    fn note(&self, heard: Heard, change: Change) {
        if let Heard::Task(key) = heard
            && self.sink.wants(&key)
        {
            self.changed(key, change, Instant::now());
        }
    }

    /// A task's key has expired: that is a signal for its owner.
    fn expired(&self, key: TaskKey, at: Instant) {
        self.listener.armings.expired(&key, self.sink);
        if !self.sink.owns(&key) {
            if let Some(member) = self.sink.hint_recipient(&key)
                && !self.listener.hints.tell(member, key.clone())
            {
                self.listener.metrics.dropped(DropReason::HintOverflow, 1);
            }
            self.listener.keep(at, Said::Expired, key.clone());
        }
        self.signal(key);
    }

    fn signal(&self, key: TaskKey) {
        self.sink.raise(Signal {
            key,
            source: Source::Event,
            arming: None,
        });
    }

    /// A key that is a task's here was armed or disarmed.
    fn changed(&self, key: TaskKey, change: Change, at: Instant) {
        match self.sink.senior_listeners(&key) {
            0 | 1 => self.listener.armings.note(key, change, at, self.sink),
            _ => self.listener.keep(at, Said::Changed(change), key),
        }
    }

    /// What another daemon, or this one, has sent to this one.
    pub(super) fn hint(&self, message: &[u8]) {
        match Hint::read(message) {
            Hint::Expired(keys) => keys.into_iter().for_each(|key| self.signal(key)),
            Hint::Probe(id) => self.listener.probe.heard(id),
        }
    }

    /// Judges again what was left to others, whenever one of them falls silent.
    pub(super) async fn judge_again(&self) -> Infallible {
        loop {
            self.listener.silenced.notified().await;
            let (events, lost) = self.listener.take_kept();
            tracing::debug!(
                events = events.len(),
                "another daemon fell silent: judging again what was left to others"
            );
            for (at, said, key) in events {
                match said {
                    Said::Expired => self.expired(key, at),
                    Said::Changed(change) => self.changed(key, change, at),
                }
            }
            if lost {
                self.sink.audit(Cause::Overflow);
            }
        }
    }

    /// Waits until another part is to be played: to hear everything, or only what this daemon is told.
    pub(super) async fn change_of_part(&self) {
        const LOOK_EVERY: Duration = Duration::from_millis(250);
        let mut superfluous_since: Option<Instant> = None;
        loop {
            sleep(LOOK_EVERY).await;
            let superfluous = self.listener.hints.work() && self.sink.may_stop_listening();
            if self.listener.hears_all() != superfluous {
                superfluous_since = None;
                self.listener.announce_end(false);
                continue;
            }
            if !superfluous {
                return self.listener.set_hears_all(true);
            }
            // The others are told first, and pass on what is ours by then.
            self.listener.announce_end(true);
            let since = *superfluous_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= ENDS_AFTER {
                return self.listener.set_hears_all(false);
            }
        }
    }

    /// Sends hints to ourselves until one does not come back.
    pub(super) async fn probe_hints(&self, me: u64) -> Loss {
        let mut ticks = interval(probe::EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let id = self.listener.probe.await_one();
            match self.listener.hints.send_probe(me, id).await {
                Ok(()) => {}
                Err(error) if error.is_transient() => {
                    self.warn("cannot send a probe", &error);
                    continue;
                }
                // We have to hear by ourselves again.
                Err(_) => return Loss::Muted,
            }
            match self.listener.probe.arrival().await {
                Proof::Heard => {
                    self.proven.store(true, Ordering::Relaxed);
                    self.listener.set_listening(true);
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
        self.listener.metrics.dropped(reason, 1);
        if let Some(held_back) = self.listener.warnings.admit(reason.as_str()) {
            tracing::warn!(
                %reason,
                held_back,
                "keys that are no tasks expire in this database; give lapsed a database of its own"
            );
        }
    }

    /// Sends probes until one that should come back does not.
    pub(super) async fn probe(&self) -> Loss {
        let mut ticks = interval(probe::EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match self.listener.probe.send().await {
                Ok(Proof::Heard) => {
                    self.proven.store(true, Ordering::Relaxed);
                    self.listener.set_listening(true);
                }
                Ok(Proof::Silent) if self.expects_events() => return Loss::Muted,
                Ok(Proof::Silent) => self.stay_deaf(),
                Err(RedisError::Replica(_)) => return Loss::Demoted,
                // Nothing is proved. If the connection is broken too, its keep-alive detects it.
                Err(error) => {
                    self.warn("cannot send a probe", &error);
                    if !error.is_transient() {
                        // Refused: until that changes the flags are all there is to go by.
                        self.listener
                            .set_listening(self.listener.flags() != Some(Flags::Off));
                    }
                }
            }
        }
    }

    /// Where events were never promised, another connection would receive none either.
    fn expects_events(&self) -> bool {
        let promised = matches!(self.listener.flags(), Some(Flags::On | Flags::ExpiredOnly));
        self.is_proven() || promised
    }

    fn stay_deaf(&self) {
        self.listener.set_listening(false);
        if let Some(held_back) = self.listener.warnings.admit("silent") {
            tracing::warn!(
                redis.node = self.listener.node(),
                held_back,
                "no expired events arrive; tasks are found by looking ahead in the ledger"
            );
        }
    }

    /// Flags can be switched off and masters demoted while the connection stays up.
    pub(super) async fn recheck(&self) -> Loss {
        loop {
            sleep(RECHECK_EVERY).await;
            match self.listener.require_master().await {
                Ok(_) => {}
                Err(RedisError::Replica(_)) => return Loss::Demoted,
                Err(error) => self.warn("cannot ask redis for its role", &error),
            }
            if let Err(error) = self.listener.check_flags().await {
                self.warn("cannot look at `notify-keyspace-events`", &error);
            }
        }
    }

    fn warn(&self, what: &'static str, error: &RedisError) {
        if let Some(held_back) = self.listener.failures.admit(error.reason()) {
            let error = error as &dyn std::error::Error;
            tracing::warn!(
                redis.node = self.listener.node(),
                error,
                held_back,
                "{what}"
            );
        }
    }
}
