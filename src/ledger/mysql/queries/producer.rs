//! Statements of producers: create, cancel, reschedule, series.

/// `create`: inserts, or turns the row of the key into the arming that is asked for. Unique key.
///
/// A row with the same `end_time` is left as it is unless it was cancelled, because a repeated
/// request must not run a task twice. A live lease stays where it is: the run in progress is fenced
/// by the new `end_time`, and nobody else may start before it ends. `run_end = 0` makes the counters
/// of the older arming void.
///
/// `{displaces}` is whether the row gives way, by the policy of the statement; `{moves}` asks the same again behind the
/// first assignment.
pub const CREATE: &str = "INSERT INTO `{t}` (`key`, start_time, end_time, max_attempts, tag, payload, recurrence, status, sts, retry_at, changed_at) \
     VALUES {rows} \
     ON DUPLICATE KEY UPDATE \
       retry_at = IF({displaces}, VALUES(retry_at), retry_at), \
       start_time = IF({moves}, VALUES(start_time), start_time), \
       changed_at = IF({moves} OR (end_time = VALUES(end_time) AND status = 0), VALUES(changed_at), changed_at), \
       run_end = IF({moves}, 0, run_end), \
       attempt = IF({moves}, 0, attempt), \
       crashes = IF({moves}, 0, crashes), \
       max_attempts = IF({moves}, VALUES(max_attempts), max_attempts), \
       adopted = IF({moves}, 0, adopted), \
       tag = IF({moves}, VALUES(tag), tag), \
       payload = IF({moves}, VALUES(payload), payload), \
       last_error = IF({moves}, NULL, last_error), \
       reason = IF({moves}, NULL, reason), \
       history = IF({moves}, NULL, history), \
       result = IF({moves}, NULL, result), \
       recurrence = IF({moves}, VALUES(recurrence), recurrence), \
       finished_at = IF({moves} OR (end_time = VALUES(end_time) AND status = 0), NULL, finished_at), \
       sts = IF({moves} OR (end_time = VALUES(end_time) AND status = 0), 0, sts), \
       status = IF({moves}, 0, status), \
       end_time = IF({moves}, VALUES(end_time), end_time)";

/// When a row gives way under [`IfPending::Move`](crate::ledger::IfPending::Move). It can be asked again behind any assignment but the last: `status` and
/// `end_time` are the last two, and a row that was cancelled with the same `end_time` has that already.
pub(super) const MOVES: &str = "end_time <> VALUES(end_time) OR status = 3";

/// The same under [`IfPending::Keep`](crate::ledger::IfPending::Keep): not if it is pending, and not being run.
pub(super) const DISPLACES_KEPT: &str = "status = 3 OR (end_time <> VALUES(end_time) AND NOT (status = 0 AND sts = 0 \
       AND NOT (run_end = end_time AND lease_until >= UNIX_TIMESTAMP(NOW(3)))))";

/// The same under [`IfPending::Refuse`](crate::ledger::IfPending::Refuse): not if it is pending or being run.
pub(super) const DISPLACES_REFUSED: &str = "status = 3 OR (end_time <> VALUES(end_time) AND NOT (status = 0 \
       AND (sts = 0 OR lease_until >= UNIX_TIMESTAMP(NOW(3)))))";

/// Under these two the answer is kept in `retry_at`, which means nothing while `run_end` is 0: a number that no row had
/// before, negative and so no time, says that this statement has displaced this row.
pub(super) const MARKED: &str = "retry_at = VALUES(retry_at)";

/// One row of [`CREATE`]; `{mark}` is what `retry_at` becomes. `start_time` is the caller's reading of the clock, so
/// `changed_at` is never before it: a row whose `start_time` is later was written by a program that does not know the column.
pub const CREATE_ROW: &str = "(?, CAST(? AS SIGNED) / 1000, CAST(? AS SIGNED) / 1000, ?, ?, ?, ?, 0, 0, {mark}, GREATEST(UNIX_TIMESTAMP(NOW(3)), start_time))";

/// `series`: where a key stands, and how it comes again. Unique key.
pub const SERIES: &str = "SELECT `key`, id, CAST(end_time * 1000 AS SIGNED) AS end_ms, CAST(due_at * 1000 AS SIGNED) AS due_ms, \
       CAST(status AS SIGNED) AS status, CAST(sts AS SIGNED) AS sts, \
       CAST(lease_until >= UNIX_TIMESTAMP(NOW(3)) AS SIGNED) AS leased, \
       CAST(run_end = end_time AND retry_at > UNIX_TIMESTAMP(NOW(3)) AS SIGNED) AS waiting, \
       CAST(run_end <> end_time AS SIGNED) AS older_run, CAST(adopted AS SIGNED) AS adopted, CAST(start_time * 1000 AS SIGNED) AS start_ms, \
       CAST(changed_at * 1000 AS SIGNED) AS changed_ms, CAST(finished_at * 1000 AS SIGNED) AS finished_ms, \
       recurrence, payload, tag, CAST(max_attempts AS SIGNED) AS max_attempts \
     FROM `{t}` WHERE `key` = ?";

/// `write_series` of a key without a row. Whoever has inserted it meanwhile wins: error 1062 is an answer. Unique key.
pub const SERIES_NEW: &str = "INSERT INTO `{t}` (`key`, start_time, end_time, max_attempts, tag, payload, recurrence, status, sts, changed_at) \
     VALUES (?, CAST(? AS SIGNED) / 1000, CAST(? AS SIGNED) / 1000, ?, ?, ?, ?, 0, 0, GREATEST(UNIX_TIMESTAMP(NOW(3)), start_time))";

/// `write_series` of a row that still is what was seen, which stays the same arming. Primary key.
pub const SERIES_SAME: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET max_attempts = ?, tag = ?, payload = ?, recurrence = ?, adopted = 0, changed_at = UNIX_TIMESTAMP(NOW(3)), \
       end_time = CAST(? AS SIGNED) / 1000 \
     WHERE id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND status = ? AND sts = ? AND recurrence <=> ? \
       AND (lease_until >= UNIX_TIMESTAMP(NOW(3))) = ?";

/// `write_series` of a row that still is what was seen, and becomes another arming. Primary key.
pub const SERIES_OVER: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET max_attempts = ?, tag = ?, payload = ?, recurrence = ?, adopted = 0, changed_at = UNIX_TIMESTAMP(NOW(3)), \
       start_time = UNIX_TIMESTAMP(NOW(3)), run_end = 0, retry_at = 0, attempt = 0, crashes = 0, last_error = NULL, reason = NULL, \
       history = NULL, result = NULL, finished_at = NULL, end_time = CAST(? AS SIGNED) / 1000, sts = 0, status = 0 \
     WHERE id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND status = ? AND sts = ? AND recurrence <=> ? \
       AND (lease_until >= UNIX_TIMESTAMP(NOW(3))) = ?";

/// `mark_configured`: of a row whose recurrence still is what was seen. Primary key.
pub const MARK_CONFIGURED: &str =
    "UPDATE `{t}` FORCE INDEX (PRIMARY) SET recurrence = ? WHERE id = ? AND recurrence = ?";

/// `cancel`: what is not running is cancelled; what runs gets `sts = 1` and no further attempt. A
/// lease that ran out counts as not running, and its owner goes, so that a frozen run is fenced. `finished_at` of what runs
/// tells the cancellation from a deletion by a program that knows only the first six columns ([`UNDELETE`](super::UNDELETE)). Unique key.
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

/// `cancel_page`: which of these rows are neither finished nor called off by us. The last value is the tag, twice, or
/// null for any. Primary key.
pub const CANCELLABLE: &str = "SELECT id, `key`, CAST(lease_until >= UNIX_TIMESTAMP(NOW(3)) AS SIGNED) AS leased \
     FROM `{t}` FORCE INDEX (PRIMARY) WHERE id IN ({ids}) AND status = 0 AND (? IS NULL OR tag = ?)";

/// `cancel_page`: as [`CANCEL`], by rows. Primary key.
pub const CANCEL_ROWS: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET sts = 1, changed_at = UNIX_TIMESTAMP(NOW(3)), finished_at = UNIX_TIMESTAMP(NOW(3)), \
       owner = IF(lease_until < UNIX_TIMESTAMP(NOW(3)), NULL, owner), \
       status = IF(lease_until < UNIX_TIMESTAMP(NOW(3)), 3, 0), \
       lease_until = IF(lease_until < UNIX_TIMESTAMP(NOW(3)), 0, lease_until) \
     WHERE id IN ({ids}) AND status = 0 AND (? IS NULL OR tag = ?)";

/// `cancel_page`, of a tag: as [`CANCEL_ROWS`], without a look at the rows before it. A token that nobody has fences a
/// frozen run as well as none does, and says afterwards which ones these were. Primary key.
pub const CANCEL_TAGGED: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET sts = 1, changed_at = UNIX_TIMESTAMP(NOW(3)), finished_at = UNIX_TIMESTAMP(NOW(3)), \
       owner = IF(lease_until < UNIX_TIMESTAMP(NOW(3)), ?, owner), \
       status = IF(lease_until < UNIX_TIMESTAMP(NOW(3)), 3, 0), \
       lease_until = IF(lease_until < UNIX_TIMESTAMP(NOW(3)), 0, lease_until) \
     WHERE id IN ({ids}) AND status = 0 AND tag = ?";

/// `cancel_page`, of a tag: which ones were called off. Primary key.
pub const CANCELLED_AS: &str =
    "SELECT id, `key` FROM `{t}` FORCE INDEX (PRIMARY) WHERE id IN ({ids}) AND owner = ?";

/// `cancel_page`: those of these rows that are not cancelled now, which are few. Primary key.
pub const NOT_CANCELLED: &str = "SELECT id, CAST(status AS SIGNED) AS status, CAST(sts AS SIGNED) AS sts, \
       CAST(lease_until >= UNIX_TIMESTAMP(NOW(3)) AS SIGNED) AS leased \
     FROM `{t}` FORCE INDEX (PRIMARY) WHERE id IN ({ids}) AND status <> 3";

/// `reschedule`: only what is pending. A series remembers which occurrence it was that was moved first. Unique key.
pub const RESCHEDULE: &str = "UPDATE `{t}` IGNORE INDEX (ix_due) SET \
       recurrence = IF(JSON_VALID(recurrence), JSON_INSERT(recurrence, '$.moved_from', CAST(end_time * 1000 AS SIGNED)), recurrence), \
       end_time = CAST(? AS SIGNED) / 1000, run_end = 0, retry_at = 0, attempt = 0, crashes = 0, \
       last_error = NULL, history = NULL, adopted = 0, changed_at = UNIX_TIMESTAMP(NOW(3)) \
     WHERE `key` = ? AND status = 0 AND sts = 0 AND lease_until < UNIX_TIMESTAMP(NOW(3))";
