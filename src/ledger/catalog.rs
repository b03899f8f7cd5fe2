//! The seam for people who look and mend: whole rows, lists, counts.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::{Arming, LedgerError, Survey, SurveyLimits};
use crate::task::{JsonText, Mishap, Reason, State, TaskKey, Traceparent, UnixMs};

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
    /// How it comes again, JSON as stored.
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

fn display<T: fmt::Display, S: serde::Serializer>(
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

/// Which tasks to list; everything that is set must fit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListFilter {
    /// One of these states; empty for all.
    pub states: Vec<StateFilter>,
    /// This class.
    pub class: Option<String>,
    /// This method, of any class.
    pub method: Option<String>,
    /// This tag.
    pub tag: Option<String>,
    /// A key that begins with this.
    pub prefix: Option<String>,
    /// Only those that come again.
    pub recurring: bool,
    /// `end_time` at or after.
    pub due_after: Option<UnixMs>,
    /// `end_time` before.
    pub due_before: Option<UnixMs>,
    /// Dead for this reason.
    pub reason: Option<Reason>,
    /// The latest error contains this text, whatever its case.
    pub error: Option<String>,
    /// Finished at or after.
    pub finished_after: Option<UnixMs>,
    /// Finished before.
    pub finished_before: Option<UnixMs>,
    /// Row ids above this one: the last id of the page before.
    pub cursor: Option<u64>,
    /// At most so many.
    pub limit: u32,
}

impl ListFilter {
    /// Whether every task of the states fits: nothing else is asked of it. An empty text asks nothing.
    pub fn is_open(&self) -> bool {
        let Self {
            states: _,
            class,
            method,
            tag,
            prefix,
            recurring: false,
            due_after: None,
            due_before: None,
            reason: None,
            error,
            finished_after: None,
            finished_before: None,
            cursor: _,
            limit: _,
        } = self
        else {
            return false;
        };
        let texts = [class, method, tag, prefix, error];
        texts.into_iter().flatten().all(String::is_empty)
    }
}

/// Rows that fit a filter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Picked {
    /// Their ids, in order.
    pub rows: Vec<u64>,
    /// Give this as `cursor` for the next ones; `None` at the end.
    pub next: Option<u64>,
}

/// Which finished tasks to forget: the next few of one state, in the order of their due times.
///
/// A task is old enough when it has both fallen due and finished so long ago. One that was called off ahead of its time
/// stays until that time has passed: a key that could not be deleted would otherwise bring it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prune {
    /// Done, dead or cancelled: no other state is ever pruned.
    pub state: State,
    /// What has been finished for at least so long goes.
    pub age: Option<Duration>,
    /// So many go, however young, the oldest first; but see [`AGE_MIN`](Self::AGE_MIN).
    pub surplus: u64,
    /// Where the last batch ended.
    pub after: Option<PruneCursor>,
    /// At most so many are looked at.
    pub limit: u32,
    /// Only count.
    pub dry_run: bool,
}

impl Prune {
    /// Nothing goes as surplus that finished less than this ago: late signals are still about.
    pub const AGE_MIN: Duration = Duration::from_secs(60);
}

/// A place in the order in which tasks are pruned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PruneCursor {
    pub(super) deleted: bool,
    pub(super) due_at: UnixMs,
    pub(super) row: u64,
}

/// What one batch of pruning came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pruned {
    /// Rows deleted, or that would be.
    pub rows: u64,
    /// Of these, those that were surplus.
    pub surplus: u64,
    /// Of a dry run, the rows that would be deleted, with their keys; none for a key outside of the grammar.
    pub found: Vec<(u64, Option<TaskKey>)>,
    /// Where to go on; `None` at the end.
    pub next: Option<PruneCursor>,
}

/// A state, or the one condition people ask for that is not a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateFilter {
    /// In this state.
    Is(State),
    /// Pending or waiting, and its time has passed.
    Overdue,
}

/// A page of tasks in the order of their rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListPage {
    /// The tasks.
    pub tasks: Vec<TaskRecord>,
    /// Give this as `cursor` for the next page; `None` at the end.
    pub next: Option<u64>,
}

/// How many tasks are in which state.
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
    /// Called off.
    pub cancelled: u64,
    /// Of the pending and waiting ones, those whose time has passed.
    pub overdue: u64,
    /// How long the oldest of those has been overdue, in milliseconds.
    pub overdue_ms_max: u64,
}

impl Stats {
    /// Each count with its word.
    pub fn by_state(&self) -> [(&'static str, u64); 7] {
        let Self {
            pending,
            waiting,
            running,
            done,
            dead,
            cancelled,
            overdue,
            overdue_ms_max: _,
        } = *self;
        [
            ("pending", pending),
            ("waiting", waiting),
            ("running", running),
            ("done", done),
            ("dead", dead),
            ("cancelled", cancelled),
            ("overdue", overdue),
        ]
    }
}

/// What [`Catalog::run_now`] and [`Catalog::redrive`] came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NudgeAnswer {
    /// It is due; this is its arming.
    Due(Arming),
    /// Not in a state to do that: this is its state.
    Refused(State),
    /// There is no such task.
    Unknown,
}

/// The verbs of people who look and mend.
#[async_trait]
pub trait Catalog: Send + Sync + 'static {
    /// One task.
    async fn find(&self, key: &TaskKey) -> Result<Option<TaskRecord>, LedgerError>;

    /// Many.
    async fn list(&self, filter: &ListFilter) -> Result<ListPage, LedgerError>;

    /// Counts, exactly. Reads every row.
    async fn stats(&self) -> Result<Stats, LedgerError>;

    /// Counts by state, class and method, of no more rows than the limits say; the answer tells where that was a part.
    async fn survey(&self, limits: SurveyLimits) -> Result<Survey, LedgerError>;

    /// Makes a pending or waiting task due now. One that comes again runs once more than it would. One that a
    /// [hold](super::Pauses::hold) keeps back is held no longer: it gets a due time of its own, now.
    async fn run_now(&self, key: &TaskKey) -> Result<NudgeAnswer, LedgerError>;

    /// Brings a dead task back to pending: the same due time, so the same stable id, and its history; its counters
    /// cleared, and what is counted from its beginning (lateness, deadline, expiry) counted from now.
    async fn redrive(&self, key: &TaskKey) -> Result<NudgeAnswer, LedgerError>;

    /// Dead tasks that fit, in the order of their rows; `states` of the filter is not looked at.
    async fn pick_dead(&self, filter: &ListFilter) -> Result<Picked, LedgerError>;

    /// As [`redrive`](Self::redrive), for those of these rows that are dead; tells how many. Rows that another session
    /// has locked are left out.
    async fn redrive_rows(&self, rows: &[u64]) -> Result<u64, LedgerError>;

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

    /// How many tasks are in this finished state.
    async fn count_finished(&self, state: State) -> Result<u64, LedgerError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_with_empty_texts_only_is_open() {
        let open = ListFilter {
            class: Some(String::new()),
            prefix: Some(String::new()),
            error: Some(String::new()),
            limit: 3,
            ..ListFilter::default()
        };
        assert!(open.is_open() && ListFilter::default().is_open());
        let closed = ListFilter {
            tag: Some("shop".to_owned()),
            ..open.clone()
        };
        assert!(!closed.is_open());
        let recurring = ListFilter {
            recurring: true,
            ..open
        };
        assert!(!recurring.is_open());
    }
}
