//! The seam between the engine and the sources of signals.
//!
//! A timer says *when to look*, never what is true. A signal may come twice, early, late, or for an arming that no
//! longer exists, and any signal may be lost: the ledger decides, and the sweep finds what no signal named. A timer
//! knows neither ledger nor handlers.

mod alarm_clock;
mod due_queue;
mod due_signals;
mod error;
mod hints;
pub mod key_expiry;
mod key_inspector;
mod key_watch;
pub mod ledger_poll;
mod listener;
mod listener_state;
mod marks;
mod nudge;
mod probe;
mod replay;
mod sentinel;
mod session;
pub mod sorted_set;
pub mod wheel;

pub(crate) use alarm_clock::AlarmClock;
pub(crate) use due_queue::DueQueue;
pub use error::TimerError;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::task::{Arming, Countdown, TaskKey, UnixMs};

/// A task and its due time, as a timer needs them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alarm {
    /// The task.
    pub key: TaskKey,
    /// The due time, on the ledger's clock.
    pub due: UnixMs,
    /// The row, if the caller knows it. The signal then carries it, which saves a lookup.
    pub arming: Option<Arming>,
}

/// "This key may be due."
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signal {
    /// The task.
    pub key: TaskKey,
    /// Where the signal comes from.
    pub source: Source,
    /// The arming, if the source knows it.
    pub arming: Option<Arming>,
}

/// The source of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// Redis published `expired` for the key.
    Event,
    /// This process raised it at the due time.
    Nudge,
    /// The sweep found the task overdue.
    Sweep,
    /// This process released the task, or created it due.
    Direct,
}

impl Source {
    /// Name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Nudge => "nudge",
            Self::Sweep => "sweep",
            Self::Direct => "direct",
        }
    }
}

/// Why a background task of the engine runs now. In the order of urgency: an audit for a later cause has more to find,
/// and can wait less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// It is time for the next pass.
    Interval,
    /// There is something to do: candidates are due, starts are wanted.
    Work,
    /// A full queue has room again.
    Room,
    /// The configuration changed.
    Configured,
    /// Members or ownership changed.
    Members,
    /// The ledger answers again.
    LedgerAnswers,
    /// A sentinel expired.
    Sentinel,
    /// A caller requested it.
    Asked,
    /// Signals were dropped because a queue was full.
    Overflow,
    /// The daemon starts.
    Start,
    /// A subscription was confirmed: earlier events are lost.
    Subscribed,
    /// Redis lost its data or is another server: new `run_id`, or keys vanished without an event.
    RedisChanged,
}

impl Cause {
    /// The name for metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Interval => "interval",
            Self::Work => "work",
            Self::Room => "room",
            Self::Configured => "configured",
            Self::Members => "members",
            Self::LedgerAnswers => "ledger_answers",
            Self::Sentinel => "sentinel",
            Self::Asked => "asked",
            Self::Overflow => "overflow",
            Self::Start => "start",
            Self::Subscribed => "subscribed",
            Self::RedisChanged => "redis_changed",
        }
    }
}

/// Adoption candidate: a key that another program armed or changed, and that may belong to a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdoptionCandidate {
    /// The key.
    pub key: TaskKey,
    /// The evidence.
    pub seen: Seen,
    /// The payload for the row: JSON of the program's entry. A key has none.
    pub payload: Option<Arc<str>>,
}

impl AdoptionCandidate {
    /// Creates a candidate without a payload.
    pub fn of_key(key: TaskKey, seen: Seen) -> Self {
        Self {
            key,
            seen,
            payload: None,
        }
    }
}

/// The evidence about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Another program armed it.
    Armed(Countdown),
    /// It expired at about this time, and the lookup found no row.
    Expired(UnixMs),
    /// A program wrote an entry that stays until it is removed, unlike a key that expires.
    Requested {
        /// The due time, exact. Never a whole second: see [`row_due`](crate::task::row_due).
        due: UnixMs,
        /// When the entry was read, on the ledger's clock.
        heard: UnixMs,
    },
    /// A program deleted it or removed its expiry, on a server that is still the master. The time is when the event was
    /// received, on the ledger's clock.
    Disarmed(UnixMs),
}

/// The answer to a program's entry, after it was compared with the ledger: see [`Timer::acknowledge`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The key.
    pub key: TaskKey,
    /// The due time of the entry, as it was proposed.
    pub requested: UnixMs,
    /// What becomes of the entry.
    pub standing: Standing,
}

/// The state of a task whose entry was compared with the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The ledger holds the task. It may start at this time.
    Pending(UnixMs),
    /// The task of this arming has ended: the entry can be removed.
    Ended,
    /// The ledger cannot hold it. The entry stays, and is not proposed again.
    Refused,
}

/// A page of armed keys: see [`Timer::scan_foreign`].
#[derive(Debug, Clone, Default)]
pub struct ArmedPage {
    /// Keys that no lapsed process armed.
    pub foreign: Vec<AdoptionCandidate>,
    /// Entries of lapsed that are long overdue. The task of each may have ended without its entry being removed.
    pub overdue: Vec<Alarm>,
    /// Tasks that are due, and whose entries were taken: see [`Timer::take`]. Each may have ended without the timer being
    /// told.
    pub taken: Vec<Alarm>,
    /// Cursor of the next page; `None` after the last.
    pub next: Option<u64>,
}

/// The interface of the engine for timers. No method blocks.
#[async_trait]
pub trait SignalSink: Send + Sync + 'static {
    /// Accepts a signal. If a queue is full, drops and counts it, and requests a sweep.
    fn raise(&self, signal: Signal);

    /// Requests a sweep: an overdue task may have been missed.
    fn sweep(&self, cause: Cause);

    /// Requests an audit: keys may be missing.
    fn audit(&self, cause: Cause);

    /// True if this daemon can run tasks of this name. All other keys are ignored. Called for each arming event of the
    /// database, so it must be cheap.
    fn wants(&self, key: &TaskKey) -> bool;

    /// True if this daemon adopts entries and keys of this name.
    fn adopts(&self, key: &TaskKey) -> bool {
        self.wants(key)
    }

    /// True if this daemon owns the task, among the daemons that can run it.
    fn owns(&self, key: &TaskKey) -> bool;

    /// Number of daemons that come first and receive the arming of this key too. 0: this daemon acts on it. 1: it acts
    /// if the first one did not. Higher: it remembers the event. Daemons that adopt the key come first, then the more
    /// senior ones.
    fn senior_listeners(&self, _key: &TaskKey) -> usize {
        0
    }

    /// Returns the member to which this daemon forwards the expiry of `_key`: its owner, if the owner does not receive
    /// it.
    fn hint_recipient(&self, _key: &TaskKey) -> Option<u64> {
        None
    }

    /// The member id under which other daemons address this one.
    fn member(&self) -> Option<u64> {
        None
    }

    /// True if enough other daemons receive the expiry of all keys, and their armings if `_armings`, and forward this
    /// daemon's.
    fn may_stop_listening(&self, _armings: bool) -> bool {
        false
    }

    /// Receives the key of an expired event for a task that another daemon owns. This daemon looks it up and adopts the
    /// key if that daemon adopts none of this name, or cannot be told of it.
    fn expired_elsewhere(&self, _key: &TaskKey, _is_told: bool) {}

    /// Proposes a key for adoption. If the queue is full, drops and counts the candidate, and requests an audit.
    fn propose(&self, candidate: AdoptionCandidate);

    /// As [`propose`](Self::propose), for evidence that no other daemon has: none is waited for.
    fn propose_alone(&self, candidate: AdoptionCandidate) {
        self.propose(candidate);
    }

    /// Returns for each key, in order, whether the ledger has a row of it; `None` if the ledger does not answer.
    async fn are_known(&self, keys: &[TaskKey]) -> Option<Vec<bool>> {
        Some(vec![false; keys.len()])
    }
}

/// How to treat a key that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArmMode {
    /// Overwrite it: the caller has just moved the task.
    Replace,
    /// Keep it: the caller repairs missing keys.
    IfMissing,
}

/// The result of arming.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Armed {
    /// Keys written.
    pub written: usize,
    /// Keys that existed and were kept.
    pub present: usize,
    /// Keys that are missing, and were not written: a program may have removed them, which a daemon decides.
    pub missing: usize,
}

/// What became of the entry of a task that is about to start: see [`Timer::take`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taking {
    /// No program can remove it any more, so the task has to start.
    Taken,
    /// A program has removed it: an adopted task must not start. Found at this time, on the ledger's clock.
    Removed(UnixMs),
    /// A program has moved it to a later time, and the task is about to be moved: it must not start now.
    Moved,
    /// Nothing is known: the row decides.
    Unknown,
}

/// What the timer holds for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remaining {
    /// No key.
    Missing,
    /// A key without an expiry.
    Forever,
    /// Milliseconds until it expires.
    Ms(u64),
}

/// A source of signals.
///
/// # If we crash right after a call
/// Nothing is lost. After a restart the sweep finds due tasks in the ledger, and the audit arms missing keys.
#[async_trait]
pub trait Timer: Send + Sync + 'static {
    /// Listens and raises signals until `stop`. Reconnects after each loss of its server. Called once.
    async fn run(&self, sink: Arc<dyn SignalSink>, stop: CancellationToken);

    /// Arranges a signal for each alarm at its due time, even if no daemon runs until then. A due time in the past
    /// raises one at once.
    async fn arm(&self, alarms: &[Alarm], mode: ArmMode) -> Result<Armed, TimerError>;

    /// How far ahead it arms. The caller arms later alarms again when they are near. `None` is without limit.
    fn horizon(&self) -> Option<Duration> {
        None
    }

    /// Removes these keys. A signal may still arrive.
    async fn disarm(&self, keys: &[TaskKey]) -> Result<(), TimerError>;

    /// Returns what the timer holds for each key, in order.
    async fn remaining(&self, keys: &[TaskKey]) -> Result<Vec<Remaining>, TimerError>;

    /// Raises a signal for each alarm at its due millisecond from memory, whether or not a server answers. Bounded: the
    /// sweep finds tasks that do not fit. Never blocks. Moves the alarm of a known key.
    fn expect(&self, alarms: Vec<Alarm>);

    /// Reads a page of keys that other programs armed and that `wants` accepts. Start with `None`. A timer without
    /// shared keys returns an empty page. Entries that stay are proposed by the timer itself, and are not returned.
    async fn scan_foreign(
        &self,
        _cursor: Option<u64>,
        _wants: &(dyn for<'a> Fn(&'a TaskKey) -> bool + Send + Sync),
    ) -> Result<ArmedPage, TimerError> {
        Ok(ArmedPage::default())
    }

    /// Returns the countdown of each key, in order; `None` for a key that is not armed.
    ///
    /// # Errors
    /// If the server does not answer, if it may have lost data after `since`, or if this timer has no keys.
    async fn inspect(
        &self,
        _keys: &[TaskKey],
        _since: UnixMs,
    ) -> Result<Vec<Option<Countdown>>, TimerError> {
        Err(TimerError::new("this timer has no keys", "no key to inspect").lasting())
    }

    /// True if an entry stays after its due time, until [`settle`](Self::settle) or [`disarm`](Self::disarm) removes it.
    fn keeps_entries(&self) -> bool {
        false
    }

    /// True if a missing entry may mean that a program removed it. Adoption then marks rows whose entry it has seen.
    fn counts_absence(&self) -> bool {
        false
    }

    /// Takes the entries of tasks that are about to be claimed, so that no program can remove them any more. Their rows
    /// are known: [`Alarm::arming`] is set. Returns what became of each, in order.
    ///
    /// # If we crash right after
    /// An entry stays taken until its task has ended: its absence cancels nothing.
    ///
    /// # Errors
    /// If the server does not answer. The tasks start without it.
    async fn take(&self, alarms: &[Alarm]) -> Result<Vec<Taking>, TimerError> {
        Ok(vec![Taking::Unknown; alarms.len()])
    }

    /// Answers entries of programs that were proposed as [`Seen::Requested`], after the ledger has committed. Entries
    /// that a program has changed since are left as they are.
    ///
    /// # Errors
    /// If the server does not answer. The timer proposes these entries again.
    async fn acknowledge(&self, _entries: &[Acknowledgement]) -> Result<(), TimerError> {
        Ok(())
    }

    /// Removes the entries of tasks that have ended. `due` is when the last run could start; an entry for a later time
    /// is a new arming, and stays.
    ///
    /// # Errors
    /// If the server does not answer. An audit finds the entries: see [`ArmedPage::overdue`].
    async fn settle(&self, _ended: &[Alarm]) -> Result<(), TimerError> {
        Ok(())
    }

    /// Reports that an audit, which began at `_began`, has armed every pending task.
    async fn audited(&self, _began: UnixMs) {}

    /// Names the timer, and what tells which keys it watches. Two daemons with the same text find the same entries. Empty:
    /// not told.
    fn scope(&self) -> String {
        String::new()
    }

    /// True if events are received now; `None` for a timer without a server.
    fn is_listening(&self) -> Option<bool>;

    /// What this process receives beyond its own tasks.
    fn hearing(&self) -> Hearing {
        Hearing::default()
    }

    /// Acts on recent events that were left to other daemons: one of them has fallen silent.
    fn replay_events(&self) {}
}

/// What a daemon receives beyond events of its own tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hearing {
    /// It receives all events, now and for some seconds more.
    pub all: bool,
    /// It receives the expiry of all keys, now and for some seconds more, but not their armings and deletions.
    pub expired_only: bool,
    /// It can forward events to other daemons.
    pub forwards: bool,
}
