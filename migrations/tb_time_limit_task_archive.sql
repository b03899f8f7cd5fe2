-- Finished tasks that retention has moved here, as they were. `{table}` is replaced by the configured name. Nothing changes a row
-- of this table. Times are unix seconds with milliseconds. One column to a line: `migrate` reads the names from here, and
-- appends a partition for each month.
CREATE TABLE `{table}_archive` (
  `id`           BIGINT UNSIGNED NOT NULL, -- of the row that was moved
  `key`          VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- may have several rows: a key is free again once its task is archived
  `status`       TINYINT UNSIGNED NOT NULL,
  `start_time`   DECIMAL(13,3) UNSIGNED NOT NULL,
  `end_time`     DECIMAL(13,3) UNSIGNED NOT NULL,
  `sts`          TINYINT UNSIGNED NOT NULL,
  `owner`        BINARY(16) NULL,
  `daemon`       VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `lease_until`  DECIMAL(13,3) NOT NULL,
  `run_end`      DECIMAL(13,3) NOT NULL,
  `retry_at`     DECIMAL(13,3) NOT NULL,
  `attempt`      SMALLINT UNSIGNED NOT NULL,
  `crashes`      TINYINT UNSIGNED NOT NULL,
  `max_attempts` SMALLINT UNSIGNED NULL,
  `adopted`      TINYINT UNSIGNED NOT NULL,
  `tag`          VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  `payload`      MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  `last_error`   TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  `reason`       VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  `history`      MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  `result`       MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  `recurrence`   TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  `finished_at`  DECIMAL(13,3) NULL,
  `changed_at`   DECIMAL(13,3) NOT NULL,
  `claimed_at`   DECIMAL(13,3) NOT NULL DEFAULT 0, -- 0 also of rows that an earlier version archived
  `due_at`       DECIMAL(13,3) NOT NULL, -- not generated: nothing changes it any more
  `ended_ms`     BIGINT NOT NULL, -- unix milliseconds: finished or due, whichever was later, as retention counts the age
  PRIMARY KEY (`id`, `ended_ms`), -- the same row twice is the same entry
  KEY `ix_key` (`key`, `id`),
  KEY `ix_due` (`status`, `sts`, `due_at`, `id`), -- lists by state
  KEY `ix_tag` (`tag`, `id`)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
