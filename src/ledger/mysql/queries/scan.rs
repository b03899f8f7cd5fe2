//! Statements that scan pending rows by due time.

/// `scan`, overdue and free, the oldest first. Range on `ix_due`.
///
/// Where a page begins is said as two ranges, a moment from some row on and what comes after it: with many rows due in one
/// millisecond, each page would walk over those before it otherwise.
///
/// `FORCE INDEX`, because with most of the table overdue the statistics speak for a full scan and a sort.
pub const SCAN_OVERDUE_OLDEST: &str = "SELECT id, `key`, CAST(end_time * 1000 AS SIGNED) AS end_ms, CAST(due_at * 1000 AS SIGNED) AS due_ms \
     FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = 0 AND sts = 0 AND due_at <= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000 AND lease_until < UNIX_TIMESTAMP(NOW(3)) \
       AND ((due_at = CAST(? AS SIGNED) / 1000 AND id > ?) OR due_at > CAST(? AS SIGNED) / 1000) \
     ORDER BY due_at, id LIMIT ?";

/// `scan`, overdue and free, the newest first. Range on `ix_due`, backwards.
pub const SCAN_OVERDUE_NEWEST: &str = "SELECT id, `key`, CAST(end_time * 1000 AS SIGNED) AS end_ms, CAST(due_at * 1000 AS SIGNED) AS due_ms \
     FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = 0 AND sts = 0 AND due_at <= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000 AND lease_until < UNIX_TIMESTAMP(NOW(3)) \
       AND ((due_at = CAST(? AS SIGNED) / 1000 AND id < ?) OR due_at < CAST(? AS SIGNED) / 1000) \
     ORDER BY due_at DESC, id DESC LIMIT ?";

/// `scan`, due from now until the horizon; `sts` is 0 for live rows and 1 for those a legacy program
/// has deleted. Range on `ix_due`.
pub const SCAN_AHEAD: &str = "SELECT id, `key`, CAST(end_time * 1000 AS SIGNED) AS end_ms, CAST(due_at * 1000 AS SIGNED) AS due_ms \
     FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = 0 AND sts = ? AND due_at > UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000 \
       AND due_at <= UNIX_TIMESTAMP(NOW(3)) + CAST(? AS SIGNED) / 1000 \
       AND ((due_at = CAST(? AS SIGNED) / 1000 AND id > ?) OR due_at > CAST(? AS SIGNED) / 1000) \
     ORDER BY due_at, id LIMIT ?";

/// `scan_news`: as [`SCAN_AHEAD`] of live rows, what the index alone says. Range on `ix_due`, which covers it.
///
/// The buckets come first: an entry of another daemon is then passed by without any arithmetic on its times.
pub const GLANCE_AHEAD: &str = "SELECT id, CAST(due_at * 1000 AS SIGNED) AS due_ms \
     FROM `{t}` FORCE INDEX (ix_due) \
     WHERE ASCII(SUBSTRING(?, (bucket >> 3) + 1, 1)) & (1 << (bucket & 7)) \
       AND status = 0 AND sts = 0 AND due_at > UNIX_TIMESTAMP(NOW(3)) \
       AND due_at <= UNIX_TIMESTAMP(NOW(3)) + CAST(? AS SIGNED) / 1000 \
       AND ((due_at = CAST(? AS SIGNED) / 1000 AND id > ?) OR due_at > CAST(? AS SIGNED) / 1000) \
     ORDER BY due_at, id LIMIT ?";

/// `scan_news`: as [`SCAN_OVERDUE_OLDEST`], what the index alone says, leased or not. Range on `ix_due`, which covers it.
pub const GLANCE_OVERDUE_OLDEST: &str = "SELECT id, CAST(due_at * 1000 AS SIGNED) AS due_ms \
     FROM `{t}` FORCE INDEX (ix_due) \
     WHERE ASCII(SUBSTRING(?, (bucket >> 3) + 1, 1)) & (1 << (bucket & 7)) \
       AND status = 0 AND sts = 0 AND due_at <= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000 \
       AND ((due_at = CAST(? AS SIGNED) / 1000 AND id > ?) OR due_at > CAST(? AS SIGNED) / 1000) \
     ORDER BY due_at, id LIMIT ?";

/// `scan_news`: as [`GLANCE_OVERDUE_OLDEST`], the newest first. Range on `ix_due`, backwards.
pub const GLANCE_OVERDUE_NEWEST: &str = "SELECT id, CAST(due_at * 1000 AS SIGNED) AS due_ms \
     FROM `{t}` FORCE INDEX (ix_due) \
     WHERE ASCII(SUBSTRING(?, (bucket >> 3) + 1, 1)) & (1 << (bucket & 7)) \
       AND status = 0 AND sts = 0 AND due_at <= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000 \
       AND ((due_at = CAST(? AS SIGNED) / 1000 AND id < ?) OR due_at < CAST(? AS SIGNED) / 1000) \
     ORDER BY due_at DESC, id DESC LIMIT ?";

/// `scan_news`: the rows that were not known, if they are still pending. Primary key.
pub const UPCOMING: &str = "SELECT id, `key`, CAST(end_time * 1000 AS SIGNED) AS end_ms, CAST(due_at * 1000 AS SIGNED) AS due_ms \
     FROM `{t}` FORCE INDEX (PRIMARY) WHERE id IN ({ids}) AND status = 0 AND sts = 0";
