//! Statements of claims: look up, claim, renew, end leases.

/// `look_up`, and the results of `create`, `cancel`, `reschedule`: state and arming of keys. Unique key.
pub const LOOKUP: &str = "SELECT `key`, id, CAST(end_time * 1000 AS SIGNED) AS end_ms, CAST(due_at * 1000 AS SIGNED) AS due_ms, \
       CAST(status AS SIGNED) AS status, CAST(sts AS SIGNED) AS sts, \
       CAST(lease_until >= UNIX_TIMESTAMP(NOW(3)) AS SIGNED) AS leased, \
       CAST(run_end = end_time AND retry_at > UNIX_TIMESTAMP(NOW(3)) AS SIGNED) AS waiting, \
       CAST(run_end <> end_time AS SIGNED) AS older_run, \
       CAST(run_end = end_time AND lease_until > 0 AS SIGNED) AS claimed, CAST({held} AS SIGNED) AS held, CAST(adopted AS SIGNED) AS adopted, CAST(start_time * 1000 AS SIGNED) AS start_ms, \
       CAST(changed_at * 1000 AS SIGNED) AS changed_ms, CAST(finished_at * 1000 AS SIGNED) AS finished_ms \
     FROM `{t}` WHERE `key` IN ({keys})";

/// Appended to [`LOOKUP`] in a transaction that may have read before: reads the rows as they are now. The statement before
/// it has locked them.
pub const AS_IT_IS_NOW: &str = " LOCK IN SHARE MODE";

/// `claim`: takes rows that are pending, due and not leased. Primary key.
///
/// Changes no indexed value (`due_at` stays the same), which makes it twice as fast. The counters belong to `run_end`: with
/// another `end_time` they start from zero. A lease that is still set has expired, and counts as a crash. Counters saturate,
/// so that one row does not fail the batch.
///
/// A task that was given back after its cancellation was answered with "running" starts once more, and then no more.
pub const CLAIM: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET \
       attempt = LEAST(IF(run_end = end_time, attempt, 0), 65534) + 1, \
       crashes = IF(run_end = end_time, LEAST(crashes + (lease_until > 0), 255), 0), \
       retry_at = IF(run_end = end_time, retry_at, 0), \
       sts = IF(run_end = end_time AND lease_until = -0.005, 1, 0), \
       run_end = end_time, owner = ?, daemon = ?, claimed_at = UNIX_TIMESTAMP(NOW(3)), \
       lease_until = UNIX_TIMESTAMP(NOW(3)) + CAST(? AS SIGNED) / 1000 \
     WHERE id IN ({ids}) AND status = 0 AND sts = 0 \
       AND due_at <= UNIX_TIMESTAMP(NOW(3)) AND lease_until < UNIX_TIMESTAMP(NOW(3))";

/// `claim`: reads the rows that were claimed. `owner` has no index, hence the ids. Of a payload that is too long, reads only
/// the length. A row may have been armed anew since it was claimed: then `run_end` is not its `end_time`, or it is due after
/// the claim, which was made one length of a lease before `lease_until`. Primary key.
pub const CLAIMED: &str = "SELECT id, `key`, CAST(end_time * 1000 AS SIGNED) AS end_ms, CAST(due_at * 1000 AS SIGNED) AS due_ms, \
       CAST(start_time * 1000 AS SIGNED) AS start_ms, CAST(attempt AS SIGNED) AS attempt, CAST(crashes AS SIGNED) AS crashes, \
       CAST(max_attempts AS SIGNED) AS max_attempts, tag, IF(LENGTH(payload) <= {payload_max}, payload, NULL) AS payload, \
       IF(LENGTH(payload) <= {payload_max}, NULL, CAST(LENGTH(payload) AS SIGNED)) AS oversize, \
       IF(history LIKE '{\"how\":\"snoozed\"%', SUBSTRING_INDEX(history, '\n', 1), NULL) AS snoozed, recurrence, \
       CAST(run_end <> end_time OR due_at > lease_until - CAST(? AS SIGNED) / 1000 AS SIGNED) AS anew \
     FROM `{t}` WHERE id IN ({ids}) AND owner = ?";

/// `claim` whose answer was lost, or of a row that was armed anew before it was read: releases what it took. Primary key.
pub const DISOWN: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET attempt = GREATEST(attempt, 1) - 1, \
       lease_until = IF(sts = 1 AND NOT {ends_unrun}, -0.005, 0), {given_back} \
     WHERE id IN ({ids}) AND owner = ? AND status = 0 AND lease_until > 0";

/// `renew`: extends leases that this daemon holds. Never revives an expired one. Primary key.
pub const RENEW: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET lease_until = UNIX_TIMESTAMP(NOW(3)) + CAST(? AS SIGNED) / 1000 \
     WHERE id IN ({ids}) AND (id, owner) IN ({owners}) AND lease_until >= UNIX_TIMESTAMP(NOW(3))";

/// `report`: as [`RENEW`], with the progress of each run. Primary key.
pub const REPORT: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET lease_until = UNIX_TIMESTAMP(NOW(3)) + CAST(? AS SIGNED) / 1000, \
       progress = ELT(FIELD(id, {ids}), {texts}) \
     WHERE id IN ({ids}) AND (id, owner) IN ({owners}) AND lease_until >= UNIX_TIMESTAMP(NOW(3))";

/// `pardon`: lowers the crashes of a claimed task. Primary key.
pub const PARDON: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET crashes = LEAST(crashes, ?) \
     WHERE id = ? AND owner = ? AND run_end = CAST(? AS SIGNED) / 1000 AND status = 0 AND lease_until >= UNIX_TIMESTAMP(NOW(3))";

/// `renew`: reads which leases hold. Primary key.
pub const RENEWED: &str =
    "SELECT id, owner FROM `{t}` WHERE id IN ({ids}) AND lease_until >= UNIX_TIMESTAMP(NOW(3))";

/// `scan_leases`: the leases between two places that [`PAGE_END_OLDEST`](super::PAGE_END_OLDEST) found. Range on `ix_due`.
pub const LEASES: &str = "SELECT id, owner, daemon, CAST(lease_until * 1000 AS SIGNED) AS lease_ms \
     FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = 0 AND sts = 0 AND lease_until > 0 \
       AND due_at >= CAST(? AS SIGNED) / 1000 AND (due_at > CAST(? AS SIGNED) / 1000 OR id > ?) \
       AND due_at <= CAST(? AS SIGNED) / 1000 AND (due_at < CAST(? AS SIGNED) / 1000 OR id <= ?) \
       AND due_at <= UNIX_TIMESTAMP(NOW(3)) - CAST(? AS SIGNED) / 1000";

/// `end_leases`: the leases expired a millisecond ago, and the next claim counts a crash. Primary key.
pub const END_LEASES: &str = "UPDATE `{t}` FORCE INDEX (PRIMARY) SET lease_until = UNIX_TIMESTAMP(NOW(3)) - 0.001 \
     WHERE id IN ({ids}) AND (id, owner) IN ({owners}) AND daemon = ? AND status = 0 AND lease_until >= UNIX_TIMESTAMP(NOW(3))";

/// `claimable`, and `scan_new` of overdue rows: those of these rows that a claim could take. Primary key.
pub const CLAIMABLE: &str = "SELECT id, `key`, CAST(end_time * 1000 AS SIGNED) AS end_ms, CAST(due_at * 1000 AS SIGNED) AS due_ms \
     FROM `{t}` FORCE INDEX (PRIMARY) WHERE id IN ({ids}) AND status = 0 AND sts = 0 \
       AND due_at <= UNIX_TIMESTAMP(NOW(3)) AND lease_until < UNIX_TIMESTAMP(NOW(3))";

/// Those of these rows that no other session has locked. Only a hint, since the locks are gone when it returns: it spares
/// the other rows of a batch the wait for a locked one. Primary key.
pub const UNLOCKED: &str =
    "SELECT id FROM `{t}` FORCE INDEX (PRIMARY) WHERE id IN ({ids}) FOR UPDATE SKIP LOCKED";

/// Those of these rows that exist. Primary key.
pub const EXISTING: &str = "SELECT id FROM `{t}` WHERE id IN ({ids})";
