//! Statements of moves between ledgers. `{held}` is true of a row whose lease has no end, and `{token}` is the owner token of
//! a row that is held for its present arming. `{tokens}` are those of the tasks that are asked about.

/// `{held}`.
pub(super) const HELD: &str = "(status = 0 AND lease_until = 9999999999.999)";

/// `{token}`: as `hold_token` computes it.
pub(super) const TOKEN: &str = "UNHEX(LEFT(SHA2(CONCAT(CAST(end_time * 1000 AS SIGNED), ' ', CONVERT(`key` USING utf8mb4)), 256), 32))";

/// Whole rows. [`WHOLE_PAGE`] or [`WHOLE_KEYS`] follows.
pub const WHOLE: &str = "SELECT id, `key`, CAST(status AS SIGNED) AS status, CAST(sts AS SIGNED) AS sts, \
       CAST(start_time * 1000 AS SIGNED) AS start_ms, CAST(end_time * 1000 AS SIGNED) AS end_ms, CAST(due_at * 1000 AS SIGNED) AS due_ms, \
       owner, daemon, CAST(lease_until * 1000 AS SIGNED) AS lease_ms, CAST(run_end * 1000 AS SIGNED) AS run_end_ms, \
       CAST(retry_at * 1000 AS SIGNED) AS retry_ms, CAST(attempt AS SIGNED) AS attempt, CAST(crashes AS SIGNED) AS crashes, \
       CAST(max_attempts AS SIGNED) AS max_attempts, CAST(adopted AS SIGNED) AS adopted, tag, payload, recurrence, last_error, reason, \
       history, result, CAST(finished_at * 1000 AS SIGNED) AS finished_ms, CAST(changed_at * 1000 AS SIGNED) AS changed_ms, \
       CAST(claimed_at * 1000 AS SIGNED) AS claimed_ms FROM `{t}`";

/// `rows`: a page of one status. Range on `ix_due`.
pub const WHOLE_PAGE: &str = " FORCE INDEX (ix_due) WHERE status = ? AND sts = ? \
       AND ((due_at = CAST(? AS SIGNED) / 1000 AND id > ?) OR due_at > CAST(? AS SIGNED) / 1000) ORDER BY due_at, id LIMIT ?";

/// `stage`, `copy`: the rows of these keys. Unique key.
pub const WHOLE_KEYS: &str = " FORCE INDEX (uk_key) WHERE `key` IN ({keys})";

/// `stage`, `copy`: new rows. Leaves a row that another session has written meanwhile. Unique key.
pub const INSERT_WHOLE: &str = "INSERT INTO `{t}` (`key`, status, sts, start_time, end_time, owner, daemon, lease_until, run_end, retry_at, \
       attempt, crashes, max_attempts, adopted, tag, payload, recurrence, last_error, reason, history, result, finished_at, changed_at, claimed_at) \
     VALUES {rows} ON DUPLICATE KEY UPDATE id = id";

/// One row of [`INSERT_WHOLE`].
pub(super) const WHOLE_ROW: &str = "(?, ?, ?, CAST(? AS SIGNED) / 1000, CAST(? AS SIGNED) / 1000, ?, ?, CAST(? AS SIGNED) / 1000, \
     CAST(? AS SIGNED) / 1000, CAST(? AS SIGNED) / 1000, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, CAST(? AS SIGNED) / 1000, CAST(? AS SIGNED) / 1000, CAST(? AS SIGNED) / 1000)";

/// `stage`: over a row that has not changed since it was read. Primary key.
pub const UPDATE_WHOLE: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET `key` = ?, status = ?, sts = ?, start_time = CAST(? AS SIGNED) / 1000, \
       end_time = CAST(? AS SIGNED) / 1000, owner = ?, daemon = ?, lease_until = CAST(? AS SIGNED) / 1000, run_end = CAST(? AS SIGNED) / 1000, \
       retry_at = CAST(? AS SIGNED) / 1000, attempt = ?, crashes = ?, max_attempts = ?, adopted = ?, tag = ?, payload = ?, recurrence = ?, \
       last_error = ?, reason = ?, history = ?, result = ?, finished_at = CAST(? AS SIGNED) / 1000, changed_at = CAST(? AS SIGNED) / 1000, claimed_at = CAST(? AS SIGNED) / 1000 \
     WHERE id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND status = ? AND sts = ? AND owner <=> ? \
       AND changed_at = CAST(? AS SIGNED) / 1000 AND lease_until = CAST(? AS SIGNED) / 1000 \
       AND attempt = ? AND retry_at = CAST(? AS SIGNED) / 1000";

/// `stage`, `freeze`: which of these tasks are held. Unique key.
pub const HELD_KEYS: &str = "SELECT `key`, id FROM `{t}` FORCE INDEX (uk_key) \
     WHERE `key` IN ({keys}) AND {held} AND owner = {token} AND owner IN ({tokens})";

/// `freeze`: rows that are free and have not changed since they were read. Primary key.
pub const FREEZE: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET owner = {token}, daemon = 'lapsed move', lease_until = 9999999999.999 \
     WHERE id IN ({ids}) AND (id, start_time, end_time, changed_at, run_end, retry_at, attempt) IN ({marks}) \
       AND status = 0 AND sts = 0 AND lease_until < UNIX_TIMESTAMP(NOW(3))";

/// One of the `{marks}` of [`FREEZE`].
pub(super) const MARK: &str = "(?, CAST(? AS SIGNED) / 1000, CAST(? AS SIGNED) / 1000, CAST(? AS SIGNED) / 1000, CAST(? AS SIGNED) / 1000, CAST(? AS SIGNED) / 1000, ?)";

/// `admit`: ends the hold of rows, also of those that were created over held ones. A cancellation that was requested
/// meanwhile takes effect. Unique key.
pub const END_HOLD: &str = "UPDATE `{t}` FORCE INDEX (uk_key) SET changed_at = changed_at + 0.001, owner = IF(sts = 1, NULL, owner), \
       finished_at = IF(sts = 1, COALESCE(finished_at, UNIX_TIMESTAMP(NOW(3))), finished_at), lease_until = 0, status = IF(sts = 1, 3, 0) \
     WHERE `key` IN ({keys}) AND {held} AND (owner IN ({tokens}) OR NOT (owner <=> {token}))";

/// `unstage`, `give_up`: as [`END_HOLD`], of rows that were created over held ones. Unique key.
pub const END_OTHER_HOLD: &str = "UPDATE `{t}` FORCE INDEX (uk_key) SET owner = IF(sts = 1, NULL, owner), \
       finished_at = IF(sts = 1, COALESCE(finished_at, UNIX_TIMESTAMP(NOW(3))), finished_at), lease_until = 0, status = IF(sts = 1, 3, 0) \
     WHERE `key` IN ({keys}) AND {held} AND NOT (owner <=> {token})";

/// `give_up`: frozen rows that were cancelled. Unique key.
pub const END_CANCELLED_HOLD: &str = "UPDATE `{t}` FORCE INDEX (uk_key) SET owner = NULL, finished_at = COALESCE(finished_at, UNIX_TIMESTAMP(NOW(3))), \
       lease_until = 0, status = 3 WHERE `key` IN ({keys}) AND {held} AND sts = 1 AND owner = {token} AND owner IN ({tokens})";

/// `admit`: rows that were unstaged by another process, although they are frozen. Unique key.
pub const REVIVE: &str = "UPDATE `{t}` FORCE INDEX (uk_key) SET changed_at = changed_at + 0.001, sts = 0, finished_at = NULL, status = 0 \
     WHERE `key` IN ({keys}) AND status = 3 AND daemon = 'lapsed move' AND owner = {token} AND owner IN ({tokens})";

/// `admit`: rows that are pending already. Run it before [`REVIVE`] and [`END_HOLD`], which mark their rows themselves. Unique key.
pub const MARK_ADMITTED: &str = "UPDATE `{t}` FORCE INDEX (uk_key) SET changed_at = changed_at + 0.001 \
     WHERE `key` IN ({keys}) AND status = 0 AND NOT {held} AND {token} IN ({tokens})";

/// `unstage`: rows that are held for their present arming. Unique key.
pub const UNSTAGE: &str = "UPDATE `{t}` FORCE INDEX (uk_key) SET sts = 1, finished_at = UNIX_TIMESTAMP(NOW(3)), lease_until = 0, status = 3 \
     WHERE `key` IN ({keys}) AND {held} AND owner = {token} AND owner IN ({tokens})";

/// `give_up`: frozen rows, with the note as their result. Unique key.
pub const GIVE_UP: &str = "UPDATE `{t}` FORCE INDEX (uk_key) SET result = ?, finished_at = UNIX_TIMESTAMP(NOW(3)), changed_at = UNIX_TIMESTAMP(NOW(3)), \
       lease_until = 0, status = 1 WHERE `key` IN ({keys}) AND {held} AND sts = 0 AND owner = {token} AND owner IN ({tokens})";
