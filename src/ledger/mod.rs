//! The seam to the durable book of record: which tasks there are, and who may run which.
//!
//! [`Ledger`] has the verbs of the engine and the producers, [`Catalog`] those of people who look
//! and mend, [`Pauses`] those of pausing. All are object-safe; [`MysqlLedger`](mysql::MysqlLedger) is the real one,
//! [`MemoryLedger`](memory::MemoryLedger) obeys the same conformance suite without a server.
//!
//! Whether a task is due and whether a lease holds is decided by the ledger's clock in the statement
//! that acts. Losing a race is an answer here, never an error.

mod cancellation;
mod catalog;
pub mod memory;
pub mod migrate;
pub mod mysql;
mod pauses;
pub mod recurring;
mod survey;

pub use self::cancellation::{CancelCursor, CancelFilter, CancelPage};
pub use self::catalog::{
    Catalog, ListFilter, ListPage, NudgeAnswer, Picked, Prune, PruneCursor, Pruned, StateFilter,
    Stats, TaskRecord,
};
pub use self::pauses::{
    BY_CHARS_MAX, PAUSES_MAX, PauseAnswer, Pauses, REASON_CHARS_MAX, ReleaseAnswer,
};
pub use self::survey::{LATELY, MethodFigures, Spread, Survey, SurveyLimits};

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use self::recurring::SeriesRow;
use crate::clock::LedgerClock;
use crate::task::{
    Attempt, Booked, Mishap, Occurrence, Origin, Reason, Recurrence, RecurrenceError, State,
    TaskKey, UnixMs,
};

/// One arming of one row: the fence that keeps an older arming from acting on a newer one.
///
/// Shown as `<row id>-<end_time ms>`, the stable id of a task over its attempts, which handlers and
/// targets deduplicate by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arming {
    /// The row.
    pub row: u64,
    /// Its `end_time`.
    pub due: UnixMs,
}

impl fmt::Display for Arming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.row, self.due.0)
    }
}

/// A task to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTask {
    /// What it is called. There is one task of a key at a time.
    pub key: TaskKey,
    /// When it falls due.
    pub due: UnixMs,
    /// JSON, at most [`PAYLOAD_BYTES_MAX`] bytes.
    pub payload: Option<String>,
    /// For looking up and cancelling many.
    pub tag: Option<String>,
    /// Runs, not retries; over the route's.
    pub max_attempts: Option<u16>,
    /// What becomes of a task of this key that is there.
    pub if_pending: IfPending,
    /// How it comes again.
    pub recurrence: Option<Recurrence>,
}

/// What [`Ledger::create`] does where a task of the key is there with another due time, and has not finished. The same
/// due time again changes nothing, whatever the policy; a finished or cancelled task begins anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum IfPending {
    /// It is moved, and becomes what is asked for. A run in progress is superseded: its result is discarded, and the new
    /// arming runs after it. To debounce.
    #[default]
    Move,
    /// What is pending, or waits for a retry, stays as it is, due time, payload and all. A run in progress may have begun
    /// before there was this reason to run again, so it is superseded. To throttle.
    Keep,
    /// What is pending, waits for a retry or is being run stays as it is, and the request is refused. For one at a time.
    Refuse,
}

impl IfPending {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Move, Self::Keep, Self::Refuse];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Move => "move",
            Self::Keep => "keep",
            Self::Refuse => "refuse",
        }
    }
}

impl std::str::FromStr for IfPending {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|policy| policy.as_str() == text);
        found.ok_or_else(|| format!("`{text}` is none of `move`, `keep`, `refuse`"))
    }
}

/// Longest payload, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1024;

/// Longest payload that is read back, in bytes: what somebody's own SQL wrote may be longer than we accept, and is then not
/// read, since a claim is of hundreds. A little more than is accepted, for what may be wrapped around a payload.
pub const PAYLOAD_READ_MAX: usize = PAYLOAD_BYTES_MAX + 8 * 1024;

/// Longest tag, in characters.
pub const TAG_CHARS_MAX: usize = 128;

impl NewTask {
    /// A task without payload, tag or limit of its own.
    pub fn new(key: TaskKey, due: UnixMs) -> Self {
        Self {
            key,
            due,
            payload: None,
            tag: None,
            max_attempts: None,
            if_pending: IfPending::Move,
            recurrence: None,
        }
    }
}

/// What [`Ledger::create`] came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Created {
    /// The arming that stands now.
    pub arming: Arming,
    /// Its state. `Done` and `Dead` say that this very arming has run before: a repeated request
    /// does not run it twice.
    pub state: State,
    /// An older arming of this key is being run; its result will be discarded.
    pub older_run: bool,
    /// When the task that stands was created.
    pub since: UnixMs,
    /// Whether it is what was asked for.
    pub stands: Stands,
}

/// Whose arming stands after [`Ledger::create`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stands {
    /// The one that was asked for, from now on or for longer.
    Asked,
    /// One that was there, and was kept.
    Kept,
    /// One that was there: the request is refused.
    Refused,
}

impl Stands {
    /// Whose arming `due` is, if `asked` was asked for.
    fn after(asked: &NewTask, due: UnixMs) -> Self {
        match asked.if_pending {
            _ if due == asked.due => Self::Asked,
            // Somebody has moved it on since.
            IfPending::Move => Self::Asked,
            IfPending::Keep => Self::Kept,
            IfPending::Refuse => Self::Refused,
        }
    }
}

/// What [`Ledger::cancel`] came to, for one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelAnswer {
    /// It will not start any more.
    Cancelled,
    /// It is being run; no further attempt will start.
    Running,
    /// It had finished: this is how.
    Finished(State),
    /// There is no such task.
    Unknown,
}

/// What [`Ledger::reschedule`] came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RescheduleAnswer {
    /// It falls due at the new time; this is its new arming.
    Moved(Arming),
    /// It is being run.
    Running,
    /// It had finished: this is how.
    Finished(State),
    /// There is no such task.
    Unknown,
}

/// Where a key stands, as [`Ledger::look_up`] sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The arming.
    pub arming: Arming,
    /// Its state.
    pub state: State,
    /// When it may start: `end_time`, or the retry that lies ahead.
    pub due_at: UnixMs,
    /// Deleted by a program that knows only the seed's columns (`sts = 1`, `status = 0`): whether that
    /// was a cancellation only Redis can tell. See [`Ledger::revive`].
    pub deleted: bool,
    /// It is being run, and no further attempt will start.
    pub cancelling: bool,
    /// Who set its due time.
    pub origin: Origin,
}

impl Standing {
    /// What adoption asks about it.
    pub fn booked(&self) -> Booked {
        Booked {
            state: self.state,
            due: self.arming.due,
            origin: self.origin,
            deleted: self.deleted,
        }
    }
}

/// A key that some program armed, to be written into the ledger on its behalf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foundling {
    /// What it is called.
    pub key: TaskKey,
    /// When it falls due.
    pub due: UnixMs,
    /// The row that was there when this was decided.
    pub over: Option<Standing>,
}

/// What [`Ledger::adopt`] came to, for one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Adopted {
    /// Written; this is its arming.
    Written(Arming),
    /// The row is no longer what it was, or there is one now: whoever wrote it knew better.
    Overtaken,
    /// Another session holds its lock: nothing was written, try again later.
    Locked,
    /// The ledger cannot take this one: this is why.
    Refused(String),
}

/// A page of pending tasks by due time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueScan {
    /// Which tasks.
    pub window: Window,
    /// Only those behind this one, in the order of the window.
    pub after: Option<(UnixMs, u64)>,
    /// At most so many.
    pub limit: u32,
}

/// A stretch of due times, seen from the ledger's now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// Overdue by at least so long and leased by nobody, the oldest first.
    OverdueOldest(Duration),
    /// Overdue by at least so long and leased by nobody, the newest first.
    OverdueNewest(Duration),
    /// Due from now until so long from now, the soonest first.
    Ahead(Duration),
    /// Due from so long ago until so long from now, the soonest first: the rows with `sts = 1` and `status = 0`,
    /// which a legacy program has deleted.
    Deleted {
        /// How far back. Such programs round the due time down to a second: their key outlives it.
        back: Duration,
        /// How far ahead.
        ahead: Duration,
    },
}

/// Whether a row is known to fall due then.
pub type Known<'a> = &'a (dyn Fn(u64, UnixMs) -> bool + Send + Sync);

/// A row of a [`DueScan`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upcoming {
    /// The task.
    pub key: TaskKey,
    /// Its arming.
    pub arming: Arming,
    /// When it may start.
    pub due_at: UnixMs,
}

/// A page, and where the next one begins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DuePage {
    /// Rows with keys in the grammar.
    pub rows: Vec<Upcoming>,
    /// Rows whose key is not a task key: nobody can run them.
    pub foreign: usize,
    /// Give this as `after` for the next page; `None` at the end.
    pub next: Option<(UnixMs, u64)>,
}

/// 16 random bytes, new for every claim statement. Whoever has the row's owner may act on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner(pub [u8; 16]);

impl Owner {
    /// A new one.
    pub fn random() -> Self {
        Self(rand::random())
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({:02x}{:02x}..)", self.0[0], self.0[1])
    }
}

/// Who claims, and for how long.
#[derive(Debug, Clone)]
pub struct Claimant {
    /// Name of the daemon, for people; at most 64 characters.
    pub daemon: String,
    /// Length of the lease.
    pub lease: Duration,
}

/// A fenced right to one run: the row, its arming and the claim that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The arming.
    pub arming: Arming,
    /// The claim.
    pub owner: Owner,
}

/// A task this process may run once, until the lease runs out.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The right.
    pub lease: Lease,
    /// The task.
    pub key: TaskKey,
    /// Which run this is.
    pub attempt: Attempt,
    /// When the task was created.
    pub created: UnixMs,
    /// When it could start: `end_time`, or the retry that was ahead.
    pub due_at: UnixMs,
    /// JSON. `None` if there is none, or it is [too long](Self::oversize).
    pub payload: Option<String>,
    /// How many bytes the payload has, if that is more than [`PAYLOAD_READ_MAX`]: the task cannot be run.
    pub oversize: Option<u64>,
    /// For people.
    pub tag: Option<String>,
    /// How it comes again; an error if the row says so in a way that cannot be read.
    pub recurrence: Option<Arc<Result<Recurrence, RecurrenceError>>>,
    /// Before the statement was sent: the lease holds at least its length from then.
    pub claimed: Instant,
}

impl Claim {
    /// Which occurrence of its series this is, seen from `now` on the ledger's clock; `None` if it runs once.
    pub fn occurrence(&self, now: UnixMs) -> Option<Occurrence<'_>> {
        let recurrence = self.recurrence.as_deref()?.as_ref().ok()?;
        let elapsed_ms = i64::try_from(self.claimed.elapsed().as_millis()).unwrap_or(i64::MAX);
        Some(Occurrence {
            recurrence,
            due: self.lease.arming.due,
            ready: self.due_at.max(self.attempt.since),
            started: UnixMs(now.0.saturating_sub(elapsed_ms)),
        })
    }
}

/// What is to be written about one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// By what right.
    pub lease: Lease,
    /// What.
    pub ruling: Ruling,
}

/// What a settlement writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruling {
    /// Done.
    Complete,
    /// Done, and this is kept of it: JSON, at most [`RESULT_BYTES_MAX`] bytes.
    CompleteWith(String),
    /// Pending again, not before `at`.
    RetryAt {
        /// When.
        at: UnixMs,
        /// Why; cut to [`ERROR_BYTES_MAX`].
        error: String,
        /// The newest entry of the history.
        mishap: Mishap,
    },
    /// Pending again, not before `at`; the attempt is not counted, the latest error stays.
    Snooze {
        /// When.
        at: UnixMs,
        /// The entry of the history, in place of one for the snooze before.
        mishap: Mishap,
    },
    /// Dead.
    Bury {
        /// Why, in a word. If it has [`Expired`](Reason::Expired) the attempt is not counted: it did not run.
        reason: Reason,
        /// Why; cut to [`ERROR_BYTES_MAX`].
        error: String,
        /// The newest entry of the history.
        mishap: Mishap,
    },
    /// Pending again; the attempt is not counted. That of a task that comes again is, so that what was begun is not taken
    /// for missed.
    Release,
    /// Pending again under its next arming: another stable id, counters that begin anew.
    GoOn {
        /// When that is due; not the same time as that of the run.
        next: UnixMs,
        /// Whether the occurrence was run. One that was not leaves error and result of the one before where they are.
        ran: bool,
        /// Why this occurrence failed for good, if it did; cut to [`ERROR_BYTES_MAX`].
        error: Option<String>,
        /// For the history, if it did.
        mishap: Option<Mishap>,
        /// JSON, what the handler wants to be kept of it, if it succeeded.
        result: Option<String>,
    },
}

impl Ruling {
    /// Whether the run succeeded.
    pub fn is_success(&self) -> bool {
        match self {
            Self::Complete | Self::CompleteWith(_) | Self::GoOn { error: None, .. } => true,
            Self::RetryAt { .. }
            | Self::Snooze { .. }
            | Self::Bury { .. }
            | Self::Release
            | Self::GoOn { error: Some(_), .. } => false,
        }
    }
}

/// Longest result that is kept, in bytes.
pub const RESULT_BYTES_MAX: usize = 64 * 1024;

/// Longest error text that is kept, in bytes.
pub const ERROR_BYTES_MAX: usize = 2048;

/// What [`Ledger::settle`] came to, for one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Settled {
    /// Written.
    Applied,
    /// The task was cancelled while it ran, and the run did not succeed: it is cancelled now.
    Cancelled,
    /// The task was to come again but was cancelled while it ran, and the run succeeded: it is done now.
    Ended,
    /// The handler had marked the row processed itself: it counts as succeeded. If it comes again, and this is not the answer
    /// to a success, the lease is still there: that it succeeded is to be written.
    ByHandler,
    /// The key was created anew while it ran: the result is discarded, the lease given back.
    Superseded,
    /// Somebody else holds or finished it: the result is discarded.
    Fenced,
    /// Another session holds the row's lock: nothing was written, try again later.
    Locked,
}

/// What [`Ledger::renew`] came to, for one lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Renewal {
    /// It holds, for its whole length from when the statement was sent.
    Held,
    /// It has run out or is somebody else's: stop the run.
    Lost,
    /// Another session holds the row's lock: not renewed, try again soon.
    Locked,
}

/// The verbs of the engine and of producers.
#[async_trait]
pub trait Ledger: std::any::Any + Send + Sync {
    /// The ledger's clock, as it is known here.
    fn clock(&self) -> &LedgerClock;

    /// Asks the ledger for its time, so that [`clock`](Self::clock) follows; tells whether the ledger answers.
    async fn sync_clock(&self) -> Result<UnixMs, LedgerError>;

    /// Whether the ledger can be used as it is: reachable, schema up to date, rights granted. Who also wants to know what is
    /// paused asks for [that](Pauses::all).
    async fn check(&self) -> Result<(), LedgerError>;

    /// What is paused and held, in the same ledger.
    fn pauses(&self) -> &dyn Pauses;

    /// Creates tasks; where one of the key exists with another due time, its [`IfPending`] decides. Answers in the order
    /// of `tasks`. The same key and due time again changes nothing. Where one call names a key more than once, those that
    /// move come first, and those that refuse last.
    ///
    /// # If we crash right after
    /// The tasks exist. They need no arming to run: the look-ahead and the sweep find them.
    async fn create(&self, tasks: &[NewTask]) -> Result<Vec<Created>, LedgerError>;

    /// A row with how it comes again; `None` if the key has none.
    async fn series(&self, key: &TaskKey) -> Result<Option<SeriesRow>, LedgerError>;

    /// Writes the row of a task that comes again, over what was seen there: `None` if there was no row. Answers its arming, or
    /// `None` if the row is no longer what was seen. With the same due time as a pending row it stays the same arming.
    ///
    /// # If we crash right after
    /// As after [`create`](Self::create).
    async fn recur(
        &self,
        task: &NewTask,
        over: Option<&SeriesRow>,
    ) -> Result<Option<Arming>, LedgerError>;

    /// Notes in the row of a series that a configuration wants it ([`Recurrence::standing`]); nothing else of it changes. Tells
    /// whether it did: not if that is no longer what was seen.
    async fn note_standing(&self, seen: &SeriesRow) -> Result<bool, LedgerError>;

    /// Moves a pending task to another due time. One that comes again goes on behind the occurrence that was moved.
    async fn reschedule(&self, key: &TaskKey, due: UnixMs)
    -> Result<RescheduleAnswer, LedgerError>;

    /// Calls tasks off; answers in the order of `keys`.
    ///
    /// # If we crash right after
    /// They are called off; a key that is still armed signals in vain.
    async fn cancel(&self, keys: &[TaskKey]) -> Result<Vec<CancelAnswer>, LedgerError>;

    /// Calls off a page of the tasks that fit, each as [`cancel`](Self::cancel) would, or tells what it would do; from
    /// [`CancelPage::next`] of the page before. What is created after the first page was asked for may be left out.
    ///
    /// # If we crash right after
    /// Those of this page, and of the pages before, are called off.
    async fn cancel_page(
        &self,
        filter: &CancelFilter,
        before: Option<CancelCursor>,
        dry_run: bool,
    ) -> Result<CancelPage, LedgerError>;

    /// Where these keys stand, in their order; `None` for a key without a row.
    async fn look_up(&self, keys: &[TaskKey]) -> Result<Vec<Option<Standing>>, LedgerError>;

    /// A page of pending tasks by due time.
    async fn scan(&self, scan: DueScan) -> Result<DuePage, LedgerError>;

    /// As [`scan`](Self::scan) of [`Window::Ahead`], without the rows that `known` says yes to, by row and due time: of those
    /// no more than an index entry is read. The page ends after `limit` entries, known or not.
    async fn scan_news(&self, scan: DueScan, known: Known<'_>) -> Result<DuePage, LedgerError>;

    /// Claims those of these armings that are pending, due and leased by nobody. Not in their order.
    /// A row that another session has locked is left out, and delays no other.
    ///
    /// # If we crash right after
    /// The leases run out, and each claimed task counts one crash.
    async fn claim(&self, armings: &[Arming], by: &Claimant) -> Result<Vec<Claim>, LedgerError>;

    /// Prolongs leases by `length` from now; answers in their order. Never revives one that ran out.
    async fn renew(&self, leases: &[Lease], length: Duration) -> Result<Vec<Renewal>, LedgerError>;

    /// Writes how runs ended; answers in order. May be repeated after an error: what was written
    /// the first time answers [`Settled::Applied`] again.
    ///
    /// # If we crash right after
    /// Retries are not armed; the sweep finds them.
    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>, LedgerError>;

    /// Writes rows on behalf of keys that some program armed; answers in their order. Each is written by itself, so
    /// that no lock is held while another is waited for: a program may be about to write such a row in a
    /// transaction of its own.
    ///
    /// # If we crash right after
    /// The tasks exist, as after [`create`](Self::create). Adopting them again finds them there.
    async fn adopt(&self, keys: &[Foundling]) -> Result<Vec<Adopted>, LedgerError>;

    /// Calls off an adopted task whose key was deleted: only if it was adopted, does not come again, is pending
    /// under this very arming, and falls due in more than [`WITHDRAW_AHEAD`]. Tells whether it did.
    async fn withdraw(&self, arming: Arming) -> Result<bool, LedgerError>;

    /// Takes back the deletion of a row by a legacy program that has since armed the key again
    /// (`sts = 0` where `sts = 1` and `status = 0`). Tells whether it did.
    async fn revive(&self, arming: Arming) -> Result<bool, LedgerError>;
}

/// A key that vanishes no longer than this before its due time may as well have expired.
pub const WITHDRAW_AHEAD: Duration = Duration::from_secs(1);

/// Why the ledger could not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// It did not answer in time, or the connection broke. The statement may or may not have acted.
    #[error("ledger did not answer: {message}")]
    Unavailable {
        /// What happened.
        message: String,
        /// The driver's error.
        #[source]
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },
    /// Another session held a row's lock for longer than it was waited for.
    #[error("a row is locked by another session: {message}")]
    Locked {
        /// What it said.
        message: String,
        /// The driver's error.
        #[source]
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },
    /// It answered with an error.
    #[error("ledger refused: {message}")]
    Refused {
        /// What it said, and what to do about it.
        message: String,
        /// The driver's error.
        #[source]
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },
    /// A task cannot be written as it is.
    #[error("{0}")]
    Invalid(String),
}

impl LedgerError {
    /// Whether the same call may succeed later, unchanged.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::Locked { .. } => true,
            Self::Refused { .. } | Self::Invalid(_) => false,
        }
    }

    /// Whether one row of many may be the reason: the others might have gone through.
    pub fn is_about_a_row(&self) -> bool {
        !matches!(self, Self::Unavailable { .. })
    }
}
