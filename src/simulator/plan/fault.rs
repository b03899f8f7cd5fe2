//! The kinds of faults.

use std::time::Duration;

/// The kinds of faults. A seed draws which of them are switched on at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// The ledger answers late.
    LedgerSlow,
    /// The ledger cannot be reached.
    LedgerUnreachable,
    /// The ledger refuses statements for a cause that passes, such as a full disk.
    LedgerRefuses,
    /// A row is locked by another session.
    LedgerLocked,
    /// A change is applied, and its answer is lost.
    LedgerAnswerLost,
    /// A change is reported as failed, and is applied some seconds later.
    LedgerAppliesLate,
    /// No call to the ledger returns until the fault ends.
    LedgerHangs,
    /// The ledger is as it was when the fault began, once it ends: a dump was restored.
    LedgerRestored,
    /// The process is killed, and started again when the fault ends.
    Kill,
    /// The process is stopped gracefully, and started again when the fault ends.
    Stop,
    /// The process gets no processor time.
    Freeze,
    /// The process takes a wrong reading of the ledger's clock.
    ClockOff,
    /// What the process reads of the ledger's clock runs slow or fast, until it is right.
    ClockDrifts,
    /// The process starts with a clock that is far from the ledger's.
    ClockAtStart,
    /// The process is started again with another configuration: it runs fewer classes.
    ConfigChange,
    /// The members cannot be read or written.
    MembersUnreachable,
    /// The process sees the members as they were when the fault began.
    MembersStale,
    /// The process sees itself alone.
    MembersSplit,
    /// The process is told that the other members are gone.
    MembersFalseDeath,
    /// Redis answers nothing.
    RedisHangs,
    /// Redis accepts no connection.
    RedisRefuses,
    /// Redis is restarted and has lost everything.
    RedisRestartsEmpty,
    /// Redis is restarted with what it had some seconds ago.
    RedisRestartsOlder,
    /// All keys are deleted, without an event.
    RedisFlushed,
    /// Redis publishes no events until the flags are set again.
    RedisFlagsCleared,
    /// The clock of Redis is set forward, and back.
    RedisClockSteps,
    /// Events of keys are lost.
    EventsLost,
    /// Events of keys come twice.
    EventsTwice,
    /// Events of keys come late, behind others.
    EventsLate,
    /// A client publishes the expiry of keys that have not expired.
    EventsForged,
    /// The connections to Redis are closed.
    LinkCut,
    /// The process cannot connect to Redis.
    LinkRefused,
    /// What the process sends to Redis is held back.
    LinkRequestsHeld,
    /// What Redis answers to the process is held back.
    LinkRepliesHeld,
    /// Signals are lost.
    SignalsLost,
    /// Signals are late.
    SignalsLate,
    /// Signals come twice.
    SignalsTwice,
    /// Signals come for tasks that are not due, or do not exist.
    SignalsForged,
    /// Signals name an older arming than the present one.
    SignalsOld,
    /// The timer refuses to arm and to disarm.
    TimerRefuses,
    /// A program runs for longer than the lease of its task.
    RunsLong,
    /// A pull worker takes a task and never reports.
    WorkerDies,
    /// A pull worker renews nothing, and reports when its lease is over.
    WorkerLate,
    /// A pull worker reports twice, to two daemons.
    WorkerReportsTwice,
}

impl FaultKind {
    pub const ALL: [Self; 44] = [
        Self::LedgerSlow,
        Self::LedgerUnreachable,
        Self::LedgerRefuses,
        Self::LedgerLocked,
        Self::LedgerAnswerLost,
        Self::LedgerAppliesLate,
        Self::LedgerHangs,
        Self::LedgerRestored,
        Self::Kill,
        Self::Stop,
        Self::Freeze,
        Self::ClockOff,
        Self::ClockDrifts,
        Self::ClockAtStart,
        Self::ConfigChange,
        Self::MembersUnreachable,
        Self::MembersStale,
        Self::MembersSplit,
        Self::MembersFalseDeath,
        Self::RedisHangs,
        Self::RedisRefuses,
        Self::RedisRestartsEmpty,
        Self::RedisRestartsOlder,
        Self::RedisFlushed,
        Self::RedisFlagsCleared,
        Self::RedisClockSteps,
        Self::EventsLost,
        Self::EventsTwice,
        Self::EventsLate,
        Self::EventsForged,
        Self::LinkCut,
        Self::LinkRefused,
        Self::LinkRequestsHeld,
        Self::LinkRepliesHeld,
        Self::SignalsLost,
        Self::SignalsLate,
        Self::SignalsTwice,
        Self::SignalsForged,
        Self::SignalsOld,
        Self::TimerRefuses,
        Self::RunsLong,
        Self::WorkerDies,
        Self::WorkerLate,
        Self::WorkerReportsTwice,
    ];

    pub fn name(self) -> String {
        let name = format!("{self:?}");
        let mut words = String::new();
        for letter in name.chars() {
            if letter.is_uppercase() && !words.is_empty() {
                words.push('_');
            }
            words.extend(letter.to_lowercase());
        }
        words
    }

    /// True if the process may lose what it has claimed, so that a crash is counted: it cannot renew its leases, or does not
    /// know of a claim. The adapter of MySQL gives up claims whose answer was lost; the verbs under test here do not.
    pub fn may_crash(self) -> bool {
        matches!(self, Self::Kill | Self::ClockAtStart | Self::Freeze)
            || self.is_of_workers()
            || self.is_of_connections() && !matches!(self, Self::ClockOff | Self::ClockDrifts)
    }

    /// True if it is a fault of Redis, or on the way there.
    pub fn is_of_redis(self) -> bool {
        matches!(
            self,
            Self::MembersFalseDeath
                | Self::RedisHangs
                | Self::RedisRefuses
                | Self::RedisRestartsEmpty
                | Self::RedisRestartsOlder
                | Self::RedisFlushed
                | Self::RedisFlagsCleared
                | Self::RedisClockSteps
                | Self::EventsLost
                | Self::EventsTwice
                | Self::EventsLate
                | Self::EventsForged
                | Self::LinkCut
                | Self::LinkRefused
                | Self::LinkRequestsHeld
                | Self::LinkRepliesHeld
        )
    }

    /// True if more tasks than the rate may start: the bucket or the other members are out of sight, or a claim takes long
    /// after it was granted.
    pub fn may_exceed_rate(self) -> bool {
        let delays = matches!(
            self,
            Self::LedgerSlow
                | Self::LedgerHangs
                | Self::LedgerRefuses
                | Self::LedgerAppliesLate
                | Self::LedgerAnswerLost
                | Self::LedgerRestored
                | Self::Freeze
        );
        let hides = matches!(
            self,
            Self::MembersUnreachable | Self::MembersStale | Self::MembersSplit
        );
        delays || hides || self.is_of_redis()
    }

    /// True if it strikes once at most, in seeds of its own.
    pub(super) fn is_drawn_apart(self) -> bool {
        self == Self::LedgerRestored
    }

    /// True if pull workers have it.
    pub fn is_of_workers(self) -> bool {
        matches!(
            self,
            Self::WorkerDies | Self::WorkerLate | Self::WorkerReportsTwice
        )
    }

    /// True if a producer may have it, too.
    pub(super) fn is_of_connections(self) -> bool {
        matches!(
            self,
            Self::LedgerSlow
                | Self::LedgerUnreachable
                | Self::LedgerRefuses
                | Self::LedgerLocked
                | Self::LedgerAnswerLost
                | Self::LedgerAppliesLate
                | Self::LedgerHangs
                | Self::ClockOff
                | Self::ClockDrifts
                | Self::TimerRefuses
        )
    }
}

/// A fault, from the time of its step on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub kind: FaultKind,
    /// The daemon, or, from their number on, the producer, or the worker behind those.
    pub process: usize,
    pub length: Duration,
    /// How often it strikes, of a hundred calls.
    pub percent: u64,
}
