-- The ledger: one row per task. `{table}` is replaced by the configured name.
--
-- The first six columns are those of the programs that `lapsed` adopts, with their meaning; all others have
-- defaults, so that such a program goes on inserting rows. Times are unix seconds with milliseconds.
-- One column to a line: `migrate` reads the definitions of missing columns from here.
CREATE TABLE `{table}` (
  `id`           BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  `key`          VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- Class@method[@arg]*
  `status`       TINYINT UNSIGNED NOT NULL DEFAULT 0, -- 0 unprocessed, 1 processed, 2 dead, 3 cancelled by lapsed
  `start_time`   DECIMAL(13,3) UNSIGNED NOT NULL, -- created
  `end_time`     DECIMAL(13,3) UNSIGNED NOT NULL, -- falls due; identifies the arming
  `sts`          TINYINT UNSIGNED NOT NULL DEFAULT 0, -- 0 live, 1 deleted
  `owner`        BINARY(16) NULL, -- random token of the latest claim; stays after settling, as proof of who settled
  `daemon`       VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '', -- who holds it, for people
  `lease_until`  DECIMAL(13,3) NOT NULL DEFAULT 0, -- void once past; 0 and below = free, a negative number says how the latest claim ended
  `run_end`      DECIMAL(13,3) NOT NULL DEFAULT 0, -- the arming (end_time) that retry_at, attempt and crashes belong to
  `retry_at`     DECIMAL(13,3) NOT NULL DEFAULT 0, -- not before, after a failed attempt
  `attempt`      SMALLINT UNSIGNED NOT NULL DEFAULT 0, -- runs started
  `crashes`      TINYINT UNSIGNED NOT NULL DEFAULT 0, -- leases that ran out
  `max_attempts` SMALLINT UNSIGNED NULL, -- runs, not retries; null = the route's
  `adopted`      TINYINT UNSIGNED NOT NULL DEFAULT 0, -- 1: written on behalf of a bare SETEX; 2: and cancelled by its DEL; 3: on behalf of an entry of a sorted set
  `tag`          VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL, -- chosen by the creator, to find and cancel by
  `payload`      MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL, -- JSON
  `last_error`   TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL, -- of the latest failed attempt
  `reason`       VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL, -- why it is dead, in one word; of a series that goes on: how its latest occurrence ended, and when that was due
  `history`      MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL, -- the last failed attempts, one JSON object to a line, the newest first
  `result`       MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL, -- JSON, of the run that succeeded, if it is kept
  `recurrence`   TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL, -- JSON: how it arms itself again
  `finished_at`  DECIMAL(13,3) NULL, -- done, dead or cancelled since
  `changed_at`   DECIMAL(13,3) NOT NULL DEFAULT 0, -- the last word on the arming by lapsed; keys armed before it say nothing; 0 = see start_time
  `progress`     VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL, -- of a run: `<owner> <percent> <text>`, void unless it is the owner of the row
  `claimed_at`   DECIMAL(13,3) NOT NULL DEFAULT 0, -- the latest claim, which is the start of its run; 0 = claimed by an earlier version, or never
  `due_at`       DECIMAL(13,3) GENERATED ALWAYS AS (IF(`run_end` = `end_time`, GREATEST(`end_time`, `retry_at`), `end_time`)) VIRTUAL, -- when it may run next
  `bucket`       SMALLINT UNSIGNED GENERATED ALWAYS AS (CRC32(CONVERT(`key` USING utf8mb4)) & 16383) VIRTUAL, -- which of several daemons reads it ahead
  `recurring`    TINYINT UNSIGNED GENERATED ALWAYS AS (IF(`recurrence` IS NULL, NULL, 1)) VIRTUAL, -- 1 if it has a recurrence; must not read the text, which may be off-page: MDEV-38140
  `method_crc`   INT UNSIGNED GENERATED ALWAYS AS (IF(`status` = 0 AND `sts` = 0, CRC32(SUBSTRING_INDEX(CONVERT(`key` USING utf8mb4), '@', 2)), NULL)) VIRTUAL, -- of Class@method while unprocessed and live
  UNIQUE KEY `uk_key` (`key`), -- one row per key, so that one claim decides
  KEY `ix_due` (`status`, `sts`, `due_at`, `id`, `bucket`), -- sweep and look-ahead
  KEY `ix_tag` (`tag`),
  KEY `ix_method` (`method_crc`, `due_at`, `id`), -- sweep, by class and method; not by status: statements with a key and a status would use it
  KEY `ix_recurring` (`recurring`) -- lists of recurring tasks
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
