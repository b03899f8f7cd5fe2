-- What is paused and held: one row for each pause. `{table}` is replaced by the configured name.
-- Times are unix seconds with milliseconds. One column to a line: `migrate` reads the names from here.
CREATE TABLE `{table}_pauses` (
  `kind`       VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- pause; hold: what was due before; release: not held any more
  `class`      VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- '' = every class
  `method`     VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- '' = every method
  `since`      DECIMAL(13,3) NOT NULL, -- set then
  `due_before` DECIMAL(13,3) NULL, -- of a hold: it keeps back what has an earlier end_time
  `until`      DECIMAL(13,3) NULL, -- of a pause: it ends by itself then, by the clock of the database
  `set_by`     VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '', -- by whom, for people
  `reason`     VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '', -- why, for people
  PRIMARY KEY (`kind`, `class`, `method`)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
