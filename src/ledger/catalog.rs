//! The seam for administration: records, lists, statistics, redrive and pruning.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::listing::{ListFilter, ListPage, Picked};
use super::{DetailedStats, DetailedStatsLimits, LedgerError};
use crate::task::{Arming, JsonText, Mishap, Reason, State, TaskKey, Traceparent, UnixMs};

/// A whole row, for people.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct TaskRecord {
    /// `<row id>-<end_time ms>`.
    pub id: String,
    /// The task.
    #[serde(serialize_with = "display")]
    pub key: TaskKey,
    /// Its state.
    pub state: State,
    /// `end_time`.
    #[serde(serialize_with = "display")]
    pub due: UnixMs,
    /// When it may start, if a retry lies ahead.
    #[serde(serialize_with = "display")]
    pub due_at: UnixMs,
    /// `start_time`.
    #[serde(serialize_with = "display")]
    pub created: UnixMs,
    /// Runs started, of this arming.
    pub attempt: u16,
    /// Leases that ran out, of this arming.
    pub crashes: u8,
    /// The task's own limit of runs.
    pub max_attempts: Option<u16>,
    /// Who holds or last held it.
    pub daemon: String,
    /// A cancellation waits for its run to end.
    pub cancel_requested: bool,
    /// For looking up many.
    pub tag: Option<String>,
    /// JSON.
    #[serde(serialize_with = "json_option")]
    pub payload: Option<String>,
    /// The trace that it was created in.
    #[serde(
        serialize_with = "display_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub traceparent: Option<Traceparent>,
    /// Its recurrence, JSON as stored.
    #[serde(serialize_with = "json_option")]
    pub recurrence: Option<String>,
    /// Of the latest run that failed.
    pub last_error: Option<String>,
    /// Why it is dead.
    pub reason: Option<Reason>,
    /// What went wrong before, the newest first; at most [`HISTORY_MAX`](crate::task::HISTORY_MAX) entries.
    pub history: Vec<Mishap>,
    /// JSON, of the run that succeeded, if it was kept.
    #[serde(serialize_with = "json_option")]
    pub result: Option<String>,
    /// When it finished.
    #[serde(serialize_with = "display_option")]
    pub finished: Option<UnixMs>,
    /// Its due time came from a key that some program armed.
    pub adopted: bool,
}

pub(super) fn display<T: fmt::Display, S: serde::Serializer>(
    value: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn display_option<T: fmt::Display, S: serde::Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

fn json_option<S: serde::Serializer>(
    value: &Option<String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(text) => serializer.serialize_some(&JsonText(text)),
        None => serializer.serialize_none(),
    }
}

/// A task that is redriven falls due again as of so long ago, unless its own due time is later: long enough to be worked off
/// as a backlog, beside which what falls due now stays punctual, and so short that each sweep comes to it at once, whatever
/// else has been overdue for longer.
pub const REDRIVEN_AGO: Duration = Duration::from_secs(6);

/// Which finished tasks to forget: the next few of one state, in the order of their due times.
///
/// A task is old enough when it has both fallen due and finished so long ago. One that was cancelled ahead of its time
/// stays until that time has passed: a key that could not be deleted would otherwise bring it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prune {
    /// Done, dead or cancelled: no other state is ever pruned.
    pub state: State,
    /// What has been finished for at least so long goes.
    pub age: Option<Duration>,
    /// This row and what comes before it in the order of pruning goes, however young; but see
    /// [`AGE_MIN`](Self::AGE_MIN). [`Catalog::surplus`] finds it.
    pub surplus: Option<PruneCursor>,
    /// Where the last batch ended.
    pub after: Option<PruneCursor>,
    /// Most rows to examine.
    pub limit: u32,
    /// Only count.
    pub dry_run: bool,
}

impl Prune {
    /// Nothing goes as surplus that finished less than this ago: late signals are still about.
    pub const AGE_MIN: Duration = Duration::from_secs(60);
}

/// A place in the order in which tasks are pruned: by due time; behind them, likewise, those that a program has deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PruneCursor {
    pub(super) deleted: bool,
    pub(super) due_at: UnixMs,
    pub(super) row: u64,
}

impl PruneCursor {
    /// Before all.
    pub(super) const START: Self = Self {
        deleted: false,
        due_at: UnixMs(0),
        row: 0,
    };
}

/// What one batch of pruning came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pruned {
    /// Rows deleted, or that would be.
    pub rows: u64,
    /// Of a dry run, the rows that would be deleted, with their keys; none for a key outside of the grammar.
    pub found: Vec<(u64, Option<TaskKey>)>,
    /// Where to go on; `None` at the end.
    pub next: Option<PruneCursor>,
}

/// Number of tasks by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Stats {
    /// Pending, not running, no retry ahead.
    pub pending: u64,
    /// A retry lies ahead.
    pub waiting: u64,
    /// Leased.
    pub running: u64,
    /// Succeeded.
    pub done: u64,
    /// Failed for good.
    pub dead: u64,
    /// Cancelled.
    pub cancelled: u64,
    /// Of the pending and waiting ones, those whose time has passed.
    pub overdue: u64,
    /// How long the oldest of those has been overdue, in milliseconds.
    pub overdue_ms_max: u64,
    /// Overdue rows whose key is no task key. They are in none of the other counts.
    pub malformed: u64,
}

impl Stats {
    /// Each count with its word.
    pub fn by_state(&self) -> [(&'static str, u64); 8] {
        let Self {
            pending,
            waiting,
            running,
            done,
            dead,
            cancelled,
            overdue,
            overdue_ms_max: _,
            malformed,
        } = *self;
        [
            ("pending", pending),
            ("waiting", waiting),
            ("running", running),
            ("done", done),
            ("dead", dead),
            ("cancelled", cancelled),
            ("overdue", overdue),
            ("malformed", malformed),
        ]
    }
}

/// Result of [`Catalog::run_now`] and [`Catalog::redrive`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunNowAnswer {
    /// It is due; this is its arming.
    Due(Arming),
    /// Not in a state to do that: this is its state.
    Refused(State),
    /// There is no such task.
    Unknown,
}

/// The verbs of administration.
#[async_trait]
pub trait Catalog: Send + Sync + 'static {
    /// One task.
    async fn find(&self, key: &TaskKey) -> Result<Option<TaskRecord>, LedgerError>;

    /// A page of those that fit. It ends early rather than to search for longer than a moment.
    async fn list(&self, filter: &ListFilter) -> Result<ListPage, LedgerError>;

    /// Counts by state, class and method, of no more rows than the limits say; the answer tells where that was a part.
    async fn detailed_stats(
        &self,
        limits: DetailedStatsLimits,
    ) -> Result<DetailedStats, LedgerError>;

    /// The counts of a [detailed_stats](Self::detailed_stats) with its default limits: exact while there are fewer rows than those.
    async fn stats(&self) -> Result<Stats, LedgerError> {
        Ok(self
            .detailed_stats(DetailedStatsLimits::default())
            .await?
            .counts)
    }

    /// How long the oldest overdue task has waited, zero if none is overdue. Exact however many there are, and soon
    /// read. Rows whose key is no task key do not count, since nothing can run them.
    async fn overdue_for(&self) -> Result<Duration, LedgerError>;

    /// Makes a pending or waiting task due now. One that comes again runs once more than it would. One that a
    /// [hold](super::Pauses::hold) keeps back is held no longer: it gets a due time of its own, now.
    async fn run_now(&self, key: &TaskKey) -> Result<RunNowAnswer, LedgerError>;

    /// Brings a dead task back to pending: the same due time, so the same stable id, and its history; its counters
    /// cleared, and what is counted from its beginning (lateness, deadline, expiry) counted from now.
    async fn redrive(&self, key: &TaskKey) -> Result<RunNowAnswer, LedgerError>;

    /// Dead tasks that fit, in the [order](ListFilter::order) of the filter; its `states` are not looked at. Ends early
    /// as [`list`](Self::list) does.
    async fn pick_dead(&self, filter: &ListFilter) -> Result<Picked, LedgerError>;

    /// As [`redrive`](Self::redrive), for those of these rows that are dead; tells how many. Rows that another session
    /// has locked are left out.
    async fn redrive_rows(&self, rows: &[u64]) -> Result<u64, LedgerError>;

    /// The keys of those of these rows that are dead. Keys outside the grammar are left out.
    async fn dead_keys(&self, rows: &[u64]) -> Result<Vec<TaskKey>, LedgerError>;

    /// Deletes those of these rows that are dead, for good; tells how many. Rows that another session has locked are
    /// left out.
    async fn discard_rows(&self, rows: &[u64]) -> Result<u64, LedgerError>;

    /// Deletes a batch of finished rows in one short transaction.
    ///
    /// # If we crash right after
    /// They are gone; the others go next time.
    async fn prune(&self, prune: &Prune) -> Result<Pruned, LedgerError>;

    /// Deletes those of these rows that `prune` would delete still: what a dry run of it found. Tells how many.
    async fn prune_rows(&self, prune: &Prune, rows: &[u64]) -> Result<u64, LedgerError>;

    /// From which row on, backwards in the order of pruning, finished tasks of this state are more than `keep`; `None`
    /// if there are no more.
    async fn surplus(&self, state: State, keep: u64) -> Result<Option<PruneCursor>, LedgerError>;
}
