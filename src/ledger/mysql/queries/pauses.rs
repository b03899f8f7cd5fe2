//! Statements of pauses.

/// `pauses`: everything that stands, the oldest first. Asked each second by every daemon, so the table is small.
pub const PAUSES: &str = "SELECT kind, class, method, CAST(since * 1000 AS SIGNED) AS since_ms, \
       CAST(due_before * 1000 AS SIGNED) AS due_before_ms, set_by, reason \
     FROM `{t}_pauses` ORDER BY since, kind, class, method";

/// `pauses`: one of them. Primary key.
pub const PAUSE: &str = "SELECT kind, class, method, CAST(since * 1000 AS SIGNED) AS since_ms, \
       CAST(due_before * 1000 AS SIGNED) AS due_before_ms, set_by, reason \
     FROM `{t}_pauses` WHERE kind = ? AND class = ? AND method = ?";

/// `set`: whoever was first stands: error 1062 is an answer.
pub const SET_PAUSE: &str = "INSERT INTO `{t}_pauses` (kind, class, method, since, set_by, reason) \
     VALUES ('pause', ?, ?, UNIX_TIMESTAMP(NOW(3)), ?, ?)";

/// `lift`. Primary key.
pub const LIFT_PAUSE: &str =
    "DELETE FROM `{t}_pauses` WHERE kind = 'pause' AND class = ? AND method = ?";

/// `hold`: the moment is the database's. As [`SET_PAUSE`] otherwise.
pub const SET_HOLD: &str = "INSERT INTO `{t}_pauses` (kind, class, method, since, due_before, set_by, reason) \
     VALUES ('hold', '', '', UNIX_TIMESTAMP(NOW(3)), UNIX_TIMESTAMP(NOW(3)), ?, ?)";

/// `release` of some: only while there is a hold, since it must not say anything about the next one.
pub const RELEASE_SOME: &str = "INSERT INTO `{t}_pauses` (kind, class, method, since, set_by, reason) \
     SELECT 'release', ?, ?, UNIX_TIMESTAMP(NOW(3)), ?, '' FROM `{t}_pauses` WHERE kind = 'hold'";

/// `release` of everything: the hold, and what was let go of it before.
pub const RELEASE_ALL: &str = "DELETE FROM `{t}_pauses` WHERE kind IN ('hold', 'release')";

/// `count_overdue`. Range on `ix_due`, which covers it.
pub const COUNT_OVERDUE: &str = "SELECT COUNT(*) FROM (SELECT id FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = 0 AND sts = 0 AND due_at < CAST(? AS SIGNED) / 1000 LIMIT ?) AS overdue";

/// `scan_unpaused`, the oldest first, and `scan_leases`: how far so many rows go, paused or not. Range on `ix_due`, which covers it, since a
/// lease is not asked for.
pub const STRETCH_OLDEST: &str = "SELECT id, CAST(due_at * 1000 AS SIGNED) AS due_ms FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = 0 AND sts = 0 AND due_at <= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000 \
       AND due_at >= CAST(? AS SIGNED) / 1000 AND (due_at > CAST(? AS SIGNED) / 1000 OR id > ?) \
     ORDER BY due_at, id LIMIT ?, 1";

/// `scan_unpaused`, the newest first. As [`STRETCH_OLDEST`], backwards.
pub const STRETCH_NEWEST: &str = "SELECT id, CAST(due_at * 1000 AS SIGNED) AS due_ms FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = 0 AND sts = 0 AND due_at <= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000 \
       AND due_at <= CAST(? AS SIGNED) / 1000 AND (due_at < CAST(? AS SIGNED) / 1000 OR id < ?) \
     ORDER BY due_at DESC, id DESC LIMIT ?, 1";

/// `scan_unpaused`, the oldest first: as [`SCAN_OVERDUE_OLDEST`](super::SCAN_OVERDUE_OLDEST) to the end of the stretch, without what is paused or
/// held. `{names}` and `{released}` are classes and `Class@method`s. Range on `ix_due`.
pub const UNPAUSED_OLDEST: &str = "SELECT id, `key`, CAST(end_time * 1000 AS SIGNED) AS end_ms, CAST(due_at * 1000 AS SIGNED) AS due_ms \
     FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = 0 AND sts = 0 AND due_at <= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000 AND lease_until < UNIX_TIMESTAMP(NOW(3)) \
       AND due_at >= CAST(? AS SIGNED) / 1000 AND (due_at > CAST(? AS SIGNED) / 1000 OR id > ?) \
       AND due_at <= CAST(? AS SIGNED) / 1000 AND (due_at < CAST(? AS SIGNED) / 1000 OR id <= ?) \
       AND {unpaused} \
     ORDER BY due_at, id LIMIT ?";

/// `scan_unpaused`, the newest first. As [`UNPAUSED_OLDEST`], backwards.
pub const UNPAUSED_NEWEST: &str = "SELECT id, `key`, CAST(end_time * 1000 AS SIGNED) AS end_ms, CAST(due_at * 1000 AS SIGNED) AS due_ms \
     FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = 0 AND sts = 0 AND due_at <= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000 AND lease_until < UNIX_TIMESTAMP(NOW(3)) \
       AND due_at <= CAST(? AS SIGNED) / 1000 AND (due_at < CAST(? AS SIGNED) / 1000 OR id < ?) \
       AND due_at >= CAST(? AS SIGNED) / 1000 AND (due_at > CAST(? AS SIGNED) / 1000 OR id >= ?) \
       AND {unpaused} \
     ORDER BY due_at DESC, id DESC LIMIT ?";

/// What may start: `{unpaused}` in [`UNPAUSED_OLDEST`]. Names are compared whole, so `Order` says nothing about `Orders`.
pub(super) const UNPAUSED: &str = "NOT (SUBSTRING_INDEX(`key`, '@', 1) IN ({names}) OR SUBSTRING_INDEX(`key`, '@', 2) IN ({names})) \
       AND (end_time >= CAST(? AS SIGNED) / 1000 \
         OR SUBSTRING_INDEX(`key`, '@', 1) IN ({released}) OR SUBSTRING_INDEX(`key`, '@', 2) IN ({released}))";
