//! The seam for people who look and mend: whole rows, lists, counts.

use std::fmt;

use async_trait::async_trait;

use super::{Arming, LedgerError};
use crate::task::{State, TaskKey, Traceparent, UnixMs};

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
    pub payload: Option<String>,
    /// The trace that it was created in.
    #[serde(
        serialize_with = "display_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub traceparent: Option<Traceparent>,
    /// Of the latest run that failed.
    pub last_error: Option<String>,
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
    /// `end_time` at or after.
    pub due_after: Option<UnixMs>,
    /// `end_time` before.
    pub due_before: Option<UnixMs>,
    /// Row ids above this one: the last id of the page before.
    pub cursor: Option<u64>,
    /// At most so many.
    pub limit: u32,
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

    /// Counts.
    async fn stats(&self) -> Result<Stats, LedgerError>;

    /// Makes a pending or waiting task due now. One that a [hold](super::Pauses::hold) keeps back is held no longer: it
    /// gets a due time of its own, now.
    async fn run_now(&self, key: &TaskKey) -> Result<NudgeAnswer, LedgerError>;

    /// Brings a dead task back to pending, with the same due time and its counters cleared.
    async fn redrive(&self, key: &TaskKey) -> Result<NudgeAnswer, LedgerError>;
}
