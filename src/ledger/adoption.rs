//! Adopting a key that a program armed with a bare `SETEX`.

use std::time::Duration;

use super::Lookup;
use crate::task::{Arming, TaskKey, UnixMs};

/// A key that vanishes no longer than this before its due time may as well have expired.
pub const WITHDRAW_AHEAD: Duration = Duration::from_secs(1);

/// Request to write the row of a key that a program armed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdoptionRequest {
    /// What it is called.
    pub key: TaskKey,
    /// When it falls due.
    pub due: UnixMs,
    /// When it was heard to be armed: what was said before that does not count any more.
    pub heard: UnixMs,
    /// Whether the task is from a key now: a deletion of the key then cancels it. Otherwise it stays what it was.
    pub from_key: bool,
    /// The row that was there when this was decided.
    pub over: Option<Lookup>,
}

/// What [`Ledger::adopt`](super::Ledger::adopt) came to, for one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Adopted {
    /// Written; this is its arming.
    Written(Arming),
    /// The row is no longer what it was, or there is one now: whoever wrote it knew better.
    Overtaken,
    /// Another session holds its lock: nothing was written, try again later.
    Locked,
    /// The table cannot hold keys like this one: this is why, and what to do about it.
    Unfit(String),
    /// The ledger cannot take this one: this is why.
    Refused(String),
}
