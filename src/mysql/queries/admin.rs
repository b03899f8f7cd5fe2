//! Statements of administration: records, redrive, prune, statistics.

/// `run_now`: makes a pending task due. A series continues with the occurrence that was pending; this run is an additional
/// one. A task due before the time of the hold that keeps it back (0: there is none) becomes another arming, as a task due
/// later does. Lateness of an occurrence counts from `start_time` if that is later, since this run was requested now.
/// Unique key.
pub const RUN_NOW: &str = "UPDATE `{t}` IGNORE INDEX (ix_due) SET \
       start_time = IF(recurrence IS NULL, start_time, UNIX_TIMESTAMP(NOW(3))), changed_at = UNIX_TIMESTAMP(NOW(3)), \
       recurrence = IF(end_time > UNIX_TIMESTAMP(NOW(3)) AND JSON_VALID(recurrence), \
         JSON_INSERT(recurrence, '$.moved_from', CAST(end_time * 1000 AS SIGNED) - 1), recurrence), \
       adopted = IF(end_time > UNIX_TIMESTAMP(NOW(3)) OR end_time < CAST(? AS SIGNED) / 1000, 0, adopted), \
       end_time = IF(end_time < CAST(? AS SIGNED) / 1000, UNIX_TIMESTAMP(NOW(3)), LEAST(end_time, UNIX_TIMESTAMP(NOW(3)))), retry_at = 0 \
     WHERE `key` = ? AND status = 0 AND sts = 0 AND lease_until < UNIX_TIMESTAMP(NOW(3))";

/// `redrive`: dead to pending, with the same `end_time`, so with the same stable id. `start_time` becomes now: lateness,
/// deadline and expiry count from the later of the two. The task is due as of `REDRIVEN_AGO` ago at the latest, however old
/// `end_time` is: each sweep begins there, and does not have to pass an older backlog. Unique key.
pub const REDRIVE: &str = "UPDATE `{t}` IGNORE INDEX (ix_due) SET start_time = UNIX_TIMESTAMP(NOW(3)), changed_at = UNIX_TIMESTAMP(NOW(3)), \
       run_end = end_time, retry_at = GREATEST(end_time, UNIX_TIMESTAMP(NOW(3)) - {redriven_s}), attempt = 0, crashes = 0, reason = NULL, finished_at = NULL, sts = 0, status = 0, \
       adopted = IF(adopted = 3, 1, adopted) \
     WHERE `key` = ? AND status = 2";

/// `redrive_rows`: as [`REDRIVE`]. Primary key.
pub const REDRIVE_ROWS: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET start_time = UNIX_TIMESTAMP(NOW(3)), changed_at = UNIX_TIMESTAMP(NOW(3)), \
       run_end = end_time, retry_at = GREATEST(end_time, UNIX_TIMESTAMP(NOW(3)) - {redriven_s}), attempt = 0, crashes = 0, reason = NULL, finished_at = NULL, sts = 0, status = 0, \
       adopted = IF(adopted = 3, 1, adopted) \
     WHERE id IN ({ids}) AND status = 2";

/// `dead_keys`. Primary key.
pub const DEAD_KEYS: &str =
    "SELECT `key` FROM `{t}` FORCE INDEX (PRIMARY) WHERE id IN ({ids}) AND status = 2";

/// `discard_rows`. Primary key: a `DELETE` cannot name its index, and `status + 0` matches no index.
pub const DISCARD_ROWS: &str = "DELETE FROM `{t}` WHERE id IN ({ids}) AND status + 0 = 2";

/// `prune`: the next rows of a finished state in the order of `ix_due`, and whether each is old enough by age and as
/// surplus. Ends at rows that have not been due for long enough. Keeps the row of a series that a configuration wants
/// (`Recurrence::configured`): without it, the series would begin again. Range on
/// `ix_due`.
pub const FINISHED: &str = "SELECT id, `key`, CAST(due_at * 1000 AS SIGNED) AS due_ms, \
       CAST(COALESCE(finished_at, end_time) <= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000 AS SIGNED) AS old, \
       CAST(COALESCE(finished_at, end_time) <= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000 AS SIGNED) AS spare \
     FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = ? AND sts = ? AND due_at <= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000 \
       AND ((due_at = CAST(? AS SIGNED) / 1000 AND id > ?) OR due_at > CAST(? AS SIGNED) / 1000) \
       AND (recurrence IS NULL OR recurrence NOT LIKE '%\"standing\"%') \
     ORDER BY due_at, id LIMIT ?";

/// `end_cancelled`: the next deleted rows that are not finished, and whether each has a lease that has run out. Range on
/// `ix_due`.
pub const CANCELLED_RUNS: &str = "SELECT id, CAST(due_at * 1000 AS SIGNED) AS due_ms, \
       CAST(lease_until > 0 AND lease_until < UNIX_TIMESTAMP(NOW(3)) AS SIGNED) AS ran_out \
     FROM `{t}` FORCE INDEX (ix_due) WHERE status = 0 AND sts = 1 \
       AND due_at >= CAST(? AS SIGNED) / 1000 AND (due_at > CAST(? AS SIGNED) / 1000 OR id > ?) \
     ORDER BY due_at, id LIMIT ?";

/// `end_cancelled`: ends those of these rows that lapsed has cancelled during a run whose lease has run out. A frozen run is
/// fenced. Primary key.
pub const END_CANCELLED: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET status = 3, owner = NULL, lease_until = 0 \
     WHERE id IN ({ids}) AND status = 0 AND lease_until > 0 AND lease_until < UNIX_TIMESTAMP(NOW(3)) \
       AND {deleted_by_lapsed}";

/// What makes a row prunable: it is finished in this state, no configuration wants it, and it has been finished for this long.
/// `status + 0` matches no index.
pub(super) const PRUNABLE: &str = "status + 0 = ? \
       AND (recurrence IS NULL OR recurrence NOT LIKE '%\"standing\"%') \
       AND COALESCE(finished_at, end_time) <= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000";

/// `prune`: deletes rows that [`FINISHED`] found, if they are still finished and old enough. Primary key, as
/// [`DISCARD_ROWS`].
pub const PRUNE_ROWS: &str = "DELETE FROM `{t}` WHERE id IN ({ids}) AND {prunable}";

/// `surplus`: the row of a status that is this many places from the end. Counts the few ended series of configurations,
/// too. Range on `ix_due`, backwards, which covers it.
pub const FROM_END: &str = "SELECT id, CAST(due_at * 1000 AS SIGNED) AS due_ms FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = ? AND sts = ? AND ((due_at = CAST(? AS SIGNED) / 1000 AND id < ?) OR due_at < CAST(? AS SIGNED) / 1000) \
     ORDER BY due_at DESC, id DESC LIMIT ?, 1";

/// `surplus`: the number of rows of a status before this place, up to a limit. Range on `ix_due`, which covers it.
pub const COUNT_BEFORE: &str = "SELECT COUNT(*) FROM (SELECT id FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = ? AND sts = ? AND ((due_at = CAST(? AS SIGNED) / 1000 AND id < ?) OR due_at < CAST(? AS SIGNED) / 1000) LIMIT ?) AS counted";

/// `list` and `find`: whole rows. A list names its index, and appends its range and conditions.
pub const RECORD: &str = "SELECT id, `key`, CAST(start_time * 1000 AS SIGNED) AS start_ms, CAST(end_time * 1000 AS SIGNED) AS end_ms, \
       CAST(due_at * 1000 AS SIGNED) AS due_ms, CAST(status AS SIGNED) AS status, CAST(sts AS SIGNED) AS sts, \
       CAST(lease_until >= UNIX_TIMESTAMP(NOW(3)) AS SIGNED) AS leased, CAST(lease_until * 1000 AS SIGNED) AS lease_ms, \
       CAST(run_end = end_time AND retry_at > UNIX_TIMESTAMP(NOW(3)) AS SIGNED) AS waiting, \
       CAST(IF(run_end = end_time, attempt, 0) AS SIGNED) AS attempt, CAST(IF(run_end = end_time, crashes, 0) AS SIGNED) AS crashes, \
       CAST(max_attempts AS SIGNED) AS max_attempts, owner, daemon, {progress} AS progress, CAST(claimed_at * 1000 AS SIGNED) AS claimed_ms, tag, \
       IF(LENGTH(payload) <= {payload_max}, payload, CONCAT('\"(', LENGTH(payload), ' bytes, too many to read)\"')) AS payload, \
       recurrence, last_error, reason, history, result, \
       CAST(finished_at * 1000 AS SIGNED) AS finished_ms, CAST(adopted AS SIGNED) AS adopted \
     FROM `{t}`{index} WHERE ";

/// `list` without payloads. As [`RECORD`].
pub const RECORD_BRIEF: &str = "SELECT id, `key`, CAST(start_time * 1000 AS SIGNED) AS start_ms, CAST(end_time * 1000 AS SIGNED) AS end_ms, \
       CAST(due_at * 1000 AS SIGNED) AS due_ms, CAST(status AS SIGNED) AS status, CAST(sts AS SIGNED) AS sts, \
       CAST(lease_until >= UNIX_TIMESTAMP(NOW(3)) AS SIGNED) AS leased, CAST(lease_until * 1000 AS SIGNED) AS lease_ms, \
       CAST(run_end = end_time AND retry_at > UNIX_TIMESTAMP(NOW(3)) AS SIGNED) AS waiting, \
       CAST(IF(run_end = end_time, attempt, 0) AS SIGNED) AS attempt, CAST(IF(run_end = end_time, crashes, 0) AS SIGNED) AS crashes, \
       CAST(max_attempts AS SIGNED) AS max_attempts, owner, daemon, {progress} AS progress, CAST(claimed_at * 1000 AS SIGNED) AS claimed_ms, tag, \
       CAST(NULL AS CHAR) AS payload, \
       recurrence, last_error, reason, history, CAST(NULL AS CHAR) AS result, \
       CAST(finished_at * 1000 AS SIGNED) AS finished_ms, CAST(adopted AS SIGNED) AS adopted \
     FROM `{t}`{index} WHERE ";

/// `list`, `pick_dead`: the place of a row in an index, which covers it. Otherwise as [`RECORD`].
pub const PLACE: &str = "SELECT {columns} FROM `{t}`{index} WHERE ";

/// `find`. Unique key.
pub const RECORD_BY_KEY: &str = "`key` = ?";

/// `detailed_stats`, `overdue_for`: overdue rows without a lease, oldest first, and how long they have waited. Range on `ix_due`.
pub const OLDEST_OVERDUE: &str = "SELECT id, `key`, CAST(due_at * 1000 AS SIGNED) AS due_ms, \
       CAST((UNIX_TIMESTAMP(NOW(3)) - due_at) * 1000 AS SIGNED) AS overdue_ms \
     FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = 0 AND sts = 0 AND due_at <= UNIX_TIMESTAMP(NOW(3)) AND lease_until < UNIX_TIMESTAMP(NOW(3)) \
       AND ((due_at = CAST(? AS SIGNED) / 1000 AND id > ?) OR due_at > CAST(? AS SIGNED) / 1000) \
     ORDER BY due_at, id LIMIT ?";

/// `detailed_stats`: unfinished rows by class and method, earliest due time first. Range on `ix_due`.
pub const STATS_UNFINISHED: &str = "SELECT name, COUNT(*) AS looked_at, \
       CAST(SUM(NOT leased AND NOT waits) AS SIGNED) AS pending, CAST(SUM(NOT leased AND waits) AS SIGNED) AS waiting, \
       CAST(SUM(leased) AS SIGNED) AS running, CAST(SUM(NOT leased AND late >= 0) AS SIGNED) AS overdue, \
       CAST(MAX(IF(leased OR late < 0, 0, late)) * 1000 AS SIGNED) AS overdue_ms \
     FROM (SELECT SUBSTRING_INDEX(`key`, '@', 2) AS name, lease_until >= UNIX_TIMESTAMP(NOW(3)) AS leased, \
         run_end = end_time AND retry_at > UNIX_TIMESTAMP(NOW(3)) AS waits, UNIX_TIMESTAMP(NOW(3)) - due_at AS late \
       FROM `{t}` FORCE INDEX (ix_due) WHERE status = 0 AND sts = ? ORDER BY due_at, id LIMIT ?) AS looked \
     GROUP BY name";

/// `detailed_stats`: dead rows by class and method. Range on `ix_due`.
pub const STATS_DEAD: &str = "SELECT name, COUNT(*) AS dead \
     FROM (SELECT SUBSTRING_INDEX(`key`, '@', 2) AS name FROM `{t}` FORCE INDEX (ix_due) WHERE status = 2 LIMIT ?) AS looked \
     GROUP BY name";

/// `detailed_stats`: of the done rows that fell due last, the time from due to done of those that succeeded recently and at
/// the first attempt. Range on `ix_due`, backwards.
pub const STATS_DONE: &str = "SELECT name, CAST(GREATEST(took, 0) * 1000 AS SIGNED) AS took_ms \
     FROM (SELECT SUBSTRING_INDEX(`key`, '@', 2) AS name, attempt, finished_at, finished_at - GREATEST(end_time, start_time) AS took \
       FROM `{t}` FORCE INDEX (ix_due) WHERE status = 1 AND sts = 0 ORDER BY due_at DESC, id DESC LIMIT ?) AS latest \
     WHERE attempt = 1 AND finished_at >= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED)";

/// `forecast`: the number of pending rows by step of a range of due times, up to a limit. Range on `ix_due`, which covers it.
pub const COUNT_BY_DUE: &str = "SELECT (due_ms - CAST(? AS SIGNED)) DIV CAST(? AS SIGNED) AS step, COUNT(*) AS tasks \
     FROM (SELECT CAST(due_at * 1000 AS SIGNED) AS due_ms FROM `{t}` FORCE INDEX (ix_due) \
       WHERE status = 0 AND sts = 0 AND due_at >= CAST(? AS SIGNED) / 1000 AND due_at < CAST(? AS SIGNED) / 1000 \
       ORDER BY due_at, id LIMIT ?) AS ahead \
     GROUP BY step";

/// `detailed_stats`: the number of rows with this status, up to a limit. Range on `ix_due`, which covers it.
pub const COUNT_STATUS: &str = "SELECT COUNT(*) FROM (SELECT id FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = ? LIMIT ?) AS counted";

/// `detailed_stats`: as [`COUNT_STATUS`], of unfinished rows.
pub const COUNT_PENDING: &str = "SELECT COUNT(*) FROM (SELECT id FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = 0 AND sts = 0 LIMIT ?) AS counted";

/// `detailed_stats`: as [`COUNT_PENDING`], of rows that are due.
pub const COUNT_DUE: &str = "SELECT COUNT(*) FROM (SELECT id FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = 0 AND sts = 0 AND due_at <= UNIX_TIMESTAMP(NOW(3)) LIMIT ?) AS counted";
