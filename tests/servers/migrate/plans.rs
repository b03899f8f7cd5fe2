//! What a migration says beforehand.

use lapsed::ledger::migrate::{Method, Step};

use crate::migrate::database::{ADD_STS, Database, ROWS, Result, SEED};

#[tokio::test]
async fn a_dry_run_changes_nothing_and_shows_everything() -> Result {
    let mut database = Database::with("dry_run", &[SEED, ADD_STS, ROWS]).await?;
    let before = (database.definition("tb").await?, database.rows("tb").await?);

    let mut plan = database.plan().await?;

    assert_eq!(
        (database.definition("tb").await?, database.rows("tb").await?),
        before
    );
    assert_eq!(database.texts("SHOW TABLES").await?, ["tb"]);
    plan.rows_estimate = 13;
    let text = plan.to_string();
    let (before, identity) = text.split_once("lapsed:").expect("it gives an identity");
    let (digits, after) = identity.split_at(16);
    assert!(digits.bytes().all(|b| b.is_ascii_hexdigit()), "{digits}");
    assert_eq!(format!("{before}lapsed:0123456789abcdef{after}"), DRY_RUN);
    Ok(())
}

const DRY_RUN: &str = "\
table `tb`, about 13 rows
1. add columns `owner`, `daemon`, `lease_until`, `run_end`, `retry_at`, `attempt`, `crashes`, `max_attempts`, `adopted`, `tag`, `payload`, `last_error`, `reason`, `history`, `result`, `recurrence`, `finished_at`, `changed_at`, `progress`, `claimed_at`
   algorithm INSTANT, lock none
   ALTER TABLE `tb` ADD COLUMN `owner` BINARY(16) NULL, \
ADD COLUMN `daemon` VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '', \
ADD COLUMN `lease_until` DECIMAL(13,3) NOT NULL DEFAULT 0, \
ADD COLUMN `run_end` DECIMAL(13,3) NOT NULL DEFAULT 0, \
ADD COLUMN `retry_at` DECIMAL(13,3) NOT NULL DEFAULT 0, \
ADD COLUMN `attempt` SMALLINT UNSIGNED NOT NULL DEFAULT 0, \
ADD COLUMN `crashes` TINYINT UNSIGNED NOT NULL DEFAULT 0, \
ADD COLUMN `max_attempts` SMALLINT UNSIGNED NULL, \
ADD COLUMN `adopted` TINYINT UNSIGNED NOT NULL DEFAULT 0, \
ADD COLUMN `tag` VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL, \
ADD COLUMN `payload` MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL, \
ADD COLUMN `last_error` TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL, \
ADD COLUMN `reason` VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL, \
ADD COLUMN `history` MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL, \
ADD COLUMN `result` MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL, \
ADD COLUMN `recurrence` TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL, \
ADD COLUMN `finished_at` DECIMAL(13,3) NULL, \
ADD COLUMN `changed_at` DECIMAL(13,3) NOT NULL DEFAULT 0, \
ADD COLUMN `progress` VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL, \
ADD COLUMN `claimed_at` DECIMAL(13,3) NOT NULL DEFAULT 0
2. add generated column `due_at`
   algorithm INSTANT, lock none
   ALTER TABLE `tb` ADD COLUMN `due_at` DECIMAL(13,3) GENERATED ALWAYS AS (IF(`run_end` = `end_time`, GREATEST(`end_time`, `retry_at`), `end_time`)) VIRTUAL
3. add generated column `bucket`
   algorithm INSTANT, lock none
   ALTER TABLE `tb` ADD COLUMN `bucket` SMALLINT UNSIGNED GENERATED ALWAYS AS (CRC32(CONVERT(`key` USING utf8mb4)) & 16383) VIRTUAL
4. add generated column `recurring`
   algorithm INSTANT, lock none
   ALTER TABLE `tb` ADD COLUMN `recurring` TINYINT UNSIGNED GENERATED ALWAYS AS (IF(`recurrence` IS NULL, NULL, 1)) VIRTUAL
5. add generated column `method_crc`
   algorithm INSTANT, lock none
   ALTER TABLE `tb` ADD COLUMN `method_crc` INT UNSIGNED GENERATED ALWAYS AS (IF(`status` = 0 AND `sts` = 0, CRC32(SUBSTRING_INDEX(CONVERT(`key` USING utf8mb4), '@', 2)), NULL)) VIRTUAL
6. give column `status` the default 0
   algorithm INSTANT, lock none
   ALTER TABLE `tb` ALTER COLUMN `status` SET DEFAULT 0
7. give column `sts` the default 0
   algorithm INSTANT, lock none
   ALTER TABLE `tb` ALTER COLUMN `sts` SET DEFAULT 0
8. create a table for the surplus rows of duplicated keys
   no ALTER TABLE, at most row locks
   CREATE TABLE `tb_duplicates` LIKE `tb`
9. move 6 surplus rows of duplicated keys there (kept: the live row that falls due last, else the newest)
   no ALTER TABLE, at most row locks
   INSERT INTO `tb_duplicates` SELECT ... FROM `tb`; DELETE FROM `tb` ... (batches, a transaction each)
10. add unique key `uk_key`
   algorithm INPLACE, lock NONE
   ALTER TABLE `tb` ADD UNIQUE KEY `uk_key` (`key`)
11. add key `ix_due`
   algorithm INPLACE, lock NONE
   ALTER TABLE `tb` ADD KEY `ix_due` (`status`, `sts`, `due_at`, `id`, `bucket`)
12. add key `ix_tag`
   algorithm INPLACE, lock NONE
   ALTER TABLE `tb` ADD KEY `ix_tag` (`tag`)
13. add key `ix_method`
   algorithm INPLACE, lock NONE
   ALTER TABLE `tb` ADD KEY `ix_method` (`method_crc`, `due_at`, `id`)
14. add key `ix_recurring`
   algorithm INPLACE, lock NONE
   ALTER TABLE `tb` ADD KEY `ix_recurring` (`recurring`)
15. create the table of pauses
   no ALTER TABLE, at most row locks
   CREATE TABLE `tb_pauses` (
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
16. create the table of rates, for daemons without redis
   no ALTER TABLE, at most row locks
   CREATE TABLE `tb_rates` (
     `route`      VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- its name; of a long one the beginning, and a digest
     `full_at_ns` BIGINT NOT NULL DEFAULT 0, -- unix nanoseconds: by then all starts of its burst are there again
     PRIMARY KEY (`route`)
   ) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
17. create the table of documents, for the audit log and the history
   no ALTER TABLE, at most row locks
   CREATE TABLE `tb_documents` (
     `collection` VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- audit, history, idempotency, ..
     `name`       VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- unique in its collection
     `written_at` DECIMAL(13,3) NOT NULL, -- inserted then
     `body`       MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- JSON
     PRIMARY KEY (`collection`, `name`),
     KEY `ix_written` (`collection`, `written_at`, `name`) -- newest first, and to delete the oldest
   ) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
18. give the ledger an identity, in the table's comment
   algorithm INPLACE, lock NONE
   ALTER TABLE `tb` COMMENT='這個表用於記錄需要時間控制的任務Key,配合Redis、以及回調腳本使用 lapsed:0123456789abcdef'
";

#[tokio::test]
async fn a_plan_names_the_methods_that_the_server_then_uses() -> Result {
    let mut database = Database::with("methods", &[SEED, ADD_STS, ROWS]).await?;
    let planned: Vec<Method> = database
        .plan()
        .await?
        .steps
        .iter()
        .map(Step::method)
        .collect();
    let used: Vec<Method> = database
        .migrate()
        .await?
        .into_iter()
        .map(|(_, m)| m)
        .collect();
    assert_eq!(used, planned);
    Ok(())
}
