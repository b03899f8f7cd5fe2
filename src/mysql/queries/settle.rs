//! Statements that settle runs.

/// `settle`, completed. Exact for each row; the row constructor comes with `id IN`, because MariaDB scans the table for a row
/// constructor alone. Primary key.
pub const COMPLETE: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET status = 1, finished_at = UNIX_TIMESTAMP(NOW(3)), lease_until = 0, last_error = NULL \
     WHERE id IN ({ids}) AND (id, end_time, owner) IN ({fences}) AND status = 0 AND lease_until > 0";

/// `settle`, completed with a result: one row. Primary key.
pub const COMPLETE_WITH: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET status = 1, finished_at = UNIX_TIMESTAMP(NOW(3)), lease_until = 0, last_error = NULL, result = ? \
     WHERE id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND owner = ? AND status = 0 AND lease_until > 0";

/// `settle`, released after a run that was interrupted: gives the attempt back. `lease_until > 0` makes repeating it harmless.
/// A cancellation that waited for the end of the run takes effect. `attempt` is 0 if the key was moved away and back
/// meanwhile. Of an occurrence of a series, `retry_at` says that it has begun: it is not missed, however late it begins
/// again. What `lease_until` becomes says how the claim ended, see `LeftOpen`. Primary key.
pub const RELEASE: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET attempt = GREATEST(attempt, 1) - 1, \
       retry_at = IF(recurrence IS NULL, retry_at, GREATEST(retry_at, end_time + 0.001)), lease_until = IF(sts = 1, 0, -0.001), \
       finished_at = IF(sts = 1, COALESCE(finished_at, UNIX_TIMESTAMP(NOW(3))), NULL), status = IF(sts = 1, 3, 0) \
     WHERE id IN ({ids}) AND (id, end_time, owner) IN ({fences}) AND status = 0 AND lease_until > 0";

/// `settle`, given back without having been run: as [`RELEASE`]. A task that was cancelled meanwhile still starts once, since
/// the answer to its cancellation was that it runs. Primary key.
pub const GIVE_BACK: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET attempt = GREATEST(attempt, 1) - 1, \
       retry_at = IF(recurrence IS NULL, retry_at, GREATEST(retry_at, end_time + 0.001)), \
       lease_until = IF({ends_unrun}, 0, IF(sts = 1, -0.005, -0.001)), {given_back} \
     WHERE id IN ({ids}) AND (id, end_time, owner) IN ({fences}) AND status = 0 AND lease_until > 0";

/// True of a row that ends when its claim is given back unrun: a program deleted it that knows only the first six columns, or
/// it was cancelled after it was armed anew. Otherwise it starts once, although it was cancelled.
pub(super) const ENDS_UNRUN: &str =
    "(sts = 1 AND NOT (run_end = end_time AND {deleted_by_lapsed}))";

/// What becomes of a row whose claim is given back unrun. The values that `sts` and `status` get here do not change what
/// [`ENDS_UNRUN`] says, and `finished_at` stays if it is the time of a cancellation by lapsed.
pub(super) const GIVEN_BACK: &str = "status = IF({ends_unrun}, 3, 0), sts = IF({ends_unrun}, 1, 0), \
       finished_at = IF({ends_unrun}, COALESCE(finished_at, UNIX_TIMESTAMP(NOW(3))), IF({ended_by_lapsed}, finished_at, NULL))";

/// `settle`, retry. An attempt that ended by itself clears the crashes. The history has a line for each entry, and at most
/// [`HISTORY_MAX`](lapsed_core::task::HISTORY_MAX) lines. Primary key.
pub const RETRY: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET retry_at = CAST(? AS SIGNED) / 1000, crashes = 0, last_error = ?, \
       history = SUBSTRING_INDEX(CONCAT_WS('\n', ?, history), '\n', 10), lease_until = IF(sts = 1, 0, -0.002), \
       finished_at = IF(sts = 1, COALESCE(finished_at, UNIX_TIMESTAMP(NOW(3))), NULL), status = IF(sts = 1, 3, 0) \
     WHERE id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND owner = ? AND status = 0 AND lease_until > 0";

/// `settle`, snoozed: a retry that gives the attempt back and is not a failure. Of consecutive snoozes, the history keeps one
/// entry. Primary key.
pub const SNOOZE: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET retry_at = CAST(? AS SIGNED) / 1000, crashes = 0, attempt = GREATEST(attempt, 1) - 1, \
       history = SUBSTRING_INDEX(CONCAT_WS('\n', ?, IF(history LIKE '{\"how\":\"snoozed\"%', \
         NULLIF(SUBSTRING(history, LOCATE('\n', CONCAT(history, '\n')) + 1), ''), history)), '\n', 10), lease_until = IF(sts = 1, 0, -0.003), \
       finished_at = IF(sts = 1, COALESCE(finished_at, UNIX_TIMESTAMP(NOW(3))), NULL), status = IF(sts = 1, 3, 0) \
     WHERE id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND owner = ? AND status = 0 AND lease_until > 0";

/// `settle`, buried. A task that is dead without having run (expired, poison) gives its attempt back. Primary key.
pub const BURY: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET reason = IF(sts = 1, NULL, ?), attempt = attempt - LEAST(attempt, ?), last_error = ?, \
       history = SUBSTRING_INDEX(CONCAT_WS('\n', ?, history), '\n', 10), lease_until = 0, \
       finished_at = IF(sts = 1, COALESCE(finished_at, UNIX_TIMESTAMP(NOW(3))), UNIX_TIMESTAMP(NOW(3))), \
       status = IF(sts = 1, 3, 2) \
     WHERE id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND owner = ? AND status = 0 AND lease_until > 0";

/// `settle` and `complete_in` of a series: moves the row to the next arming instead of completing it. A series that was
/// cancelled during the run ends with the status in the first value. The caller chooses between the two by the bound `sts`,
/// so that it knows what was written. A row that the handler itself marked processed, as programs do that know only the first
/// six columns, counts as succeeded. `reason` becomes the text of how the occurrence ended. Snoozes count within one
/// occurrence. The owner stays as proof of who wrote it. Primary key.
pub const NEXT_OCCURRENCE: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET finished_at = IF(sts = 1, COALESCE(finished_at, UNIX_TIMESTAMP(NOW(3))), NULL), status = IF(sts = 1, ?, 0), \
       lease_until = IF(sts = 1, 0, CAST(? AS SIGNED) / 1000), run_end = 0, retry_at = 0, attempt = 0, crashes = 0, reason = ?, last_error = IF(?, ?, last_error), result = IF(?, ?, result), adopted = IF(sts = 1, adopted, 0), \
       changed_at = IF(sts = 1, changed_at, GREATEST(changed_at, end_time)), \
       history = NULLIF(SUBSTRING_INDEX(CONCAT_WS('\n', ?, IF(history LIKE '{\"how\":\"snoozed\"%', \
         NULLIF(SUBSTRING(history, LOCATE('\n', CONCAT(history, '\n')) + 1), ''), history)), '\n', 10), ''), \
       recurrence = IF(recurrence LIKE '%\"moved_from\"%', JSON_REMOVE(recurrence, '$.moved_from'), recurrence), \
       end_time = IF(sts = 1, end_time, CAST(? AS SIGNED) / 1000) \
     WHERE sts = ? AND status <= ? AND lease_until > 0 AND id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND owner = ?";

/// `settle`: reads the rows afterwards, if fewer matched than were sent. Primary key.
pub const SETTLED: &str = "SELECT id, CAST(end_time * 1000 AS SIGNED) AS end_ms, owner, CAST(status AS SIGNED) AS status, \
       CAST(sts AS SIGNED) AS sts, CAST(lease_until * 1000 AS SIGNED) AS lease_ms, \
       CAST(recurrence IS NOT NULL AS SIGNED) AS recurring FROM `{t}` WHERE id IN ({ids})";

/// `settle` of a superseded run: gives the lease back. If lapsed has cancelled the newer arming meanwhile, the cancellation
/// takes effect. A legacy program may have deleted the row and created it again: its key tells, see
/// [`UNDELETE`](super::UNDELETE). Primary key.
pub const LET_GO: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET lease_until = 0, status = IF({deleted_by_lapsed}, 3, 0) \
     WHERE id = ? AND owner = ? AND end_time <> CAST(? AS SIGNED) / 1000 AND status = 0 AND lease_until > 0";

/// `settle` of a row that the handler itself marked processed, as programs do that know only the first six columns. Primary
/// key.
pub const TIDY: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET lease_until = 0, finished_at = COALESCE(finished_at, UNIX_TIMESTAMP(NOW(3))) \
     WHERE id = ? AND owner = ? AND end_time = CAST(? AS SIGNED) / 1000 AND status = 1";

/// `complete_in`: the completion, as the last statement of the handler's own transaction. Primary key.
pub const COMPLETE_IN: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET status = 1, finished_at = UNIX_TIMESTAMP(NOW(3)), lease_until = 0, last_error = NULL, \
       result = ? \
     WHERE id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND owner = ? AND status = 0";

/// `again_in`: completes this arming and creates the next one, in the handler's own transaction. For a series, `reason` becomes
/// the text of an occurrence that succeeded. A task that was cancelled during the run takes [`COMPLETE_IN`] instead. Primary key.
pub const AGAIN_IN: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET \
       reason = IF(recurrence IS NULL, NULL, ?), lease_until = 0, run_end = 0, retry_at = 0, attempt = 0, crashes = 0, last_error = NULL, result = NULL, history = NULL, owner = NULL, adopted = 0, \
       recurrence = IF(recurrence LIKE '%\"moved_from\"%', JSON_REMOVE(recurrence, '$.moved_from'), recurrence), \
       start_time = CAST(? AS SIGNED) / 1000, changed_at = GREATEST(UNIX_TIMESTAMP(NOW(3)), CAST(? AS SIGNED) / 1000), end_time = CAST(? AS SIGNED) / 1000 \
     WHERE id = ? AND end_time = CAST(? AS SIGNED) / 1000 AND owner = ? AND status = 0 AND sts = 0";
