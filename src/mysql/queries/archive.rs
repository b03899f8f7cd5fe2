//! Statements of the archive of finished tasks.

/// `prune` with an archive: locks the rows that [`FINISHED`](super::FINISHED) found, if they are still prunable. The next two
/// statements name the rows of this one alone: time passes between two statements. Primary key.
pub const LOCK_PRUNABLE: &str = "SELECT id FROM `{t}` FORCE INDEX (PRIMARY) WHERE id IN ({ids}) AND {prunable} \
     ORDER BY id FOR UPDATE";

/// `prune` with an archive: copies locked rows. Primary key.
pub const ARCHIVE_ROWS: &str = "INSERT INTO `{t}_archive` ({archived}, ended_ms) \
     SELECT {archived}, {ended} FROM `{t}` FORCE INDEX (PRIMARY) WHERE id IN ({ids})";

/// As [`ARCHIVE_ROWS`], for rows of which some were archived before: by a ledger that was restored from a dump since. The rows
/// are locked, so nobody else archives them meanwhile. Primary keys.
pub const ARCHIVE_OTHERS: &str = "INSERT INTO `{t}_archive` ({archived}, ended_ms) \
     SELECT {archived}, {ended} FROM `{t}` FORCE INDEX (PRIMARY) WHERE id IN ({ids}) \
       AND NOT EXISTS (SELECT 1 FROM `{t}_archive` AS there WHERE there.id = `{t}`.id AND there.ended_ms = {ended})";

/// `prune` with an archive: deletes locked rows, which have been copied. Primary key.
pub const DELETE_ARCHIVED: &str = "DELETE FROM `{t}` WHERE id IN ({ids})";

/// The columns that both tables have.
pub(super) const ARCHIVED: &str = "id, `key`, status, start_time, end_time, sts, owner, daemon, lease_until, run_end, retry_at, \
     attempt, crashes, max_attempts, adopted, tag, payload, last_error, reason, history, result, recurrence, finished_at, \
     changed_at, claimed_at, due_at";

/// When a row finished or fell due, whichever is later.
pub(super) const ENDED: &str =
    "CAST(GREATEST(COALESCE(finished_at, end_time), due_at) * 1000 AS SIGNED)";

/// `find_archived`: the latest row of a key. Appended to [`RECORD`](super::RECORD). `ix_key`, backwards.
pub const ARCHIVED_BY_KEY: &str = "`key` = ? ORDER BY id DESC LIMIT 1";
