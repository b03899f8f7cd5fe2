//! The seam between the engine and whatever tells it that a task may be due.
//!
//! A timer says *when to look*; it never says what is true. Its signals may come twice, early, late
//! or for an arming that no longer exists, and any of them may be lost: the ledger decides, and the
//! sweep finds what no signal named. A timer knows no ledger and no handler.

mod alarm_clock;
mod arming;
mod due_queue;
mod hints;
pub mod key_expiry;
mod key_watch;
pub mod ledger_poll;
mod listener;
mod nudge;
mod probe;
mod replay;
mod sentinel;
mod session;

pub use alarm_clock::AlarmClock;
pub use due_queue::DueQueue;

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
    /// When it falls due, on the ledger's clock.
    pub due: UnixMs,
    /// The row, where the caller knows it: the signal then carries it, and the ledger need not be
    /// asked which row the key is.
    pub arming: Option<Arming>,
}

/// "This key may be due."
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signal {
    /// Whose.
    pub key: TaskKey,
    /// Who says so.
    pub source: Source,
    /// The arming it is about, if its source knows.
    pub arming: Option<Arming>,
}

/// Where a signal came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// Redis said that the key expired.
    Event,
    /// This process asked for the key when it fell due.
    Nudge,
    /// The sweep found it overdue.
    Sweep,
    /// This process itself: a task that came back, or was created due.
    Direct,
}

impl Source {
    /// The word for it in metrics and logs.
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
    /// Which.
    pub key: TaskKey,
    /// How it was seen.
    pub seen: Seen,
}

/// How a key was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Armed by somebody else.
    Armed(Countdown),
    /// It has expired, about then, and its row was not found: news only if there is none.
    Expired(UnixMs),
    /// Deleted, or made to last for ever, by a program: on the server that is the master still. It was heard at this
    /// moment, on the ledger's clock.
    Disarmed(UnixMs),
}

/// A page of keys that are armed: see [`Timer::armed_elsewhere`].
#[derive(Debug, Clone, Default)]
pub struct ArmedPage {
    /// Those that this process did not arm, and nobody else who runs it.
    pub foreign: Vec<AdoptionCandidate>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<u64>,
}

/// The one door into the engine. Nothing behind it blocks.
pub trait SignalSink: Send + Sync + 'static {
    /// Raises a signal. Without room the signal is dropped and counted, and a sweep is requested.
    fn raise(&self, signal: Signal);

    /// Requests a sweep: the signal of an overdue task may have been lost.
    fn sweep(&self, cause: Cause);

    /// Requests an audit: keys may be missing.
    fn audit(&self, cause: Cause);

    /// True if this daemon can run tasks of this name. Other keys are not read. Cheap, since it is called for every
    /// armed key of the database.
    fn wants(&self, key: &TaskKey) -> bool;

    /// True if this daemon owns the task.
    fn owns(&self, key: &TaskKey) -> bool;

    /// Number of more senior daemons that can run the task and hear of the key, too. 0: this daemon acts. 1: it acts if
    /// the most senior one did not. From 2 on, it remembers the event.
    fn senior_listeners(&self, _key: &TaskKey) -> usize {
        0
    }

    /// Number of the daemon that owns an expired key, if that daemon learns of the event only through a hint from this
    /// one.
    fn hint_recipient(&self, _key: &TaskKey) -> Option<u64> {
        None
    }

    /// Number under which other daemons pass hints to this one.
    fn member(&self) -> Option<u64> {
        None
    }

    /// True if enough other daemons hear all events, and pass hints to this one.
    fn may_stop_listening(&self) -> bool {
        false
    }

    /// Forgets the adoption candidate of a key that `lapsed` has armed since.
    fn armed_by_us(&self, key: &TaskKey);

    /// Proposes a key for adoption. Without room the candidate is dropped and counted, and an audit is requested.
    fn propose(&self, candidate: AdoptionCandidate);
}

/// Whether an alarm may replace one that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArmMode {
    /// The caller has just moved the task: what was there is old.
    Replace,
    /// The caller repairs: whoever armed it last is right.
    IfMissing,
}

/// What arming came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Armed {
    /// Keys written.
    pub written: usize,
    /// Keys that were there already.
    pub present: usize,
}

/// What a timer holds of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remaining {
    /// Nothing.
    Missing,
    /// The key is there and will never fall due.
    Forever,
    /// It will fall due in so many milliseconds.
    Ms(u64),
}

/// A source of signals.
///
/// # If we crash right after a call
/// Nothing a timer holds is needed: after a restart the ledger has every task, the sweep finds what
/// is due and the audit arms what is missing.
#[async_trait]
pub trait Timer: Send + Sync + 'static {
    /// Listens, and raises signals, until `stop`; survives every loss of its server, for ever.
    /// Called once.
    async fn run(&self, sink: Arc<dyn SignalSink>, stop: CancellationToken);

    /// Sees to it that a signal is raised when each alarm falls due, even if no process that hears of
    /// it now lives then. A due time that has passed raises at once.
    async fn arm(&self, alarms: &[Alarm], mode: ArmMode) -> Result<Armed, TimerError>;

    /// How far ahead it arms: what falls due later it leaves alone, for whoever arms it again when that is nearer. `None`:
    /// without end.
    fn horizon(&self) -> Option<Duration> {
        None
    }

    /// Forgets these keys. A signal may still come.
    async fn disarm(&self, keys: &[TaskKey]) -> Result<(), TimerError>;

    /// What the timer holds of these keys, in their order.
    async fn remaining(&self, keys: &[TaskKey]) -> Result<Vec<Remaining>, TimerError>;

    /// These fall due soon: raise a signal for each at its due millisecond, from this process's
    /// memory, whether or not a server answers. Bounded: what does not fit is left to the sweep.
    /// Never blocks; a key that is known already is moved.
    fn expect(&self, alarms: Vec<Alarm>);

    /// Keys that somebody else armed, a page at a time, from `None` on: those that `wants` names. A timer without
    /// a place where others could arm anything has none.
    async fn armed_elsewhere(
        &self,
        _cursor: Option<u64>,
        _wants: &(dyn for<'a> Fn(&'a TaskKey) -> bool + Send + Sync),
    ) -> Result<ArmedPage, TimerError> {
        Ok(ArmedPage::default())
    }

    /// Returns the current countdown of these keys, in their order; `None` for one that is not armed.
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

    /// Whether signals are heard now: `None` for a timer that needs no server.
    fn is_listening(&self) -> Option<bool>;

    /// What this process hears of keys that are not its own.
    fn hearing(&self) -> Hearing {
        Hearing::default()
    }

    /// Another daemon fell silent: what was heard in the last seconds and left to others is judged again.
    fn judge_again(&self) {}
}

/// What a daemon hears, beyond what it is told of its own tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hearing {
    /// Everything that happens to keys, now and for some seconds more.
    pub all: bool,
    /// It can pass on what it hears.
    pub passes_on: bool,
}

/// Why a timer could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct TimerError {
    message: String,
    transient: bool,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl TimerError {
    /// An error with its cause kept.
    pub fn new(
        message: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self {
            message: message.into(),
            transient: true,
            source: Some(source.into()),
        }
    }

    /// The same, for what will be refused again until somebody changes that.
    #[must_use]
    pub fn lasting(self) -> Self {
        Self {
            transient: false,
            ..self
        }
    }

    /// Whether the same call may succeed later, unchanged.
    pub fn is_transient(&self) -> bool {
        self.transient
    }
}
