//! Every SQL statement of the adapter, and why it is written the way it is.
//!
//! `{t}` is the table, `{keys}`, `{ids}`, `{fences}` and `{rows}` are lists of bound values; nothing
//! else is ever put into a text. Lists are padded to a power of two by repeating their last value, so
//! that a handful of prepared statements serves every batch size.
//!
//! Times are bound and read as integer milliseconds. `UNIX_TIMESTAMP(NOW(3))` is the clock that
//! decides; the session's time zone is UTC, so no hour of it comes twice.
//!
//! All updates are single autocommit statements over rows named by id. Assignments run from left to
//! right, and several rely on it: a column must not be read behind its own assignment.
//!
//! `changed_at` orders what is said about a task: every statement that changes an arming on somebody's behalf stamps it
//! with the clock that decides, and adoption compares it with the moment at which a key was heard to be armed. Claims,
//! renewals and the end of a run do not touch it.
//!
//! They name their index, or rule `ix_due` out: where few rows are pending the optimizer would walk all of
//! those instead, and wait for the locks of rows that the statement does not name.

use crate::ledger::{IfPending, REDRIVEN_AGO};
use crate::task::{PAYLOAD_READ_MAX, TableName};

/// `{now_ns}`: the ledger's clock in nanoseconds, as exact as it is.
const NOW_NS: &str = "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED) * 1000";

/// The ledger's clock, in microseconds. Used by every process that follows it, once in a few seconds.
pub const CLOCK: &str = "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)";

/// The character set of the column of keys. Bound: the table's name.
pub const KEY_CHARSET: &str = "SELECT CAST(CHARACTER_SET_NAME AS CHAR) FROM information_schema.COLUMNS \
     WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? AND COLUMN_NAME = 'key'";

/// Whether the server knows this setting: no row where it does not.
pub const SNAPSHOT_ISOLATION: &str = "SHOW VARIABLES LIKE 'innodb_snapshot_isolation'";

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

/// When a row gives way under [`IfPending::Move`]. It can be asked again behind any assignment but the last: `status` and
/// `end_time` are the last two, and a row that was cancelled with the same `end_time` has that already.
const MOVES: &str = "end_time <> VALUES(end_time) OR status = 3";

/// The same under [`IfPending::Keep`]: not if it is pending, and not being run.
const DISPLACES_KEPT: &str = "status = 3 OR (end_time <> VALUES(end_time) AND NOT (status = 0 AND sts = 0 \
       AND NOT (run_end = end_time AND lease_until >= UNIX_TIMESTAMP(NOW(3)))))";

/// The same under [`IfPending::Refuse`]: not if it is pending or being run.
const DISPLACES_REFUSED: &str = "status = 3 OR (end_time <> VALUES(end_time) AND NOT (status = 0 \
       AND (sts = 0 OR lease_until >= UNIX_TIMESTAMP(NOW(3)))))";

/// Under these two the answer is kept in `retry_at`, which means nothing while `run_end` is 0: a number that no row had
/// before, negative and so no time, says that this statement has displaced this row.
const MARKED: &str = "retry_at = VALUES(retry_at)";

/// One row of [`CREATE`]; `{mark}` is what `retry_at` becomes. `start_time` is the caller's reading of the clock, so
/// `changed_at` is never before it: a row whose `start_time` is later was written by a program that does not know the column.
pub const CREATE_ROW: &str = "(?, CAST(? AS SIGNED) / 1000, CAST(? AS SIGNED) / 1000, ?, ?, ?, ?, 0, 0, {mark}, GREATEST(UNIX_TIMESTAMP(NOW(3)), start_time))";

/// `look_up`, and the answers of `create`, `cancel`, `reschedule`: where keys stand. Unique key.
pub const LOOKUP: &str = "SELECT `key`, id, CAST(end_time * 1000 AS SIGNED) AS end_ms, CAST(due_at * 1000 AS SIGNED) AS due_ms, \
       CAST(status AS SIGNED) AS status, CAST(sts AS SIGNED) AS sts, \
       CAST(lease_until >= UNIX_TIMESTAMP(NOW(3)) AS SIGNED) AS leased, \
       CAST(run_end = end_time AND retry_at > UNIX_TIMESTAMP(NOW(3)) AS SIGNED) AS waiting, \
       CAST(run_end <> end_time AS SIGNED) AS older_run, CAST(adopted AS SIGNED) AS adopted, CAST(start_time * 1000 AS SIGNED) AS start_ms, \
       CAST(changed_at * 1000 AS SIGNED) AS changed_ms, CAST(finished_at * 1000 AS SIGNED) AS finished_ms \
     FROM `{t}` WHERE `key` IN ({keys})";

/// Behind [`LOOKUP`] in a transaction that may have read before: as the rows are now. The statement before it has locked
/// them.
pub const AS_IT_IS_NOW: &str = " LOCK IN SHARE MODE";

/// `adopt` of a key without a row: a row by itself, since a statement that waits for the lock of one row while it
/// holds another's could deadlock with a program that writes such rows in a transaction. Whoever has inserted it
/// meanwhile wins: error 1062 is an answer. Unique key.
pub const ADOPT_NEW: &str = "INSERT INTO `{t}` (`key`, start_time, end_time, status, sts, adopted, changed_at) \
     VALUES (?, CAST(? AS SIGNED) / 1000, CAST(? AS SIGNED) / 1000, 0, 0, 1, start_time)";

/// `adopt` of many keys, before [`ADOPT_MANY`]: answers the rows that are there, and fails at once where another session is
/// writing one: a transaction that had to wait for such a statement could be chosen to end a deadlock. Unique key.
pub const ADOPT_LOOK: &str =
    "SELECT id FROM `{t}` FORCE INDEX (uk_key) WHERE `key` IN ({keys}) FOR UPDATE NOWAIT";

/// `adopt` of many keys without rows, where [`ADOPT_LOOK`] has found nothing in the way: [`ADOPT_NEW`] for each, all or
/// none. Unique key.
pub const ADOPT_MANY: &str = "INSERT INTO `{t}` (`key`, start_time, end_time, status, sts, adopted, changed_at) VALUES {rows}";
const ADOPT_ROW: &str =
    "(?, CAST(? AS SIGNED) / 1000, CAST(? AS SIGNED) / 1000, 0, 0, 1, start_time)";

/// `adopt` of a key whose row is another arming: as [`CREATE`] would, if the row still is what it was when this was
/// decided: nothing was said about it since, so no acknowledged write is undone. `changed_at` becomes the moment at which the
/// key was heard to be armed, since what is heard later counts. A task that is moved keeps its payload, tag and limit; one
/// that had finished begins anew without. Primary key.
pub const ADOPT_OVER: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET \
       start_time = CAST(? AS SIGNED) / 1000, changed_at = start_time, run_end = 0, retry_at = 0, attempt = 0, crashes = 0, \
       adopted = IF(?, 1, adopted), \
       max_attempts = IF(status = 0, max_attempts, NULL), tag = IF(status = 0, tag, NULL), payload = IF(status = 0, payload, NULL), \
       recurrence = IF(status = 0, recurrence, NULL), reason = NULL, history = NULL, result = NULL, \
       last_error = NULL, finished_at = NULL, sts = 0, status = 0, end_time = CAST(? AS SIGNED) / 1000 \
     WHERE id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND status = ? AND (status > 0 OR sts = ?) \
       AND changed_at = CAST(? AS SIGNED) / 1000 AND start_time = CAST(? AS SIGNED) / 1000 \
       AND (lease_until >= UNIX_TIMESTAMP(NOW(3))) = ?";

/// `withdraw`: an adopted task that is not about to fall due, and of which nothing was said since the look; its key was
/// deleted. `adopted = 2` says so, since the next key of this name is then a new one whatever its time. What waits behind
/// a run is cancelled when that run ends, as by [`CANCEL`]. A series that somebody's key has moved is more than that key.
/// Primary key.
pub const WITHDRAW: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET sts = 1, adopted = 2, \
       changed_at = GREATEST(changed_at, CAST(? AS SIGNED) / 1000), finished_at = changed_at, \
       owner = IF(lease_until < UNIX_TIMESTAMP(NOW(3)), NULL, owner), \
       status = IF(lease_until < UNIX_TIMESTAMP(NOW(3)), 3, 0), \
       lease_until = IF(lease_until < UNIX_TIMESTAMP(NOW(3)), 0, lease_until) \
     WHERE id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND adopted = 1 AND status = 0 AND sts = 0 AND recurrence IS NULL \
       AND changed_at = CAST(? AS SIGNED) / 1000 AND start_time = CAST(? AS SIGNED) / 1000 \
       AND due_at > UNIX_TIMESTAMP(NOW(3)) + CAST(? AS SIGNED) / 1000";

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

/// `claim`: takes those that are pending, due and free. Primary key.
///
/// Changes no indexed value (`due_at` stays what it was), which makes it twice as fast. The counters
/// belong to `run_end`: with another `end_time` they start anew. A lease that was still there has run
/// out, and counts as a crash. Counters stop at the end of their columns: one row must not fail the batch.
pub const CLAIM: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET \
       attempt = LEAST(IF(run_end = end_time, attempt, 0), 65534) + 1, \
       crashes = IF(run_end = end_time, LEAST(crashes + (lease_until > 0), 255), 0), \
       retry_at = IF(run_end = end_time, retry_at, 0), \
       run_end = end_time, owner = ?, daemon = ?, \
       lease_until = UNIX_TIMESTAMP(NOW(3)) + CAST(? AS SIGNED) / 1000 \
     WHERE id IN ({ids}) AND status = 0 AND sts = 0 \
       AND due_at <= UNIX_TIMESTAMP(NOW(3)) AND lease_until < UNIX_TIMESTAMP(NOW(3))";

/// `claim`: which ones became ours. `owner` alone has no index, hence the ids. Of a payload that is too long only the
/// length is read. Primary key.
pub const CLAIMED: &str = "SELECT id, `key`, CAST(end_time * 1000 AS SIGNED) AS end_ms, CAST(due_at * 1000 AS SIGNED) AS due_ms, \
       CAST(start_time * 1000 AS SIGNED) AS start_ms, CAST(attempt AS SIGNED) AS attempt, CAST(crashes AS SIGNED) AS crashes, \
       CAST(max_attempts AS SIGNED) AS max_attempts, tag, IF(LENGTH(payload) <= {payload_max}, payload, NULL) AS payload, \
       IF(LENGTH(payload) <= {payload_max}, NULL, CAST(LENGTH(payload) AS SIGNED)) AS oversize, \
       IF(history LIKE '{\"how\":\"snoozed\"%', SUBSTRING_INDEX(history, '\n', 1), NULL) AS snoozed, recurrence \
     FROM `{t}` WHERE id IN ({ids}) AND owner = ?";

/// `claim`, whose answer was lost: gives back whatever it took. Primary key.
pub const DISOWN: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET attempt = GREATEST(attempt, 1) - 1, lease_until = 0, \
       finished_at = IF(sts = 1, COALESCE(finished_at, UNIX_TIMESTAMP(NOW(3))), NULL), status = IF(sts = 1, 3, 0) \
     WHERE id IN ({ids}) AND owner = ? AND status = 0 AND lease_until > 0";

/// `renew`: prolongs what is still ours; never revives a lease that ran out. Primary key.
pub const RENEW: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET lease_until = UNIX_TIMESTAMP(NOW(3)) + CAST(? AS SIGNED) / 1000 \
     WHERE id IN ({ids}) AND (id, owner) IN ({owners}) AND lease_until >= UNIX_TIMESTAMP(NOW(3))";

/// `renew`: which ones hold. Primary key.
pub const RENEWED: &str =
    "SELECT id, owner FROM `{t}` WHERE id IN ({ids}) AND lease_until >= UNIX_TIMESTAMP(NOW(3))";

/// `scan_leases`: the leases between two places that [`STRETCH_OLDEST`] found. Range on `ix_due`.
pub const LEASES: &str = "SELECT id, owner, daemon, CAST(lease_until * 1000 AS SIGNED) AS lease_ms \
     FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = 0 AND sts = 0 AND due_at <= UNIX_TIMESTAMP(NOW(3)) AND lease_until > 0 \
       AND due_at >= CAST(? AS SIGNED) / 1000 AND (due_at > CAST(? AS SIGNED) / 1000 OR id > ?) \
       AND due_at <= CAST(? AS SIGNED) / 1000 AND (due_at < CAST(? AS SIGNED) / 1000 OR id <= ?)";

/// `end_leases`: they have run out a millisecond ago; the next claim counts the crash. Primary key.
pub const END_LEASES: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET lease_until = UNIX_TIMESTAMP(NOW(3)) - 0.001 \
     WHERE id IN ({ids}) AND (id, owner) IN ({owners}) AND daemon = ? AND status = 0 AND lease_until >= UNIX_TIMESTAMP(NOW(3))";

/// `free_of`, and `scan_news` of what is overdue: which of these rows a claim could take. Primary key.
pub const FREE: &str = "SELECT id, `key`, CAST(end_time * 1000 AS SIGNED) AS end_ms, CAST(due_at * 1000 AS SIGNED) AS due_ms \
     FROM `{t}` FORCE INDEX (PRIMARY) WHERE id IN ({ids}) AND status = 0 AND sts = 0 \
       AND due_at <= UNIX_TIMESTAMP(NOW(3)) AND lease_until < UNIX_TIMESTAMP(NOW(3))";

/// `settle`, success. Exact per row; `id IN` stands beside the row constructor because MariaDB scans
/// the table for a row constructor alone. Primary key.
pub const COMPLETE: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET status = 1, finished_at = UNIX_TIMESTAMP(NOW(3)), lease_until = 0, last_error = NULL \
     WHERE id IN ({ids}) AND (id, end_time, owner) IN ({fences}) AND status = 0";

/// `settle`, success of which something is kept: a row by itself. Primary key.
pub const COMPLETE_WITH: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET status = 1, finished_at = UNIX_TIMESTAMP(NOW(3)), lease_until = 0, last_error = NULL, result = ? \
     WHERE id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND owner = ? AND status = 0";

/// `settle`, released: as if it had not been claimed. `lease_until > 0` makes repeating it harmless.
/// A cancellation that waited for the run's end takes effect. `attempt` is 0 if the key was moved away and
/// back meanwhile. An occurrence of a series keeps its attempt: what was begun is not missed, however late it is begun
/// again. Primary key.
pub const RELEASE: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET attempt = IF(recurrence IS NULL, GREATEST(attempt, 1) - 1, attempt), lease_until = 0, \
       finished_at = IF(sts = 1, COALESCE(finished_at, UNIX_TIMESTAMP(NOW(3))), NULL), status = IF(sts = 1, 3, 0) \
     WHERE id IN ({ids}) AND (id, end_time, owner) IN ({fences}) AND status = 0 AND lease_until > 0";

/// `settle`, to be tried again. An attempt that ended by itself clears the crashes. The history is a line for each entry,
/// cut to [`HISTORY_MAX`](crate::task::HISTORY_MAX). Primary key.
pub const RETRY: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET retry_at = CAST(? AS SIGNED) / 1000, crashes = 0, last_error = ?, \
       history = SUBSTRING_INDEX(CONCAT_WS('\n', ?, history), '\n', 10), lease_until = 0, \
       finished_at = IF(sts = 1, COALESCE(finished_at, UNIX_TIMESTAMP(NOW(3))), NULL), status = IF(sts = 1, 3, 0) \
     WHERE id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND owner = ? AND status = 0 AND lease_until > 0";

/// `settle`, snoozed: a retry whose attempt is given back, and that failed at nothing. In a row of snoozes the newest
/// entry of the history stands for all. Primary key.
pub const SNOOZE: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET retry_at = CAST(? AS SIGNED) / 1000, crashes = 0, attempt = GREATEST(attempt, 1) - 1, \
       history = SUBSTRING_INDEX(CONCAT_WS('\n', ?, IF(history LIKE '{\"how\":\"snoozed\"%', \
         NULLIF(SUBSTRING(history, LOCATE('\n', CONCAT(history, '\n')) + 1), ''), history)), '\n', 10), lease_until = 0, \
       finished_at = IF(sts = 1, COALESCE(finished_at, UNIX_TIMESTAMP(NOW(3))), NULL), status = IF(sts = 1, 3, 0) \
     WHERE id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND owner = ? AND status = 0 AND lease_until > 0";

/// `settle`, given up. What is dead without having been run (expired, poison) gives its attempt back. Primary key.
pub const BURY: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET reason = IF(sts = 1, NULL, ?), attempt = attempt - LEAST(attempt, ?), last_error = ?, \
       history = SUBSTRING_INDEX(CONCAT_WS('\n', ?, history), '\n', 10), lease_until = 0, \
       finished_at = IF(sts = 1, COALESCE(finished_at, UNIX_TIMESTAMP(NOW(3))), UNIX_TIMESTAMP(NOW(3))), \
       status = IF(sts = 1, 3, 2) \
     WHERE id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND owner = ? AND status = 0 AND lease_until > 0";

/// `settle` and `complete_in` of a series: its next arming, in place of the completion. One that was cancelled during
/// the run only ends, as the first value says. Which of the two it is to be is said by `sts`, so that whoever writes it
/// knows what was written. A handler that marked the row processed itself, as programs do that know only the first six
/// columns, has succeeded. Snoozes are counted within one occurrence. The owner stays as proof of who wrote it. Primary
/// key.
pub const GO_ON: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET finished_at = IF(sts = 1, COALESCE(finished_at, UNIX_TIMESTAMP(NOW(3))), NULL), status = IF(sts = 1, ?, 0), \
       lease_until = 0, run_end = 0, retry_at = 0, attempt = 0, crashes = 0, last_error = IF(?, ?, last_error), result = IF(?, ?, result), adopted = IF(sts = 1, adopted, 0), \
       changed_at = IF(sts = 1, changed_at, GREATEST(changed_at, end_time)), \
       history = NULLIF(SUBSTRING_INDEX(CONCAT_WS('\n', ?, IF(history LIKE '{\"how\":\"snoozed\"%', \
         NULLIF(SUBSTRING(history, LOCATE('\n', CONCAT(history, '\n')) + 1), ''), history)), '\n', 10), ''), \
       recurrence = IF(recurrence LIKE '%\"moved_from\"%', JSON_REMOVE(recurrence, '$.moved_from'), recurrence), \
       end_time = IF(sts = 1, end_time, CAST(? AS SIGNED) / 1000) \
     WHERE sts = ? AND status <= ? AND lease_until > 0 AND id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND owner = ?";

/// `series`: where a key stands, and how it comes again. Unique key.
pub const SERIES: &str = "SELECT `key`, id, CAST(end_time * 1000 AS SIGNED) AS end_ms, CAST(due_at * 1000 AS SIGNED) AS due_ms, \
       CAST(status AS SIGNED) AS status, CAST(sts AS SIGNED) AS sts, \
       CAST(lease_until >= UNIX_TIMESTAMP(NOW(3)) AS SIGNED) AS leased, \
       CAST(run_end = end_time AND retry_at > UNIX_TIMESTAMP(NOW(3)) AS SIGNED) AS waiting, \
       CAST(run_end <> end_time AS SIGNED) AS older_run, CAST(adopted AS SIGNED) AS adopted, CAST(start_time * 1000 AS SIGNED) AS start_ms, \
       CAST(changed_at * 1000 AS SIGNED) AS changed_ms, CAST(finished_at * 1000 AS SIGNED) AS finished_ms, \
       recurrence, payload, tag, CAST(max_attempts AS SIGNED) AS max_attempts \
     FROM `{t}` WHERE `key` = ?";

/// `recur` of a key without a row. Whoever has inserted it meanwhile wins: error 1062 is an answer. Unique key.
pub const RECUR_NEW: &str = "INSERT INTO `{t}` (`key`, start_time, end_time, max_attempts, tag, payload, recurrence, status, sts, changed_at) \
     VALUES (?, CAST(? AS SIGNED) / 1000, CAST(? AS SIGNED) / 1000, ?, ?, ?, ?, 0, 0, GREATEST(UNIX_TIMESTAMP(NOW(3)), start_time))";

/// `recur` of a row that still is what was seen, which stays the same arming. Primary key.
pub const RECUR_SAME: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET max_attempts = ?, tag = ?, payload = ?, recurrence = ?, adopted = 0, changed_at = UNIX_TIMESTAMP(NOW(3)), \
       end_time = CAST(? AS SIGNED) / 1000 \
     WHERE id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND status = ? AND sts = ? AND recurrence <=> ? \
       AND (lease_until >= UNIX_TIMESTAMP(NOW(3))) = ?";

/// `recur` of a row that still is what was seen, and becomes another arming. Primary key.
pub const RECUR_OVER: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET max_attempts = ?, tag = ?, payload = ?, recurrence = ?, adopted = 0, changed_at = UNIX_TIMESTAMP(NOW(3)), \
       start_time = UNIX_TIMESTAMP(NOW(3)), run_end = 0, retry_at = 0, attempt = 0, crashes = 0, last_error = NULL, reason = NULL, \
       history = NULL, result = NULL, finished_at = NULL, end_time = CAST(? AS SIGNED) / 1000, sts = 0, status = 0 \
     WHERE id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND status = ? AND sts = ? AND recurrence <=> ? \
       AND (lease_until >= UNIX_TIMESTAMP(NOW(3))) = ?";

/// `mark_configured`: of a row whose recurrence still is what was seen. Primary key.
pub const MARK_CONFIGURED: &str =
    "UPDATE `{t}` FORCE INDEX (PRIMARY) SET recurrence = ? WHERE id = ? AND recurrence = ?";

/// `settle`: what the rows look like afterwards, where fewer matched than were sent. Primary key.
pub const SETTLED: &str = "SELECT id, CAST(end_time * 1000 AS SIGNED) AS end_ms, owner, CAST(status AS SIGNED) AS status, \
       CAST(sts AS SIGNED) AS sts, CAST(lease_until > 0 AS SIGNED) AS lease_left, \
       CAST(recurrence IS NOT NULL AS SIGNED) AS comes_again FROM `{t}` WHERE id IN ({ids})";

/// `settle`: the key was created anew during the run: gives the lease back. If that newer arming was cancelled meanwhile, the
/// cancellation takes effect. Primary key.
pub const GIVE_BACK: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET lease_until = 0, \
       finished_at = IF(sts = 1, COALESCE(finished_at, UNIX_TIMESTAMP(NOW(3))), finished_at), status = IF(sts = 1, 3, 0) \
     WHERE id = ? AND owner = ? AND end_time <> CAST(? AS SIGNED) / 1000 AND status = 0";

/// `settle`: the handler marked the row processed itself, as programs do that know only the first
/// six columns. Primary key.
pub const TIDY: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET lease_until = 0, finished_at = COALESCE(finished_at, UNIX_TIMESTAMP(NOW(3))) \
     WHERE id = ? AND owner = ? AND end_time = CAST(? AS SIGNED) / 1000 AND status = 1";

/// Which of these rows no other session has locked. Only a hint (the locks are gone when it
/// returns): it spares the others of a batch from waiting for one. Primary key.
pub const UNLOCKED: &str =
    "SELECT id FROM `{t}` FORCE INDEX (PRIMARY) WHERE id IN ({ids}) FOR UPDATE SKIP LOCKED";

/// Which of these rows exist. Primary key.
pub const EXISTING: &str = "SELECT id FROM `{t}` WHERE id IN ({ids})";

/// `cancel`: what is not running is cancelled; what runs gets `sts = 1` and no further attempt. A
/// lease that ran out counts as not running, and its owner goes, so that a frozen run is fenced. `finished_at` of what runs
/// tells the cancellation from a deletion by a program that knows only the first six columns ([`REVIVE`]). Unique key.
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

/// `run_now`: only what is pending. A series goes on with the occurrence that was pending: this run is one more. What
/// was due before the moment of the hold that keeps it back (0: none does) becomes another arming, as what is due later
/// does. What an occurrence was missed by is counted from `start_time`, if that is later: somebody wants this one now.
/// Unique key.
pub const RUN_NOW: &str = "UPDATE `{t}` IGNORE INDEX (ix_due) SET \
       start_time = IF(recurrence IS NULL, start_time, UNIX_TIMESTAMP(NOW(3))), changed_at = UNIX_TIMESTAMP(NOW(3)), \
       recurrence = IF(end_time > UNIX_TIMESTAMP(NOW(3)) AND JSON_VALID(recurrence), \
         JSON_INSERT(recurrence, '$.moved_from', CAST(end_time * 1000 AS SIGNED) - 1), recurrence), \
       adopted = IF(end_time > UNIX_TIMESTAMP(NOW(3)) OR end_time < CAST(? AS SIGNED) / 1000, 0, adopted), \
       end_time = IF(end_time < CAST(? AS SIGNED) / 1000, UNIX_TIMESTAMP(NOW(3)), LEAST(end_time, UNIX_TIMESTAMP(NOW(3)))), retry_at = 0 \
     WHERE `key` = ? AND status = 0 AND sts = 0 AND lease_until < UNIX_TIMESTAMP(NOW(3))";

/// `redrive`: dead to pending, with the same `end_time`, so with the same stable id. `start_time` begins anew: lateness,
/// deadline and expiry are counted from the later of the two. It stands among what fell due [`REDRIVEN_AGO`] ago, however
/// long ago `end_time` is: each sweep begins there, and does not have to get past an older backlog. Unique key.
pub const REDRIVE: &str = "UPDATE `{t}` IGNORE INDEX (ix_due) SET start_time = UNIX_TIMESTAMP(NOW(3)), changed_at = UNIX_TIMESTAMP(NOW(3)), \
       run_end = end_time, retry_at = GREATEST(end_time, UNIX_TIMESTAMP(NOW(3)) - {redriven_s}), attempt = 0, crashes = 0, reason = NULL, finished_at = NULL, sts = 0, status = 0 \
     WHERE `key` = ? AND status = 2";

/// `redrive_rows`: as [`REDRIVE`]. Primary key.
pub const REDRIVE_ROWS: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET start_time = UNIX_TIMESTAMP(NOW(3)), changed_at = UNIX_TIMESTAMP(NOW(3)), \
       run_end = end_time, retry_at = GREATEST(end_time, UNIX_TIMESTAMP(NOW(3)) - {redriven_s}), attempt = 0, crashes = 0, reason = NULL, finished_at = NULL, sts = 0, status = 0 \
     WHERE id IN ({ids}) AND status = 2";

/// `dead_keys`. Primary key.
pub const DEAD_KEYS: &str =
    "SELECT `key` FROM `{t}` FORCE INDEX (PRIMARY) WHERE id IN ({ids}) AND status = 2";

/// `discard_rows`. Primary key: a `DELETE` cannot name its index, and `status + 0` is none.
pub const DISCARD_ROWS: &str = "DELETE FROM `{t}` WHERE id IN ({ids}) AND status + 0 = 2";

/// `prune`: the next rows of a finished state in the order of `ix_due`, and which of them are old enough: what is
/// surplus has an age of its own. Ends where rows have not been due for long enough. The row of a series that a
/// configuration wants ([`Recurrence::configured`](crate::Recurrence::configured)) says that it has ended: without it, it
/// would be begun anew. Range on `ix_due`.
pub const FINISHED: &str = "SELECT id, `key`, CAST(due_at * 1000 AS SIGNED) AS due_ms, \
       CAST(COALESCE(finished_at, end_time) <= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000 AS SIGNED) AS old, \
       CAST(COALESCE(finished_at, end_time) <= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000 AS SIGNED) AS spare \
     FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = ? AND sts = ? AND due_at <= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000 \
       AND ((due_at = CAST(? AS SIGNED) / 1000 AND id > ?) OR due_at > CAST(? AS SIGNED) / 1000) \
       AND (recurrence IS NULL OR recurrence NOT LIKE '%\"standing\"%') \
     ORDER BY due_at, id LIMIT ?";

/// `prune`: deletes what [`FINISHED`] found, if it still is finished, and as long ago as was found. Primary key, as
/// [`DISCARD_ROWS`].
pub const PRUNE_ROWS: &str = "DELETE FROM `{t}` WHERE id IN ({ids}) AND status + 0 = ? \
       AND (recurrence IS NULL OR recurrence NOT LIKE '%\"standing\"%') \
       AND COALESCE(finished_at, end_time) <= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000";

/// `surplus`: which row of a status is that many places from the end. Range on `ix_due`, backwards, which covers it; so
/// series of configurations that have ended, which are few, are counted, too.
pub const FROM_END: &str = "SELECT id, CAST(due_at * 1000 AS SIGNED) AS due_ms FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = ? AND sts = ? AND ((due_at = CAST(? AS SIGNED) / 1000 AND id < ?) OR due_at < CAST(? AS SIGNED) / 1000) \
     ORDER BY due_at DESC, id DESC LIMIT ?, 1";

/// `surplus`: how many rows of a status there are before this place, if not more than so many. Range on `ix_due`, which
/// covers it.
pub const COUNT_BEFORE: &str = "SELECT COUNT(*) FROM (SELECT id FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = ? AND sts = ? AND ((due_at = CAST(? AS SIGNED) / 1000 AND id < ?) OR due_at < CAST(? AS SIGNED) / 1000) LIMIT ?) AS counted";

/// `revive`: a legacy program deleted the row, then armed the key again. Not what was cancelled during a run whose daemon
/// died: `finished_at` is set then, and that or `changed_at` (`start_time` may be a little ahead of the server's clock) is not
/// before `start_time`, which such programs write in whole seconds. Primary key.
pub const REVIVE: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET sts = 0, finished_at = NULL \
     WHERE id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND status = 0 AND sts = 1 \
       AND NOT COALESCE(GREATEST(finished_at, changed_at) >= start_time + IF(start_time = FLOOR(start_time), 1, 0), 0)";

/// `complete_in`: the completion as the last statement of the handler's own transaction. Primary key.
pub const COMPLETE_IN: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET status = 1, finished_at = UNIX_TIMESTAMP(NOW(3)), lease_until = 0, last_error = NULL, \
       result = ? \
     WHERE id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND owner = ? AND status = 0";

/// `again_in`: completes this arming and makes the next one, in the handler's own transaction. For a task that was
/// cancelled during the run there is [`COMPLETE_IN`]. Primary key.
pub const AGAIN_IN: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET \
       lease_until = 0, run_end = 0, retry_at = 0, attempt = 0, crashes = 0, last_error = NULL, result = NULL, history = NULL, owner = NULL, adopted = 0, \
       recurrence = IF(recurrence LIKE '%\"moved_from\"%', JSON_REMOVE(recurrence, '$.moved_from'), recurrence), \
       start_time = CAST(? AS SIGNED) / 1000, changed_at = GREATEST(UNIX_TIMESTAMP(NOW(3)), start_time), end_time = CAST(? AS SIGNED) / 1000 \
     WHERE id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND owner = ? AND status = 0 AND sts = 0";

/// `list` and `find`: a whole row; a list names its index, and adds where it begins and ends and what fits.
pub const RECORD: &str = "SELECT id, `key`, CAST(start_time * 1000 AS SIGNED) AS start_ms, CAST(end_time * 1000 AS SIGNED) AS end_ms, \
       CAST(due_at * 1000 AS SIGNED) AS due_ms, CAST(status AS SIGNED) AS status, CAST(sts AS SIGNED) AS sts, \
       CAST(lease_until >= UNIX_TIMESTAMP(NOW(3)) AS SIGNED) AS leased, \
       CAST(run_end = end_time AND retry_at > UNIX_TIMESTAMP(NOW(3)) AS SIGNED) AS waiting, \
       CAST(IF(run_end = end_time, attempt, 0) AS SIGNED) AS attempt, CAST(IF(run_end = end_time, crashes, 0) AS SIGNED) AS crashes, \
       CAST(max_attempts AS SIGNED) AS max_attempts, daemon, tag, \
       IF(LENGTH(payload) <= {payload_max}, payload, CONCAT('\"(', LENGTH(payload), ' bytes, too many to read)\"')) AS payload, \
       recurrence, last_error, reason, history, result, \
       CAST(finished_at * 1000 AS SIGNED) AS finished_ms, CAST(adopted AS SIGNED) AS adopted \
     FROM `{t}`{index} WHERE ";

/// `list`, `pick_dead`: where a row stands in an index, which has all that is read; the rest is as of [`RECORD`].
pub const PLACE: &str = "SELECT {columns} FROM `{t}`{index} WHERE ";

/// `find`. Unique key.
pub const RECORD_BY_KEY: &str = "`key` = ?";

/// `survey`, `overdue_for`: overdue and free rows, the oldest first, and for how long they have waited. Range on `ix_due`.
pub const OLDEST_OVERDUE: &str = "SELECT id, `key`, CAST(due_at * 1000 AS SIGNED) AS due_ms, \
       CAST((UNIX_TIMESTAMP(NOW(3)) - due_at) * 1000 AS SIGNED) AS overdue_ms \
     FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = 0 AND sts = 0 AND due_at <= UNIX_TIMESTAMP(NOW(3)) AND lease_until < UNIX_TIMESTAMP(NOW(3)) \
       AND ((due_at = CAST(? AS SIGNED) / 1000 AND id > ?) OR due_at > CAST(? AS SIGNED) / 1000) \
     ORDER BY due_at, id LIMIT ?";

/// `survey`: rows that are not finished, those that fall due first, by class and method. Range on `ix_due`.
pub const SURVEY_UNFINISHED: &str = "SELECT name, COUNT(*) AS looked_at, \
       CAST(SUM(NOT leased AND NOT waits) AS SIGNED) AS pending, CAST(SUM(NOT leased AND waits) AS SIGNED) AS waiting, \
       CAST(SUM(leased) AS SIGNED) AS running, CAST(SUM(NOT leased AND late >= 0) AS SIGNED) AS overdue, \
       CAST(MAX(IF(leased OR late < 0, 0, late)) * 1000 AS SIGNED) AS overdue_ms \
     FROM (SELECT SUBSTRING_INDEX(`key`, '@', 2) AS name, lease_until >= UNIX_TIMESTAMP(NOW(3)) AS leased, \
         run_end = end_time AND retry_at > UNIX_TIMESTAMP(NOW(3)) AS waits, UNIX_TIMESTAMP(NOW(3)) - due_at AS late \
       FROM `{t}` FORCE INDEX (ix_due) WHERE status = 0 AND sts = ? ORDER BY due_at, id LIMIT ?) AS looked \
     GROUP BY name";

/// `survey`: dead rows by class and method. Range on `ix_due`.
pub const SURVEY_DEAD: &str = "SELECT name, COUNT(*) AS dead \
     FROM (SELECT SUBSTRING_INDEX(`key`, '@', 2) AS name FROM `{t}` FORCE INDEX (ix_due) WHERE status = 2 LIMIT ?) AS looked \
     GROUP BY name";

/// `survey`: of the done rows that fell due last, how long those took that ended lately and at the first attempt. Range on
/// `ix_due`, backwards.
pub const SURVEY_DONE: &str = "SELECT name, CAST(GREATEST(took, 0) * 1000 AS SIGNED) AS took_ms \
     FROM (SELECT SUBSTRING_INDEX(`key`, '@', 2) AS name, attempt, finished_at, finished_at - GREATEST(end_time, start_time) AS took \
       FROM `{t}` FORCE INDEX (ix_due) WHERE status = 1 AND sts = 0 ORDER BY due_at DESC, id DESC LIMIT ?) AS latest \
     WHERE attempt = 1 AND finished_at >= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED)";

/// `survey`: how many rows have this status, if not more than so many. Range on `ix_due`, which covers it.
pub const COUNT_STATUS: &str = "SELECT COUNT(*) FROM (SELECT id FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = ? LIMIT ?) AS counted";

/// `survey`: as [`COUNT_STATUS`], of what is not finished.
pub const COUNT_PENDING: &str = "SELECT COUNT(*) FROM (SELECT id FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = 0 AND sts = 0 LIMIT ?) AS counted";

/// `survey`: as [`COUNT_PENDING`], of what has fallen due.
pub const COUNT_DUE: &str = "SELECT COUNT(*) FROM (SELECT id FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = 0 AND sts = 0 AND due_at <= UNIX_TIMESTAMP(NOW(3)) LIMIT ?) AS counted";

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

/// `take_starts`: takes as many of the wanted starts as the bucket of a route has, by the generic cell rate algorithm
/// (ITU-T I.371), in whole nanoseconds; answers how many by `LAST_INSERT_ID`. The bucket is one number: the moment by
/// which it is full, from now on till a burst ahead. Who waited for the lock of the row has an old `NOW`, which takes
/// less. Primary key.
///
/// Bound: nanoseconds of a burst; the starts wanted; nanoseconds of a burst, twice, and of one start, twice; the route.
pub const TAKE_STARTS: &str = "UPDATE `{t}_rates` SET full_at_ns = \
       LEAST(GREATEST(full_at_ns, {now_ns}), {now_ns} + CAST(? AS SIGNED)) + \
       CAST(LAST_INSERT_ID(LEAST(CAST(? AS SIGNED), ({now_ns} + CAST(? AS SIGNED) \
         - LEAST(GREATEST(full_at_ns, {now_ns}), {now_ns} + CAST(? AS SIGNED))) DIV CAST(? AS SIGNED))) AS SIGNED) * CAST(? AS SIGNED) \
     WHERE route = ?";

/// `take_starts`: in how many nanoseconds there is one more. Primary key.
pub const NEXT_START: &str = "SELECT CAST(full_at_ns + CAST(? AS SIGNED) - CAST(? AS SIGNED) - {now_ns} AS SIGNED) AS next_ns \
     FROM `{t}_rates` WHERE route = ?";

/// `take_starts` of a route for the first time: a full bucket. Whoever was first stands: error 1062 is an answer.
pub const NEW_RATE: &str = "INSERT INTO `{t}_rates` (route) VALUES (?)";

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

/// `scan_unpaused`, the oldest first: as [`SCAN_OVERDUE_OLDEST`] to the end of the stretch, without what is paused or
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
const UNPAUSED: &str = "NOT (SUBSTRING_INDEX(`key`, '@', 1) IN ({names}) OR SUBSTRING_INDEX(`key`, '@', 2) IN ({names})) \
       AND (end_time >= CAST(? AS SIGNED) / 1000 \
         OR SUBSTRING_INDEX(`key`, '@', 1) IN ({released}) OR SUBSTRING_INDEX(`key`, '@', 2) IN ({released}))";

/// The statements of one table.
#[derive(Debug, Clone)]
pub struct Queries {
    table: String,
}

impl Queries {
    /// Statements for `table`, whose name is plain letters, digits and `_`.
    pub fn new(table: &TableName) -> Self {
        Self {
            table: table.to_string(),
        }
    }

    /// A statement without lists.
    pub fn plain(&self, template: &str) -> String {
        template
            .replace("{t}", &self.table)
            .replace("{now_ns}", NOW_NS)
            .replace("{payload_max}", &PAYLOAD_READ_MAX.to_string())
            .replace("{redriven_s}", &REDRIVEN_AGO.as_secs().to_string())
    }

    /// [`RECORD`] of one key.
    pub fn record_by_key(&self) -> String {
        self.plain(RECORD).replace("{index}", "") + RECORD_BY_KEY
    }

    /// A statement with its list of keys, `n` long.
    pub fn with_keys(&self, template: &str, n: usize) -> String {
        self.plain(template).replace("{keys}", &list("?", n))
    }

    /// A statement with its lists of ids, owners and fences, each `n` long.
    pub fn with_rows(&self, template: &str, n: usize) -> String {
        self.plain(template)
            .replace("{ids}", &list("?", n))
            .replace("{owners}", &list("(?, ?)", n))
            .replace("{fences}", &list("(?, CAST(? AS SIGNED) / 1000, ?)", n))
    }

    /// [`ADOPT_MANY`] for `n` rows.
    pub fn adopt_many(&self, n: usize) -> String {
        self.plain(ADOPT_MANY)
            .replace("{rows}", &list(ADOPT_ROW, n))
    }

    /// [`UNPAUSED_OLDEST`] or [`UNPAUSED_NEWEST`] with so many names of what is paused, and of what is released.
    pub fn unpaused(&self, template: &str, names: usize, released: usize) -> String {
        self.plain(template)
            .replace("{unpaused}", UNPAUSED)
            .replace("{names}", &list("?", names))
            .replace("{released}", &list("?", released))
    }

    /// [`CREATE`] for `n` rows; unless they move what is there, each has one value more: its mark.
    pub fn create(&self, n: usize, policy: IfPending) -> String {
        const NO_MARK: &str = "0";
        const MARK: &str = "CAST(? AS SIGNED) / 1000";
        let (displaces, moves, mark) = match policy {
            IfPending::Move => (MOVES, MOVES, NO_MARK),
            IfPending::Keep => (DISPLACES_KEPT, MARKED, MARK),
            IfPending::Refuse => (DISPLACES_REFUSED, MARKED, MARK),
        };
        self.plain(CREATE)
            .replace("{displaces}", displaces)
            .replace("{moves}", moves)
            .replace("{rows}", &list(CREATE_ROW, n))
            .replace("{mark}", mark)
    }
}

fn list(item: &str, n: usize) -> String {
    let mut text = String::with_capacity(n * (item.len() + 2));
    for index in 0..n {
        if index > 0 {
            text.push_str(", ");
        }
        text.push_str(item);
    }
    text
}

/// Pads a list to the next power of two by repeating its last item.
pub fn padded<T: Copy>(items: &[T]) -> Vec<T> {
    let mut padded = items.to_vec();
    if let Some(last) = items.last() {
        padded.resize(items.len().next_power_of_two(), *last);
    }
    padded
}
