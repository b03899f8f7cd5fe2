//! Statements of adoption: adopt, cancel by key, undelete.

/// `adopt` of a key without a row. One row only: a statement that waits for the lock of one row while it holds another's could
/// deadlock with a program that writes such rows in a transaction. First writer wins; duplicate key (1062) means that the
/// row exists already. Unique key.
pub const ADOPT_NEW: &str = "INSERT INTO `{t}` (`key`, start_time, end_time, status, sts, adopted, changed_at, payload) \
     VALUES (?, CAST(? AS SIGNED) / 1000, CAST(? AS SIGNED) / 1000, 0, 0, COALESCE(?, 1), start_time, ?)";

/// `adopt` of many keys, before [`ADOPT_MANY`]: returns the rows that exist, and fails at once where another session is
/// writing one. If a program's transaction had to wait for such a statement, the server could roll it back to end a
/// deadlock. Unique key.
pub const ADOPT_LOOK: &str =
    "SELECT id FROM `{t}` FORCE INDEX (uk_key) WHERE `key` IN ({keys}) FOR UPDATE NOWAIT";

/// `adopt` of many keys without rows, if [`ADOPT_LOOK`] has found nothing in the way: [`ADOPT_NEW`] for each, all or none.
/// Unique key.
pub const ADOPT_MANY: &str = "INSERT INTO `{t}` (`key`, start_time, end_time, status, sts, adopted, changed_at, payload) VALUES {rows}";
pub(super) const ADOPT_ROW: &str =
    "(?, CAST(? AS SIGNED) / 1000, CAST(? AS SIGNED) / 1000, 0, 0, COALESCE(?, 1), start_time, ?)";

/// `adopt` of a key whose row is another arming: as [`CREATE`](super::CREATE), if the row has not changed since the decision,
/// so that no acknowledged write is undone. `changed_at` becomes the time at which the key was armed, since later changes
/// override this one. A task that has not finished keeps tag, limit and, without a new one, payload; a finished one does not. A
/// series is moved as by [`RESCHEDULE`](super::RESCHEDULE). Primary key.
pub const ADOPT_OVER: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET \
       start_time = CAST(? AS SIGNED) / 1000, changed_at = CAST(? AS SIGNED) / 1000, run_end = 0, retry_at = 0, attempt = 0, crashes = 0, \
       adopted = COALESCE(?, adopted), \
       max_attempts = IF(status = 0, max_attempts, NULL), tag = IF(status = 0, tag, NULL), payload = COALESCE(?, IF(status = 0, payload, NULL)), \
       recurrence = IF(status = 0, IF(JSON_VALID(recurrence), JSON_INSERT(recurrence, '$.moved_from', CAST(end_time * 1000 AS SIGNED)), recurrence), NULL), reason = NULL, history = NULL, result = NULL, \
       last_error = NULL, finished_at = NULL, sts = 0, status = 0, end_time = CAST(? AS SIGNED) / 1000 \
     WHERE id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND status = ? AND (status > 0 OR sts = ?) \
       AND changed_at = CAST(? AS SIGNED) / 1000 AND start_time = CAST(? AS SIGNED) / 1000 \
       AND (lease_until >= UNIX_TIMESTAMP(NOW(3))) = ?";

/// `cancel_by_key`: cancels an adopted task whose key was deleted, if it is not about to fall due (with 0 ms ahead: also if it is due) and has
/// not changed since it was looked up. `adopted = 2` records this: the next key of this name is a new one, whatever its time. A task that follows a run
/// is cancelled when that run ends, as by [`CANCEL`](super::CANCEL). A series outlives a key that has moved it. Primary key.
pub const CANCEL_BY_KEY: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET sts = 1, adopted = 2, \
       finished_at = GREATEST(changed_at, CAST(? AS SIGNED) / 1000), changed_at = GREATEST(changed_at, CAST(? AS SIGNED) / 1000), \
       owner = IF(lease_until < UNIX_TIMESTAMP(NOW(3)), NULL, owner), \
       status = IF(lease_until < UNIX_TIMESTAMP(NOW(3)), 3, 0), \
       lease_until = IF(lease_until < UNIX_TIMESTAMP(NOW(3)), 0, lease_until) \
     WHERE id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND adopted IN (1, 3) AND status = 0 AND sts = 0 AND recurrence IS NULL \
       AND changed_at = CAST(? AS SIGNED) / 1000 AND start_time = CAST(? AS SIGNED) / 1000 \
       AND (? = 0 OR due_at > UNIX_TIMESTAMP(NOW(3)) + CAST(? AS SIGNED) / 1000)";

/// `undelete`: a legacy program deleted the row, then armed the key again. Does not match a task that was cancelled during a
/// run whose daemon died: see `DELETED_BY_LAPSED`. Primary key.
pub const UNDELETE: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET sts = 0, finished_at = NULL \
     WHERE id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND status = 0 AND sts = 1 AND NOT {deleted_by_lapsed}";

/// True of a row that lapsed has marked as deleted: see `ENDED_BY_LAPSED`.
pub(super) const DELETED_BY_LAPSED: &str = "(sts = 1 AND {ended_by_lapsed})";

/// True if `finished_at` was written for this arming: a legacy program does not write it. The later of it and `changed_at` is
/// not before `start_time` then. Such a program writes `start_time` in whole seconds, and it may be slightly ahead of the
/// server's clock: what ended in the same second was before.
pub(super) const ENDED_BY_LAPSED: &str = "COALESCE(GREATEST(finished_at, changed_at) >= start_time + IF(start_time = FLOOR(start_time), 1, 0), 0)";
