//! As `given.rs`, with the ledger in an SQLite file.

pub use lapsed::SqliteTaskClient;
pub use lapsed::rusqlite::{Connection, TransactionBehavior};

pub use super::given::{CLOSE, Duration, HandlerError, Payment, TaskContext};

pub struct Shop;

/// One of each.
pub struct All<'a> {
    pub ctx: TaskContext,
    pub id: i64,
    pub shop: &'a mut Connection,
    pub tasks: SqliteTaskClient,
}
