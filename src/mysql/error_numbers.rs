//! Errors of the server by number.

use sqlx::mysql::MySqlDatabaseError;

const LOCK_WAIT_TIMEOUT: u16 = 1205;
const DEADLOCK: u16 = 1213;
const DUPLICATE_KEY: u16 = 1062;
const UNKNOWN_INDEX: u16 = 1176;
const UNKNOWN_COLUMN: u16 = 1054;
const UNKNOWN_TABLE: u16 = 1146;
/// MariaDB 11.6 and later: the row changed since this statement's snapshot.
const RECORD_CHANGED: u16 = 1020;

/// Shutdown, read-only, offline, too many connections, killed, interrupted, out of memory, failed commit, proxy without a
/// server, conflict of group replication, a member that joins, leaves or becomes the primary, TiDB without its storage: it
/// may work later or over another connection.
const PASSING: [u16; 57] = [
    1037, 1038, 1040, 1041, 1047, 1053, 1080, 1129, 1135, 1152, 1158, 1159, 1160, 1161, 1180, 1181,
    1203, 1205, 1226, 1290, 1317, 1412, 1615, 1637, 1792, 1836, 1927, 1969, 3024, 3032, 3100, 3101,
    3170, 3781, 3782, 3783, 3796, 3797, 3798, 3799, 4031, 4094, 4311, 4312, 4313, 8002, 8022, 8027,
    8028, 9001, 9002, 9003, 9004, 9005, 9006, 9007, 9010,
];

/// Refused values, or refused by a constraint or trigger of the table: null, too long, out of range, not of the column's
/// character set, not JSON, too large for a packet, against a foreign key or a check.
const ABOUT_DATA: [u16; 33] = [
    1048, 1153, 1216, 1217, 1263, 1264, 1265, 1267, 1270, 1271, 1292, 1300, 1301, 1366, 1367, 1406,
    1411, 1451, 1452, 1644, 1690, 3140, 3141, 3143, 3144, 3146, 3150, 3157, 3158, 3819, 3854, 3988,
    4025,
];

pub(super) fn number(error: &sqlx::Error) -> Option<u16> {
    let error = error
        .as_database_error()?
        .try_downcast_ref::<MySqlDatabaseError>()?;
    Some(error.number())
}

/// True if another session's lock was in the way.
pub(super) fn is_locked(error: &sqlx::Error) -> bool {
    matches!(
        number(error),
        Some(LOCK_WAIT_TIMEOUT | DEADLOCK | RECORD_CHANGED)
    )
}

/// True if the statement was rolled back to resolve a conflict, and may be tried again at once.
pub(super) fn is_deadlock(error: &sqlx::Error) -> bool {
    matches!(number(error), Some(DEADLOCK | RECORD_CHANGED))
}

/// True if a row of this key exists already.
pub(super) fn is_duplicate(error: &sqlx::Error) -> bool {
    number(error) == Some(DUPLICATE_KEY)
}

/// True if the table has no index of the name in the statement. A server may look for the indexed column first.
pub(super) fn is_missing_index(error: &sqlx::Error) -> bool {
    matches!(number(error), Some(UNKNOWN_INDEX | UNKNOWN_COLUMN))
}

/// True if a table does not exist.
pub(super) fn is_missing_table(error: &sqlx::Error) -> bool {
    number(error) == Some(UNKNOWN_TABLE)
}

/// True if the same statement may succeed later, or over another connection.
pub(super) fn is_transient(error: &sqlx::Error) -> bool {
    match number(error) {
        Some(number) => PASSING.contains(&number) || number == DEADLOCK || number == RECORD_CHANGED,
        None => matches!(
            error,
            sqlx::Error::Io(_)
                | sqlx::Error::Tls(_)
                | sqlx::Error::Protocol(_)
                | sqlx::Error::PoolTimedOut
                | sqlx::Error::PoolClosed
                | sqlx::Error::WorkerCrashed
        ),
    }
}

/// True if the server refused the values of the statement.
pub(super) fn is_about_data(error: &sqlx::Error) -> bool {
    number(error).is_some_and(|number| ABOUT_DATA.contains(&number))
}
