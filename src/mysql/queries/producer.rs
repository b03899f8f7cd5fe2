//! Statements of producers: create, cancel, reschedule, series.

/// `create`: inserts the row, or turns the row of the key into the requested arming. Unique key.
///
/// Leaves a row with the same `end_time` as it is, unless it was cancelled or the request differs: a repeated request must
/// not run a task twice.
/// Keeps a live lease: the run in progress is fenced by the new `end_time`, and no other run may start before it ends.
/// `run_end = 0` invalidates the counters of the older arming. A task that had runs in another system begins with their number.
///
/// `{displaces}` is true if the row gives way under the policy of the statement. `{moves}` repeats that condition behind the
/// first assignment, whether a server reads the values of before the statement there or those that were just assigned.
pub const CREATE: &str = "INSERT INTO `{t}` (`key`, start_time, end_time, max_attempts, tag, payload, recurrence, status, sts, retry_at, changed_at, attempt, run_end) \
     VALUES {rows} \
     ON DUPLICATE KEY UPDATE \
       retry_at = IF({displaces}, VALUES(retry_at), retry_at), \
       owner = IF({held} AND end_time = VALUES(end_time) AND ({moves}), NULL, owner), \
       start_time = IF({moves}, VALUES(start_time), start_time), \
       changed_at = IF({moves} OR (end_time = VALUES(end_time) AND status = 0), VALUES(changed_at), changed_at), \
       run_end = IF({moves}, VALUES(run_end), run_end), \
       attempt = IF({moves}, VALUES(attempt), attempt), \
       crashes = IF({moves}, 0, crashes), \
       adopted = IF({moves}, 0, adopted), \
       last_error = IF({moves}, NULL, last_error), \
       reason = IF({moves}, NULL, reason), \
       history = IF({moves}, NULL, history), \
       result = IF({moves}, NULL, result), \
       finished_at = IF({moves} OR (end_time = VALUES(end_time) AND status = 0), NULL, finished_at), \
       sts = IF({moves} OR (end_time = VALUES(end_time) AND status = 0), 0, sts), \
       recurrence = IF({moves}, VALUES(recurrence), recurrence), \
       max_attempts = IF({moves}, VALUES(max_attempts), max_attempts), \
       tag = IF({moves}, VALUES(tag), tag), \
       payload = IF({moves}, VALUES(payload), payload), \
       status = IF({moves}, 0, status), \
       end_time = IF({moves}, VALUES(end_time), end_time)";

/// True if a row gives way under [`IfPending::Move`](lapsed_core::ledger::IfPending::Move). May be evaluated after any assignment
/// but the last ones: `status` and `end_time` are assigned last, and a row that was cancelled with the same `end_time` keeps
/// it.
pub(super) const MOVES: &str = "end_time <> VALUES(end_time) OR status = 3";

/// As [`MOVES`], for a task that [replaces](lapsed_core::ledger::NewTask::replaces) one with the same due time and other contents,
/// unless that runs or has ended. The contents are assigned after all that depends on this, one after the other: when it
/// becomes false, the others are equal. `run_end` becomes 0, and then the row does not run.
pub(super) const REPLACES: &str = "end_time <> VALUES(end_time) OR status = 3 \
       OR (status = 0 AND NOT (run_end = end_time AND lease_until >= UNIX_TIMESTAMP(NOW(3)) AND NOT {held}) \
         AND NOT (tag <=> VALUES(tag) AND max_attempts <=> VALUES(max_attempts) AND (recurrence IS NULL) = (VALUES(recurrence) IS NULL) \
           AND {stored_after} <=> {new_after} AND {stored_contents} <=> {new_contents}))";

/// What has to end before the task starts, which an [`Envelope`](lapsed_core::task::Envelope) begins with; empty without any.
pub(super) const AFTER: &str =
    "IF({payload} LIKE '{\"$lapsed\":{\"after\":%', SUBSTRING_INDEX({payload}, '}', 1), '')";

/// The payload without what is around it, see [`Envelope`](lapsed_core::task::Envelope): both end in a brace.
/// Each request has its own trace.
pub(super) const CONTENTS: &str = "IF({payload} LIKE '{\"$lapsed\":%', \
       IF(LOCATE('},\"payload\":', {payload}), SUBSTRING({payload}, LOCATE('},\"payload\":', {payload}) + 12), NULL), CONCAT({payload}, '}'))";

/// The same under [`IfPending::Keep`](lapsed_core::ledger::IfPending::Keep): false if the row is pending and not running.
pub(super) const DISPLACES_KEPT: &str = "status = 3 OR (end_time <> VALUES(end_time) AND NOT (status = 0 AND sts = 0 \
       AND NOT (run_end = end_time AND lease_until >= UNIX_TIMESTAMP(NOW(3)))))";

/// The same under [`IfPending::Refuse`](lapsed_core::ledger::IfPending::Refuse): false if the row is pending or running.
pub(super) const DISPLACES_REFUSED: &str = "status = 3 OR (end_time <> VALUES(end_time) AND NOT (status = 0 \
       AND (sts = 0 OR lease_until >= UNIX_TIMESTAMP(NOW(3)))))";

/// Under these two policies, `retry_at` records the decision, since it has no meaning while `run_end` is 0: a negative number
/// that no row had before shows that this statement has displaced this row. A server that assigns from left to right has set it
/// by then; one that reads the values of before still finds the condition true.
pub(super) const MARKED: &str = "(retry_at = VALUES(retry_at) OR {displaces})";

/// One row of [`CREATE`]; `{mark}` becomes `retry_at`. `start_time` is the caller's estimate of the clock, and `changed_at` is
/// never before it: a row with a later `start_time` was written by a program that does not know the column.
pub const CREATE_ROW: &str = "(?, CAST(? AS SIGNED) / 1000, CAST(? AS SIGNED) / 1000, ?, ?, ?, ?, 0, 0, {mark}, GREATEST(UNIX_TIMESTAMP(NOW(3)), start_time), ?, IF(attempt > 0, end_time, 0))";

/// `series`: as [`LOOKUP`](super::LOOKUP) for one key, with its recurrence. Unique key.
pub const SERIES: &str = "SELECT `key`, id, CAST(end_time * 1000 AS SIGNED) AS end_ms, CAST(due_at * 1000 AS SIGNED) AS due_ms, \
       CAST(status AS SIGNED) AS status, CAST(sts AS SIGNED) AS sts, \
       CAST(lease_until >= UNIX_TIMESTAMP(NOW(3)) AS SIGNED) AS leased, \
       CAST(run_end = end_time AND retry_at > UNIX_TIMESTAMP(NOW(3)) AS SIGNED) AS waiting, \
       CAST(run_end <> end_time AS SIGNED) AS older_run, \
       CAST(run_end = end_time AND lease_until > 0 AS SIGNED) AS claimed, CAST({held} AS SIGNED) AS held, CAST(adopted AS SIGNED) AS adopted, CAST(start_time * 1000 AS SIGNED) AS start_ms, \
       CAST(changed_at * 1000 AS SIGNED) AS changed_ms, CAST(finished_at * 1000 AS SIGNED) AS finished_ms, \
       recurrence, payload, tag, CAST(max_attempts AS SIGNED) AS max_attempts \
     FROM `{t}` WHERE `key` = ?";

/// `write_series` of a key without a row. First writer wins; duplicate key (1062) means that the row exists already. Unique
/// key.
pub const SERIES_NEW: &str = "INSERT INTO `{t}` (`key`, start_time, end_time, max_attempts, tag, payload, recurrence, status, sts, changed_at) \
     VALUES (?, CAST(? AS SIGNED) / 1000, CAST(? AS SIGNED) / 1000, ?, ?, ?, ?, 0, 0, GREATEST(UNIX_TIMESTAMP(NOW(3)), start_time))";

/// `write_series` of a row that has not changed since it was read and keeps its arming. Primary key.
pub const SERIES_SAME: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET max_attempts = ?, tag = ?, payload = ?, recurrence = ?, adopted = 0, changed_at = UNIX_TIMESTAMP(NOW(3)), \
       end_time = CAST(? AS SIGNED) / 1000 \
     WHERE id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND status = ? AND sts = ? AND recurrence <=> ? \
       AND (lease_until >= UNIX_TIMESTAMP(NOW(3))) = ?";

/// `write_series` of a row that has not changed since it was read and becomes another arming. Primary key.
pub const SERIES_OVER: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET max_attempts = ?, tag = ?, payload = ?, recurrence = ?, adopted = 0, changed_at = UNIX_TIMESTAMP(NOW(3)), \
       start_time = UNIX_TIMESTAMP(NOW(3)), run_end = 0, retry_at = 0, attempt = 0, crashes = 0, last_error = NULL, reason = NULL, \
       history = NULL, result = NULL, finished_at = NULL, end_time = CAST(? AS SIGNED) / 1000, sts = 0, status = 0 \
     WHERE id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND status = ? AND sts = ? AND recurrence <=> ? \
       AND (lease_until >= UNIX_TIMESTAMP(NOW(3))) = ?";

/// `mark_configured`, if the recurrence has not changed since it was read. Primary key.
pub const MARK_CONFIGURED: &str =
    "UPDATE `{t}` FORCE INDEX (PRIMARY) SET recurrence = ? WHERE id = ? AND recurrence = ?";

/// `cancel`: cancels what is not running; a running task gets `sts = 1` and no further attempt. An expired lease counts as
/// not running, and loses its owner, so that a frozen run is fenced. `finished_at` of a running task tells the cancellation
/// from a deletion by a program that knows only the first six columns ([`UNDELETE`](super::UNDELETE)). Unique key.
pub const CANCEL: &str = "UPDATE `{t}` IGNORE INDEX (ix_due) SET sts = 1, changed_at = UNIX_TIMESTAMP(NOW(3)), finished_at = UNIX_TIMESTAMP(NOW(3)), \
       owner = IF(lease_until < UNIX_TIMESTAMP(NOW(3)), NULL, owner), \
       status = IF(lease_until < UNIX_TIMESTAMP(NOW(3)), 3, 0), \
       lease_until = IF(lease_until < UNIX_TIMESTAMP(NOW(3)), 0, lease_until) \
     WHERE `key` IN ({keys}) AND status = 0";

/// `cancel_page`: rows with a tag, from the end backwards. `ix_tag`, which covers it.
pub const IDS_OF_TAG: &str =
    "SELECT id FROM `{t}` FORCE INDEX (ix_tag) WHERE tag = ? AND id < ? ORDER BY id DESC LIMIT ?";

/// `cancel_page`: rows whose keys lie in a range, from the end backwards. Unique key, which covers it.
pub const IDS_OF_KEYS: &str = "SELECT id, `key` FROM `{t}` FORCE INDEX (uk_key) WHERE `key` >= ? AND `key` < ? ORDER BY `key` DESC LIMIT ?";

/// `cancel_page`: those of these rows that are not finished. The conditions of the filter follow. Primary key.
pub const CANCELLABLE: &str = "SELECT id, `key`, CAST(lease_until >= UNIX_TIMESTAMP(NOW(3)) AS SIGNED) AS leased \
     FROM `{t}` FORCE INDEX (PRIMARY) WHERE id IN ({ids}) AND status = 0";

/// `cancel_page`: as [`CANCEL`], by row. The conditions of the filter follow. Primary key.
pub const CANCEL_ROWS: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET sts = 1, changed_at = UNIX_TIMESTAMP(NOW(3)), finished_at = UNIX_TIMESTAMP(NOW(3)), \
       owner = IF(lease_until < UNIX_TIMESTAMP(NOW(3)), NULL, owner), \
       status = IF(lease_until < UNIX_TIMESTAMP(NOW(3)), 3, 0), \
       lease_until = IF(lease_until < UNIX_TIMESTAMP(NOW(3)), 0, lease_until) \
     WHERE id IN ({ids}) AND status = 0";

/// `cancel_page` of a tag: as [`CANCEL_ROWS`], without reading the rows before. The owner becomes a random token: it fences a
/// frozen run as no owner does, and marks the rows for [`CANCELLED_AS`]. Primary key.
pub const CANCEL_TAGGED: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET sts = 1, changed_at = UNIX_TIMESTAMP(NOW(3)), finished_at = UNIX_TIMESTAMP(NOW(3)), \
       owner = IF(lease_until < UNIX_TIMESTAMP(NOW(3)), ?, owner), \
       status = IF(lease_until < UNIX_TIMESTAMP(NOW(3)), 3, 0), \
       lease_until = IF(lease_until < UNIX_TIMESTAMP(NOW(3)), 0, lease_until) \
     WHERE id IN ({ids}) AND status = 0 AND tag = ?";

/// `cancel_page` of a tag: the rows that were cancelled. Primary key.
pub const CANCELLED_AS: &str =
    "SELECT id, `key` FROM `{t}` FORCE INDEX (PRIMARY) WHERE id IN ({ids}) AND owner = ?";

/// `cancel_page`: the few of these rows that are not cancelled now. Primary key.
pub const NOT_CANCELLED: &str = "SELECT id, CAST(status AS SIGNED) AS status, CAST(sts AS SIGNED) AS sts, \
       CAST(lease_until >= UNIX_TIMESTAMP(NOW(3)) AS SIGNED) AS leased \
     FROM `{t}` FORCE INDEX (PRIMARY) WHERE id IN ({ids}) AND status <> 3";

/// `reschedule` of a pending task, also of one whose key runs by an older arming. A series records which of its occurrences was moved first. Unique key.
pub const RESCHEDULE: &str = "UPDATE `{t}` IGNORE INDEX (ix_due) SET \
       recurrence = IF(JSON_VALID(recurrence), JSON_INSERT(recurrence, '$.moved_from', CAST(end_time * 1000 AS SIGNED)), recurrence), \
       end_time = CAST(? AS SIGNED) / 1000, run_end = 0, retry_at = 0, attempt = 0, crashes = 0, \
       last_error = NULL, history = NULL, finished_at = NULL, adopted = 0, changed_at = UNIX_TIMESTAMP(NOW(3)) \
     WHERE `key` = ? AND status = 0 AND sts = 0 AND (lease_until < UNIX_TIMESTAMP(NOW(3)) OR (run_end <> end_time AND NOT {held}))";
