//! The seam between the engine and the sources of signals.
//!
//! A timer says *when to look*, never what is true. A signal may come twice, early, late, or for an arming that no
//! longer exists, and any signal may be lost: the ledger decides, and the sweep finds what no signal named. A timer
//! knows neither ledger nor handlers.

mod alarm_clock;
#[doc(hidden)] // for the adapters
pub mod due_queue;
#[doc(hidden)] // for the adapters
pub mod due_signals;
mod entries;
mod error;
pub mod ledger_poll;
mod listening;
mod sink;

pub use alarm_clock::AlarmClock;
pub use due_queue::DueQueue;
pub use entries::{Acknowledgement, Entries, EntryState, Taking};
pub use error::TimerError;
pub use listening::{AdoptionCandidate, ArmedPage, Hearing, Listening, Seen};
pub use sink::{AdoptionSink, EngineSink, Peers, SignalSink};

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::task::{Arming, TaskKey, UnixMs};

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
    /// When Redis published the latest event of the key, at the earliest and at the latest, on the ledger's clock. `None`:
    /// there was none, or it was just published.
    pub published: Option<RangeInclusive<UnixMs>>,
}

impl Signal {
    /// Creates a signal of now.
    pub fn new(key: TaskKey, source: Source, arming: Option<Arming>) -> Self {
        Self {
            key,
            source,
            arming,
            published: None,
        }
    }
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
    /// Keys written, and tasks announced that are due already.
    pub written: usize,
    /// Keys that existed and were kept.
    pub present: usize,
    /// Keys that are missing, and were not written: a program may have removed them, which a daemon decides.
    pub missing: usize,
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

/// Keeps an alarm for each pending task: what a producer needs of a timer.
///
/// # If we crash right after a call
/// Nothing is lost. After a restart the sweep finds due tasks in the ledger, and the audit arms missing keys.
#[async_trait]
pub trait AlarmStore: Send + Sync + 'static {
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
}

/// Arms tasks, and raises their signals.
#[async_trait]
pub trait Timer: AlarmStore {
    /// Listens and raises signals until `stop`. Reconnects after each loss of its server. Called once.
    async fn run(&self, sink: Arc<dyn EngineSink>, stop: CancellationToken);

    /// Raises a signal for each alarm at its due millisecond from memory, whether or not a server answers. Bounded: the
    /// sweep finds tasks that do not fit. Never blocks. Moves the alarm of a known key.
    fn expect(&self, alarms: Vec<Alarm>);

    /// Names the timer, and what tells which keys it watches. Two daemons with the same text find the same entries. Empty:
    /// not told.
    fn scope(&self) -> String {
        String::new()
    }

    /// The seam for entries that stay after their due time, until they are removed. `None` if a key expires then, or if the
    /// timer has no entries.
    fn entries(self: Arc<Self>) -> Option<Arc<dyn Entries>> {
        None
    }

    /// The seam for what programs do on the timer's server. `None` if it has no server.
    fn listening(self: Arc<Self>) -> Option<Arc<dyn Listening>> {
        None
    }
}
