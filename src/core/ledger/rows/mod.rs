//! The verbs of the ledgers that keep their rows in this process or in its file: each is written once.
//!
//! A verb reads rows, lets a rule of [`row`](super::row) decide, and writes what has changed, in one transaction on a
//! [`Store`]. A ledger that can run verbs is a [`RowLedger`], and has every seam by that.
//!
//! A verb returns an error of its own before its first change.

mod admin;
mod adoption;
mod cancel;
mod change;
mod claims;
mod documents;
mod pauses;
mod producer;
mod retention;
mod scans;
mod search;
mod stats;
pub mod store;
mod transfer;

pub use self::cancel::cancel;
pub use self::claims::settle_in;
pub use self::producer::create;
use self::store::{At, Columns, Result, RowStore, Store};
use super::row::Row;
use crate::task::UnixMs;

/// Rows that are changed in one transaction where a call may be divided, of 64 KiB each. Other callers wait meanwhile.
const ROWS_MAX: usize = 128;

/// How much a verb reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Few rows.
    Short,
    /// Many rows: other verbs are not to wait for several such ones.
    Long,
}

impl Length {
    fn of(rows: usize) -> Self {
        match rows {
            0 | 1 => Self::Short,
            _ => Self::Long,
        }
    }
}

/// A ledger that runs verbs on its rows.
pub trait RowLedger: Send + Sync {
    /// Runs a verb that changes nothing, in a transaction.
    fn read<T, V>(&self, length: Length, verb: V) -> impl Future<Output = Result<T>> + Send
    where
        T: Send + 'static,
        V: FnOnce(&mut dyn Store) -> Result<T> + Send + 'static;

    /// Runs a verb in a transaction, alone. Returns after the commit.
    fn write<T, V>(&self, length: Length, verb: V) -> impl Future<Output = Result<T>> + Send
    where
        T: Send + 'static,
        V: FnOnce(&mut dyn Store) -> Result<T> + Send + 'static;

    /// As [`Transfers::identity`](super::transfer::Transfers::identity).
    fn identity(&self) -> Option<String>;

    /// As [`Scans::unsignalled_changes`](super::Scans::unsignalled_changes).
    fn unsignalled_changes(&self) -> impl Future<Output = Result<Option<u64>>> + Send {
        std::future::ready(Ok(None))
    }

    /// Notes that tasks may be due of which the caller does not tell the timer.
    fn note_unsignalled(&self) {}

    /// Notes that a scan has returned this number of future rows.
    fn note_read_ahead(&self, _rows: usize) {}
}

/// Applies `act` to a row, and writes these columns if `is_change` says so of what it returns. `None`: there is no such row.
fn update<T>(
    store: &mut dyn RowStore,
    at: At<'_>,
    columns: Columns,
    act: impl FnOnce(&mut Row, UnixMs) -> T,
    is_change: impl FnOnce(&T) -> bool,
) -> Result<Option<T>> {
    let Some(mut stored) = store.row(at, columns.parts())? else {
        return Ok(None);
    };
    let done = act(&mut stored.row, store.now());
    if is_change(&done) {
        store.save(&stored.row, columns)?;
    }
    Ok(Some(done))
}

/// Applies `act` to a row without payload and result, and writes it if `act` returns true. Returns false, too, if there is
/// no such row.
fn update_if(
    store: &mut dyn RowStore,
    at: At<'_>,
    act: impl FnOnce(&mut Row, UnixMs) -> bool,
) -> Result<bool> {
    let changed = update(store, at, Columns::Brief, act, |changed| *changed)?;
    Ok(changed.unwrap_or_default())
}

/// Inserts a new row and gives it its id. Returns false if its key has a row.
fn insert(store: &mut dyn RowStore, row: &mut Row) -> Result<bool> {
    let id = store.insert(row)?;
    row.id = id.unwrap_or(row.id);
    Ok(id.is_some())
}
