-- The ledger in SQLite: one row per task. `{table}` is replaced by the configured name.
--
-- Columns have the names and meanings of migrations/tb_time_limit_task.sql. Times are unix milliseconds. A program that
-- inserts rows itself needs `key`, `start_time` and `end_time` only.
CREATE TABLE "{table}" (
  id           INTEGER PRIMARY KEY AUTOINCREMENT, -- of a deleted row is not given again
  key          TEXT NOT NULL, -- Class@method[@arg]*
  status       INTEGER NOT NULL DEFAULT 0, -- 0 unprocessed, 1 processed, 2 dead, 3 cancelled by lapsed
  sts          INTEGER NOT NULL DEFAULT 0, -- 0 live, 1 deleted
  start_time   INTEGER NOT NULL, -- created
  end_time     INTEGER NOT NULL, -- falls due; identifies the arming
  owner        BLOB, -- random token of the latest claim; stays after settling, as proof of who settled
  daemon       TEXT NOT NULL DEFAULT '', -- name of the daemon that claimed it last
  lease_until  INTEGER NOT NULL DEFAULT 0, -- void once past; 0 and below = free, a negative number says how the latest claim ended
  run_end      INTEGER NOT NULL DEFAULT 0, -- the arming (end_time) that retry_at, attempt and crashes belong to
  retry_at     INTEGER NOT NULL DEFAULT 0, -- not before, after a failed attempt
  attempt      INTEGER NOT NULL DEFAULT 0, -- runs started
  crashes      INTEGER NOT NULL DEFAULT 0, -- leases that ran out
  max_attempts INTEGER, -- runs, not retries; null = the route's
  adopted      INTEGER NOT NULL DEFAULT 0, -- 1: written on behalf of a key; 2: and cancelled by its deletion; 3: on behalf of an entry of a sorted set
  finished_at  INTEGER, -- done, dead or cancelled since
  changed_at   INTEGER NOT NULL DEFAULT 0, -- the last change of the arming by lapsed; 0 = see start_time
  tag          TEXT, -- chosen by the creator, to find and cancel by
  reason       TEXT, -- why it is dead, in one word
  last_error   TEXT, -- of the latest failed attempt
  history      TEXT, -- the last failed attempts, one JSON object to a line, newest first
  result       TEXT, -- JSON, of the run that succeeded, if it is kept
  recurrence   TEXT, -- JSON: how it arms itself again
  payload      TEXT, -- JSON
  claimed_at   INTEGER NOT NULL DEFAULT 0, -- the latest claim, which is the start of its run
  progress     TEXT, -- of a run: `<owner> <percent> <text>`, void unless it is the owner of the row
  due_at       INTEGER AS (iif(run_end = end_time AND retry_at > end_time, retry_at, end_time)) VIRTUAL -- when it may run next
) STRICT;
CREATE UNIQUE INDEX "{table}_key" ON "{table}" (key); -- one row per key, so that one claim decides
CREATE INDEX "{table}_due" ON "{table}" (status, sts, due_at); -- sweep, look-ahead, lists, pruning
CREATE INDEX "{table}_method" ON "{table}" (substr(key, 1, instr(key || '@', '@') + instr(substr(key, instr(key || '@', '@') + 1) || '@', '@') - 1), due_at) WHERE status = 0 AND sts = 0; -- sweep, by `Class@method`
CREATE INDEX "{table}_tag" ON "{table}" (tag) WHERE tag IS NOT NULL;
CREATE INDEX "{table}_recurring" ON "{table}" (id) WHERE recurrence IS NOT NULL; -- lists of recurring tasks
CREATE TABLE "{table}_archive" ( -- finished rows that retention has moved here, as they were
  id           INTEGER PRIMARY KEY,
  key          TEXT NOT NULL, -- may have several rows
  status       INTEGER NOT NULL,
  sts          INTEGER NOT NULL,
  start_time   INTEGER NOT NULL,
  end_time     INTEGER NOT NULL,
  owner        BLOB,
  daemon       TEXT NOT NULL,
  lease_until  INTEGER NOT NULL,
  run_end      INTEGER NOT NULL,
  retry_at     INTEGER NOT NULL,
  attempt      INTEGER NOT NULL,
  crashes      INTEGER NOT NULL,
  max_attempts INTEGER,
  adopted      INTEGER NOT NULL,
  finished_at  INTEGER,
  changed_at   INTEGER NOT NULL,
  tag          TEXT,
  reason       TEXT,
  last_error   TEXT,
  history      TEXT,
  result       TEXT,
  recurrence   TEXT,
  payload      TEXT,
  claimed_at   INTEGER NOT NULL DEFAULT 0,
  due_at       INTEGER AS (iif(run_end = end_time AND retry_at > end_time, retry_at, end_time)) VIRTUAL
) STRICT;
CREATE INDEX "{table}_archive_key" ON "{table}_archive" (key);
CREATE INDEX "{table}_archive_due" ON "{table}_archive" (status, sts, due_at); -- lists, and to delete the oldest
CREATE INDEX "{table}_archive_tag" ON "{table}_archive" (tag) WHERE tag IS NOT NULL;
CREATE TABLE "{table}_pauses" (
  kind       TEXT NOT NULL, -- pause, hold, release
  class      TEXT NOT NULL, -- empty: every class
  method     TEXT NOT NULL, -- empty: every method
  since      INTEGER NOT NULL,
  due_before INTEGER, -- of a hold
  until      INTEGER, -- of a pause: it ends by itself then
  set_by     TEXT NOT NULL,
  reason     TEXT NOT NULL,
  PRIMARY KEY (kind, class, method)
) STRICT;
CREATE TABLE "{table}_documents" ( -- small JSON texts beside the tasks
  collection TEXT NOT NULL, -- audit, history, idempotency, ..
  name       TEXT NOT NULL, -- unique in its collection
  written_at INTEGER NOT NULL, -- inserted then
  body       TEXT NOT NULL, -- JSON
  PRIMARY KEY (collection, name)
) STRICT;
CREATE INDEX "{table}_documents_written" ON "{table}_documents" (collection, written_at, name); -- newest first, and to delete the oldest
CREATE TABLE "{table}_format" ( -- one row
  version  INTEGER NOT NULL,
  identity TEXT NOT NULL -- that no other ledger has
) STRICT;
