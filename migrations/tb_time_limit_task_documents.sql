-- Small JSON texts beside the tasks: the audit log, samples of the history, answers of repeatable batches. `{table}` is replaced by the
-- configured name. Times are unix seconds with milliseconds. One column to a line: `migrate` reads the names from here.
CREATE TABLE `{table}_documents` (
  `collection` VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- audit, history, idempotency, ..
  `name`       VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- unique in its collection
  `written_at` DECIMAL(13,3) NOT NULL, -- inserted then
  `body`       MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- JSON
  PRIMARY KEY (`collection`, `name`),
  KEY `ix_written` (`collection`, `written_at`, `name`) -- newest first, and to delete the oldest
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
