//! Statements that scan pending rows by due time.

/// `scan` of overdue rows without a lease, oldest first. Range on `ix_due`.
///
/// The start of a page is expressed as two ranges, one time from a row on and all later times: with many rows due in the
/// same millisecond, each page would otherwise read those before it.
///
/// `FORCE INDEX`, because the statistics favour a full scan and a sort while most of the table is overdue.
pub const SCAN_OVERDUE_OLDEST: &str = "SELECT id, `key`, CAST(end_time * 1000 AS SIGNED) AS end_ms, CAST(due_at * 1000 AS SIGNED) AS due_ms \
     FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = 0 AND sts = 0 AND due_at <= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000 AND lease_until < UNIX_TIMESTAMP(NOW(3)) \
       AND ((due_at = CAST(? AS SIGNED) / 1000 AND id > ?) OR due_at > CAST(? AS SIGNED) / 1000) \
     ORDER BY due_at, id LIMIT ?";

/// `scan` of overdue rows without a lease, newest first. Range on `ix_due`, backwards.
pub const SCAN_OVERDUE_NEWEST: &str = "SELECT id, `key`, CAST(end_time * 1000 AS SIGNED) AS end_ms, CAST(due_at * 1000 AS SIGNED) AS due_ms \
     FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = 0 AND sts = 0 AND due_at <= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000 AND lease_until < UNIX_TIMESTAMP(NOW(3)) \
       AND ((due_at = CAST(? AS SIGNED) / 1000 AND id < ?) OR due_at < CAST(? AS SIGNED) / 1000) \
     ORDER BY due_at DESC, id DESC LIMIT ?";

/// `scan` of rows due between now and the horizon. `sts` is 0 for live rows and 1 for those that a legacy program has
/// deleted. Range on `ix_due`.
pub const SCAN_AHEAD: &str = "SELECT id, `key`, CAST(end_time * 1000 AS SIGNED) AS end_ms, CAST(due_at * 1000 AS SIGNED) AS due_ms \
     FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = 0 AND sts = ? AND due_at > UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000 \
       AND due_at <= UNIX_TIMESTAMP(NOW(3)) + CAST(? AS SIGNED) / 1000 \
       AND ((due_at = CAST(? AS SIGNED) / 1000 AND id > ?) OR due_at > CAST(? AS SIGNED) / 1000) \
     ORDER BY due_at, id LIMIT ?";

/// `scan_new`: as [`SCAN_AHEAD`] for live rows, from the index alone. Range on `ix_due`, which covers it.
///
/// The buckets come first, so that an entry of another daemon costs no arithmetic on its times.
pub const ENTRIES_AHEAD: &str = "SELECT id, CAST(due_at * 1000 AS SIGNED) AS due_ms \
     FROM `{t}` FORCE INDEX (ix_due) \
     WHERE ASCII(SUBSTRING(?, (bucket >> 3) + 1, 1)) & (1 << (bucket & 7)) \
       AND status = 0 AND sts = 0 AND due_at > UNIX_TIMESTAMP(NOW(3)) \
       AND due_at <= UNIX_TIMESTAMP(NOW(3)) + CAST(? AS SIGNED) / 1000 \
       AND ((due_at = CAST(? AS SIGNED) / 1000 AND id > ?) OR due_at > CAST(? AS SIGNED) / 1000) \
     ORDER BY due_at, id LIMIT ?";

/// `scan_new`: as [`SCAN_OVERDUE_OLDEST`], from the index alone, leased or not. Range on `ix_due`, which covers it.
pub const ENTRIES_OVERDUE_OLDEST: &str = "SELECT id, CAST(due_at * 1000 AS SIGNED) AS due_ms \
     FROM `{t}` FORCE INDEX (ix_due) \
     WHERE ASCII(SUBSTRING(?, (bucket >> 3) + 1, 1)) & (1 << (bucket & 7)) \
       AND status = 0 AND sts = 0 AND due_at <= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000 \
       AND ((due_at = CAST(? AS SIGNED) / 1000 AND id > ?) OR due_at > CAST(? AS SIGNED) / 1000) \
     ORDER BY due_at, id LIMIT ?";

/// `scan_new`: as [`ENTRIES_OVERDUE_OLDEST`], newest first. Range on `ix_due`, backwards.
pub const ENTRIES_OVERDUE_NEWEST: &str = "SELECT id, CAST(due_at * 1000 AS SIGNED) AS due_ms \
     FROM `{t}` FORCE INDEX (ix_due) \
     WHERE ASCII(SUBSTRING(?, (bucket >> 3) + 1, 1)) & (1 << (bucket & 7)) \
       AND status = 0 AND sts = 0 AND due_at <= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000 \
       AND ((due_at = CAST(? AS SIGNED) / 1000 AND id < ?) OR due_at < CAST(? AS SIGNED) / 1000) \
     ORDER BY due_at DESC, id DESC LIMIT ?";

/// `scan_near`: the entries of rows that fall due about now, leased or not, latest first. Range on `ix_due`, backwards,
/// which covers it.
///
/// Many tasks may have fallen due in one moment. Those created since are at the end of the range, and are read first.
pub const ENTRIES_NEAR: &str = "SELECT id, CAST(due_at * 1000 AS SIGNED) AS due_ms \
     FROM `{t}` FORCE INDEX (ix_due) \
     WHERE ASCII(SUBSTRING(?, (bucket >> 3) + 1, 1)) & (1 << (bucket & 7)) \
       AND status = 0 AND sts = 0 AND due_at > UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000 \
       AND due_at <= UNIX_TIMESTAMP(NOW(3)) + CAST(? AS SIGNED) / 1000 \
     ORDER BY due_at DESC, id DESC LIMIT ?";

/// `scan_new`: the rows that were not known, if they are still pending. Primary key.
pub const UPCOMING: &str = "SELECT id, `key`, CAST(end_time * 1000 AS SIGNED) AS end_ms, CAST(due_at * 1000 AS SIGNED) AS due_ms \
     FROM `{t}` FORCE INDEX (PRIMARY) WHERE id IN ({ids}) AND status = 0 AND sts = 0";

/// `scan_near`: the rows that were not known, if they are still pending and not leased. Primary key.
pub const UPCOMING_FREE: &str = "SELECT id, `key`, CAST(end_time * 1000 AS SIGNED) AS end_ms, CAST(due_at * 1000 AS SIGNED) AS due_ms \
     FROM `{t}` FORCE INDEX (PRIMARY) WHERE id IN ({ids}) AND status = 0 AND sts = 0 AND lease_until < UNIX_TIMESTAMP(NOW(3))";

/// `scan_methods`: the next class and method of pending rows, from the index alone. Range on `ix_method`, of which one entry is
/// read.
pub const NEXT_METHOD: &str = "SELECT CAST(method_crc AS SIGNED) AS next_crc FROM `{t}` FORCE INDEX (ix_method) \
     WHERE method_crc >= ? ORDER BY method_crc LIMIT 1";

/// `scan_methods`, `scan_method`: as [`SCAN_OVERDUE_OLDEST`], of one class and method. Range on `ix_method`.
pub const SCAN_METHOD: &str = "SELECT id, `key`, CAST(end_time * 1000 AS SIGNED) AS end_ms, CAST(due_at * 1000 AS SIGNED) AS due_ms \
     FROM `{t}` FORCE INDEX (ix_method) \
     WHERE method_crc = ? \
       AND due_at <= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000 AND lease_until < UNIX_TIMESTAMP(NOW(3)) \
       AND ((due_at = CAST(? AS SIGNED) / 1000 AND id > ?) OR due_at > CAST(? AS SIGNED) / 1000) \
     ORDER BY due_at, id LIMIT ?";
