//! Statements of pauses.

/// `pauses`: all whose end has not come, oldest first. Every daemon reads it each second, so the table is small.
pub const PAUSES: &str = "SELECT kind, class, method, CAST(since * 1000 AS SIGNED) AS since_ms, \
       CAST(due_before * 1000 AS SIGNED) AS due_before_ms, CAST(`until` * 1000 AS SIGNED) AS until_ms, set_by, reason \
     FROM `{t}_pauses` WHERE `until` IS NULL OR `until` > UNIX_TIMESTAMP(NOW(3)) ORDER BY since, kind, class, method";

/// `pause`, `hold_overdue`, `release`: one of them. Primary key.
pub const PAUSE: &str = "SELECT kind, class, method, CAST(since * 1000 AS SIGNED) AS since_ms, \
       CAST(due_before * 1000 AS SIGNED) AS due_before_ms, CAST(`until` * 1000 AS SIGNED) AS until_ms, set_by, reason \
     FROM `{t}_pauses` WHERE kind = ? AND class = ? AND method = ?";

/// `pause`. First writer wins; duplicate key (1062) means that the scope is paused already.
pub const SET_PAUSE: &str = "INSERT INTO `{t}_pauses` (kind, class, method, since, `until`, set_by, reason) \
     VALUES ('pause', ?, ?, UNIX_TIMESTAMP(NOW(3)), CAST(? AS SIGNED) / 1000, ?, ?)";

/// `pause` of what is paused: replaces the end. Not an UPDATE, so that those who pause need no further privilege. Primary key.
pub const SET_UNTIL: &str = "REPLACE INTO `{t}_pauses` (kind, class, method, since, due_before, `until`, set_by, reason) \
     SELECT kind, class, method, since, due_before, CAST(? AS SIGNED) / 1000, set_by, reason \
     FROM `{t}_pauses` WHERE kind = 'pause' AND class = ? AND method = ?";

/// `pause`, before anything else: deletes pauses whose end has come.
pub const DELETE_OVER: &str = "DELETE FROM `{t}_pauses` WHERE `until` <= UNIX_TIMESTAMP(NOW(3))";

/// `resume`. Primary key.
pub const LIFT_PAUSE: &str =
    "DELETE FROM `{t}_pauses` WHERE kind = 'pause' AND class = ? AND method = ?";

/// `hold_overdue`, by the database's clock. Otherwise as [`SET_PAUSE`].
pub const SET_HOLD: &str = "INSERT INTO `{t}_pauses` (kind, class, method, since, due_before, set_by, reason) \
     VALUES ('hold', '', '', UNIX_TIMESTAMP(NOW(3)), UNIX_TIMESTAMP(NOW(3)), ?, ?)";

/// `release` of a scope: only while there is a hold, since it must not apply to the next one.
pub const RELEASE_SOME: &str = "INSERT INTO `{t}_pauses` (kind, class, method, since, set_by, reason) \
     SELECT 'release', ?, ?, UNIX_TIMESTAMP(NOW(3)), ?, '' FROM `{t}_pauses` WHERE kind = 'hold'";

/// `release` of everything: deletes the hold and its releases.
pub const RELEASE_ALL: &str = "DELETE FROM `{t}_pauses` WHERE kind IN ('hold', 'release')";

/// `count_overdue`. Range on `ix_due`, which covers it.
pub const COUNT_OVERDUE: &str = "SELECT COUNT(*) FROM (SELECT id FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = 0 AND sts = 0 AND due_at < CAST(? AS SIGNED) / 1000 LIMIT ?) AS overdue";

/// `scan_unpaused`, oldest first, and `scan_leases`: the end of a page of this many rows, paused or not. Does not read leases,
/// so `ix_due` covers it. Range on `ix_due`.
pub const PAGE_END_OLDEST: &str = "SELECT id, CAST(due_at * 1000 AS SIGNED) AS due_ms FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = 0 AND sts = 0 AND due_at <= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000 \
       AND due_at >= CAST(? AS SIGNED) / 1000 AND (due_at > CAST(? AS SIGNED) / 1000 OR id > ?) \
     ORDER BY due_at, id LIMIT ?, 1";

/// `scan_unpaused`, newest first. As [`PAGE_END_OLDEST`], backwards.
pub const PAGE_END_NEWEST: &str = "SELECT id, CAST(due_at * 1000 AS SIGNED) AS due_ms FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = 0 AND sts = 0 AND due_at <= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000 \
       AND due_at <= CAST(? AS SIGNED) / 1000 AND (due_at < CAST(? AS SIGNED) / 1000 OR id < ?) \
     ORDER BY due_at DESC, id DESC LIMIT ?, 1";

/// `scan_unpaused`, oldest first: as [`SCAN_OVERDUE_OLDEST`](super::SCAN_OVERDUE_OLDEST) up to the end of the page, without
/// paused and held tasks. `{names}` and `{released}` are classes and `Class@method`s. Range on `ix_due`.
pub const UNPAUSED_OLDEST: &str = "SELECT id, `key`, CAST(end_time * 1000 AS SIGNED) AS end_ms, CAST(due_at * 1000 AS SIGNED) AS due_ms \
     FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = 0 AND sts = 0 AND due_at <= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000 AND lease_until < UNIX_TIMESTAMP(NOW(3)) \
       AND due_at >= CAST(? AS SIGNED) / 1000 AND (due_at > CAST(? AS SIGNED) / 1000 OR id > ?) \
       AND due_at <= CAST(? AS SIGNED) / 1000 AND (due_at < CAST(? AS SIGNED) / 1000 OR id <= ?) \
       AND {unpaused} \
     ORDER BY due_at, id LIMIT ?";

/// `scan_unpaused`, newest first. As [`UNPAUSED_OLDEST`], backwards.
pub const UNPAUSED_NEWEST: &str = "SELECT id, `key`, CAST(end_time * 1000 AS SIGNED) AS end_ms, CAST(due_at * 1000 AS SIGNED) AS due_ms \
     FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = 0 AND sts = 0 AND due_at <= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000 AND lease_until < UNIX_TIMESTAMP(NOW(3)) \
       AND due_at <= CAST(? AS SIGNED) / 1000 AND (due_at < CAST(? AS SIGNED) / 1000 OR id < ?) \
       AND due_at >= CAST(? AS SIGNED) / 1000 AND (due_at > CAST(? AS SIGNED) / 1000 OR id >= ?) \
       AND {unpaused} \
     ORDER BY due_at DESC, id DESC LIMIT ?";

/// `{unpaused}` in [`UNPAUSED_OLDEST`]: tasks that may start. Compares whole names, so `Order` does not match `Orders`.
pub(super) const UNPAUSED: &str = "NOT (SUBSTRING_INDEX(`key`, '@', 1) IN ({names}) OR SUBSTRING_INDEX(`key`, '@', 2) IN ({names})) \
       AND (end_time >= CAST(? AS SIGNED) / 1000 \
         OR SUBSTRING_INDEX(`key`, '@', 1) IN ({released}) OR SUBSTRING_INDEX(`key`, '@', 2) IN ({released}))";
