use lapsed_core::task::TableName;

/// Error of a migration, of its plan, or of a check.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the error texts say it")]
pub enum MigrateError {
    #[error("no database is selected: name one in the URL, as in `mysql://host/lapsed`")]
    NoDatabase,
    #[error("table `{table}` does not exist: run `lapsed migrate`")]
    Absent { table: TableName },
    #[error("table `{table}` {difference}: run `lapsed migrate`")]
    Outdated {
        table: TableName,
        difference: String,
    },
    /// The table has the right name, but cannot be adopted without loss.
    #[error("table `{table}` cannot be adopted: {problem}")]
    Incompatible { table: TableName, problem: String },
    #[error("this server is `{version}`: {bug}")]
    ServerBug { version: String, bug: &'static str },
    #[error("another `lapsed migrate` of table `{table}` is still running after {seconds} s")]
    Busy { table: TableName, seconds: u64 },
    #[error(
        "table `{table}` was in use by other transactions for {seconds} s, so `{statement}` could not begin: \
         find them in `SHOW PROCESSLIST` or `information_schema.INNODB_TRX`, and run `lapsed migrate` again; it continues from here"
    )]
    Blocked {
        table: TableName,
        statement: String,
        seconds: u64,
    },
    #[error(
        "table `{table}` was changed by others each of {rounds} times that it was nearly done: \
         stop the programs that insert the same key twice, and run `lapsed migrate` again"
    )]
    Restless { table: TableName, rounds: usize },
    #[error(
        "cannot {step}: this user lacks the privileges for it; migrate as a user with {privileges} on the database of table `{table}`"
    )]
    Denied {
        table: TableName,
        step: String,
        privileges: &'static str,
        #[source]
        source: sqlx::Error,
    },
    #[error("cannot {action}")]
    Sql {
        action: String,
        #[source]
        source: sqlx::Error,
    },
}

impl MigrateError {
    /// Wraps a driver's error: `.map_err(MigrateError::sql("read the columns of the table"))`.
    pub(super) fn sql(action: impl Into<String>) -> impl FnOnce(sqlx::Error) -> Self {
        let action = action.into();
        move |source| Self::Sql { action, source }
    }
}

/// Error numbers of MySQL and MariaDB that a migration handles.
pub(super) mod number {
    pub const TABLE_EXISTS: u16 = 1050;
    pub const DUPLICATE_COLUMN: u16 = 1060;
    pub const DUPLICATE_KEY_NAME: u16 = 1061;
    pub const DUPLICATE_ENTRY: u16 = 1062;
    pub const PARTITION_ENDS_EARLIER: u16 = 1493;
    pub const NO_SUCH_PARTITION: u16 = 1507;
    pub const PARTITION_EXISTS: u16 = 1517;
    /// The table has changed since it was planned for.
    pub const STALE: [u16; 7] = [
        TABLE_EXISTS,
        DUPLICATE_COLUMN,
        DUPLICATE_KEY_NAME,
        DUPLICATE_ENTRY,
        PARTITION_ENDS_EARLIER,
        NO_SUCH_PARTITION,
        PARTITION_EXISTS,
    ];

    /// Privileges on the database, on the table, or for the statement are missing.
    pub const DENIED: [u16; 3] = [1044, 1142, 1227];

    pub const LOCK_WAIT_TIMEOUT: u16 = 1205;
    pub const DEADLOCK: u16 = 1213;
    /// MariaDB 11.6 and later: the row changed since the snapshot was taken.
    pub const RECORD_CHANGED: u16 = 1020;
    pub const TRANSIENT: [u16; 3] = [LOCK_WAIT_TIMEOUT, DEADLOCK, RECORD_CHANGED];

    /// Unknown algorithm, unsupported, unsupported for a reason, row format full of instant columns (two numbers).
    pub const ALGORITHM_REFUSED: [u16; 5] = [1800, 1845, 1846, 4080, 4092];
}

/// Returns the server's error number, if the server refused the statement.
pub(super) fn number_of(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error()?;
    let error = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>()?;
    Some(error.number())
}

pub(super) fn is_one_of(error: &sqlx::Error, numbers: &[u16]) -> bool {
    number_of(error).is_some_and(|number| numbers.contains(&number))
}
