-- How often tasks may start where no Redis counts it: one row for each route with a rate. `{table}` is replaced by the configured name.
-- One column to a line: `migrate` reads the names from here.
CREATE TABLE `{table}_rates` (
  `route`      VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- its name; of a long one the beginning, and a digest
  `full_at_ns` BIGINT NOT NULL DEFAULT 0, -- unix nanoseconds: by then all starts of its burst are there again
  PRIMARY KEY (`route`)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
