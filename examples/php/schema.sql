-- The task table as the old listener has it. `lapsed migrate` adopts it: these columns keep their meaning.
CREATE TABLE IF NOT EXISTS tb_time_limit_task (
  id         INT UNSIGNED NOT NULL AUTO_INCREMENT,
  `key`      VARCHAR(255) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin NOT NULL COMMENT 'Class@method@arg@arg',
  status     TINYINT UNSIGNED NOT NULL COMMENT '0 unprocessed, 1 processed',
  start_time DECIMAL(13,3) UNSIGNED NOT NULL COMMENT 'created, unix seconds',
  end_time   DECIMAL(13,3) UNSIGNED NOT NULL COMMENT 'falls due, unix seconds',
  sts        TINYINT UNSIGNED NOT NULL DEFAULT 0 COMMENT '0 live, 1 deleted',
  PRIMARY KEY (id),
  KEY ix_key (`key`)
) ENGINE=InnoDB;

-- The example's business table.
CREATE TABLE IF NOT EXISTS tb_auction_goods (
  id             INT UNSIGNED NOT NULL PRIMARY KEY,
  state          TINYINT UNSIGNED NOT NULL DEFAULT 0 COMMENT '0 open, 1 ended, 2 sold, 3 void',
  final_end_time DECIMAL(13,3) UNSIGNED NULL
) ENGINE=InnoDB;
