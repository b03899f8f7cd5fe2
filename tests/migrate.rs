//! `lapsed migrate`: creating the ledger's table, and adopting one that an older program has filled.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lapsed::ledger::migrate::{
    Method, MigrateError, Options, Plan, Progress, Step, Table, apply, check, check_tasks, plan,
};
use lapsed::sandbox::PrivateMaria;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};
use tokio::sync::OnceCell;

type Result<T = (), E = Box<dyn Error>> = std::result::Result<T, E>;

/// As older programs created it, word for word.
const SEED: &str = "CREATE TABLE `tb` (
  `id` int(10) unsigned NOT NULL AUTO_INCREMENT,
  `key` varchar(255) CHARACTER SET utf8 COLLATE utf8_bin NOT NULL COMMENT 'Redis鍵',
  `status` tinyint(3) unsigned NOT NULL COMMENT '狀態,0未處理,1已處理',
  `start_time` decimal(13,3) unsigned NOT NULL COMMENT '開始時間(小數部分為毫秒)',
  `end_time` decimal(13,3) unsigned NOT NULL COMMENT '結束時間(小數部分為毫秒)',
  PRIMARY KEY (`id`),
  KEY `we` (`key`) USING BTREE
) ENGINE=InnoDB DEFAULT CHARSET=utf8 COMMENT='這個表用於記錄需要時間控制的任務Key,配合Redis、以及回調腳本使用'";

const ADD_STS: &str =
    "ALTER TABLE tb ADD COLUMN `sts` tinyint(3) unsigned NOT NULL AFTER `end_time`";

/// One key in every state, and three duplicated keys, of whose rows 2, 6 and 9 are to be kept.
const ROWS: &str = "INSERT INTO tb (id, `key`, status, start_time, end_time, sts) VALUES
  (1, 'Dup@live@a', 0, 1700000000.001, 1700000100.000, 0),
  (2, 'Dup@live@a', 0, 1700000000.002, 1700000300.123, 0),
  (3, 'Dup@live@a', 0, 1700000000.003, 1700000200.000, 0),
  (4, 'Dup@live@a', 1, 1700000000.004, 1700000900.000, 0),
  (5, 'Dup@mixed@b', 0, 1700000000.005, 1700000900.000, 1),
  (6, 'Dup@mixed@b', 0, 1700000000.006, 1700000100.000, 0),
  (7, 'Dup@mixed@b', 1, 1700000000.007, 1700000900.000, 0),
  (8, 'Dup@done@c', 1, 1700000000.008, 1700000900.000, 0),
  (9, 'Dup@done@c', 1, 1700000000.009, 1700000100.000, 0),
  (10, 'One@pending', 0, 1700000000.010, 1700000100.000, 0),
  (11, 'One@done@任務', 1, 1700000000.011, 1700000100.000, 0),
  (12, 'One@deleted', 0, 1700000000.012, 1700000100.000, 1),
  (13, 'one@pending', 0, 1700000000.013, 1700000100.000, 0)";

/// One server for all tests of this file; each has its own database.
struct Database {
    url: String,
    conn: MySqlConnection,
}

impl Database {
    async fn new(name: &str) -> Result<Self> {
        // A static is never dropped: the server dies with the process, and the next sandbox clears its directory.
        static MARIA: OnceCell<PrivateMaria> = OnceCell::const_new();
        let maria = MARIA.get_or_try_init(PrivateMaria::start).await?;
        let url = maria.create_database(name).await?;
        let conn = MySqlConnection::connect(&url).await?;
        Ok(Self { url, conn })
    }

    async fn with(name: &str, statements: &[&str]) -> Result<Self> {
        let mut database = Self::new(name).await?;
        for statement in statements {
            database.run(statement).await?;
        }
        Ok(database)
    }

    async fn run(&mut self, statement: &str) -> Result {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned()))
            .execute(&mut self.conn)
            .await?;
        Ok(())
    }

    async fn texts(&mut self, query: &str) -> Result<Vec<String>> {
        Ok(sqlx::query_scalar(AssertSqlSafe(query.to_owned()))
            .fetch_all(&mut self.conn)
            .await?)
    }

    async fn number(&mut self, query: &str) -> Result<i64> {
        Ok(sqlx::query_scalar(AssertSqlSafe(query.to_owned()))
            .fetch_one(&mut self.conn)
            .await?)
    }

    /// The rows of a table, each in one line.
    async fn rows(&mut self, table: &str) -> Result<Vec<String>> {
        self.texts(&format!(
            "SELECT CONCAT_WS(' ', id, `key`, status, start_time, end_time, sts) FROM {table} ORDER BY id"
        ))
        .await
    }

    async fn kept(&mut self) -> Result<Vec<String>> {
        self.texts("SELECT CAST(id AS CHAR) FROM tb ORDER BY id")
            .await
    }

    async fn definition(&mut self, table: &str) -> Result<String> {
        let row: (String, String) =
            sqlx::query_as(AssertSqlSafe(format!("SHOW CREATE TABLE `{table}`")))
                .fetch_one(&mut self.conn)
                .await?;
        Ok(row.1)
    }

    async fn connect(&self) -> Result<MySqlConnection> {
        Ok(MySqlConnection::connect(&self.url).await?)
    }

    async fn plan(&mut self) -> Result<Plan, MigrateError> {
        plan(&mut self.conn, &tb()).await
    }

    async fn check(&mut self) -> Result<(), MigrateError> {
        check(&mut self.conn, &tb()).await
    }

    async fn migrate(&mut self) -> Result<Vec<(Step, Method)>, MigrateError> {
        let mut done = Vec::new();
        apply(
            &mut self.conn,
            &tb(),
            &Options::default(),
            &mut |progress| {
                if let Progress::Done { step, method } = progress {
                    done.push((step.clone(), method));
                }
            },
        )
        .await?;
        Ok(done)
    }

    /// The message of the refusal, which planning, checking and applying must agree on.
    async fn refusal(&mut self) -> Result<String> {
        let planned = self.plan().await.expect_err("a refusal").to_string();
        assert_eq!(
            self.migrate().await.expect_err("a refusal").to_string(),
            planned
        );
        assert_eq!(
            self.check().await.expect_err("a refusal").to_string(),
            planned
        );
        Ok(planned)
    }
}

fn tb() -> Table {
    Table::new("tb").expect("a plain word")
}

fn quietly(_: Progress<'_>) {}

#[tokio::test]
async fn an_absent_table_is_created() -> Result {
    let mut database = Database::new("absent").await?;
    assert_eq!(
        database.check().await.expect_err("no table").to_string(),
        "table `tb` does not exist: run `lapsed migrate`"
    );

    assert_eq!(
        database.migrate().await?,
        [
            (Step::CreateTable, Method::Plain),
            (Step::CreatePauses, Method::Plain)
        ]
    );

    database.check().await?;
    assert!(database.plan().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn adopting_a_seed_table_keeps_every_row() -> Result {
    let mut database = Database::with("every_row", &[SEED, ADD_STS, ROWS]).await?;
    let before = database.rows("tb").await?;

    database.migrate().await?;

    database.check().await?;
    let (kept, moved) = (
        database.rows("tb").await?,
        database.rows("tb_duplicates").await?,
    );
    let mut after = [kept, moved].concat();
    after.sort_by_key(|row| row.split(' ').next().map(str::parse::<u64>).map(Result::ok));
    assert_eq!(after, before);
    Ok(())
}

#[tokio::test]
async fn of_a_duplicated_key_the_live_row_due_last_is_kept_else_the_newest() -> Result {
    let mut database = Database::with("kept", &[SEED, ADD_STS, ROWS]).await?;
    database.migrate().await?;
    assert_eq!(
        database.kept().await?,
        ["2", "6", "9", "10", "11", "12", "13"]
    );
    Ok(())
}

#[tokio::test]
async fn of_live_rows_that_fall_due_together_the_newest_is_kept() -> Result {
    let mut database = Database::with(
        "tie",
        &[
            SEED,
            "INSERT INTO tb (`key`, status, start_time, end_time) VALUES ('A@b', 0, 1, 5), ('A@b', 0, 1, 5), ('A@b', 0, 1, 4)",
        ],
    )
    .await?;
    database.migrate().await?;
    assert_eq!(database.kept().await?, ["2"]);
    Ok(())
}

#[tokio::test]
async fn a_live_row_is_kept_even_if_it_was_due_at_0() -> Result {
    let mut database = Database::with(
        "due_at_0",
        &[
            SEED,
            "INSERT INTO tb (`key`, status, start_time, end_time) VALUES ('A@b', 0, 0, 0), ('A@b', 1, 1, 9)",
        ],
    )
    .await?;
    database.migrate().await?;
    assert_eq!(database.kept().await?, ["1"]);
    Ok(())
}

#[tokio::test]
async fn many_duplicates_are_moved_in_batches() -> Result {
    let mut database = Database::with(
        "many",
        &[
            SEED,
            "INSERT INTO tb (`key`, status, start_time, end_time) SELECT CONCAT('A@b@', seq % 700), seq % 2, 1, seq FROM \
               JSON_TABLE(CONCAT('[0', REPEAT(',0', 2800 - 1), ']'), '$[*]' COLUMNS (seq FOR ORDINALITY)) AS numbers",
        ],
    )
    .await?;
    database.migrate().await?;
    assert_eq!(database.number("SELECT COUNT(*) FROM tb").await?, 700);
    assert_eq!(
        database
            .number("SELECT COUNT(*) FROM tb_duplicates")
            .await?,
        2100
    );
    Ok(())
}

#[tokio::test]
async fn a_row_with_id_0_keeps_it() -> Result {
    let mut database = Database::with(
        "id_0",
        &[
            SEED,
            "SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO'",
            "INSERT INTO tb VALUES (0, 'A@b', 0, 1, 5), (7, 'A@b', 0, 1, 6)",
        ],
    )
    .await?;
    database.migrate().await?;
    assert_eq!(
        database
            .texts("SELECT CAST(id AS CHAR) FROM tb_duplicates")
            .await?,
        ["0"]
    );
    Ok(())
}

#[tokio::test]
async fn a_seed_table_without_sts_gets_it() -> Result {
    let mut database = Database::with(
        "without_sts",
        &[SEED, "INSERT INTO tb VALUES (1, 'A@b', 0, 1, 5)"],
    )
    .await?;
    assert_eq!(
        database.check().await.expect_err("outdated").to_string(),
        "table `tb` lacks column `sts` (and 18 more): run `lapsed migrate`"
    );
    database.migrate().await?;
    assert_eq!(
        database
            .number("SELECT CAST(sts AS SIGNED) FROM tb")
            .await?,
        0
    );
    Ok(())
}

/// A definition as MariaDB and MySQL both could have put it: without widths for display, numbers without quotes.
fn plain(definition: &str) -> String {
    definition
        .replace("int(10)", "int")
        .replace("int(11)", "int")
        .replace("tinyint(3)", "tinyint")
        .replace("DEFAULT '0'", "DEFAULT 0")
}

#[tokio::test]
async fn the_id_the_charset_and_the_comments_are_left_alone() -> Result {
    let mut database = Database::with("left_alone", &[SEED, ADD_STS, ROWS]).await?;
    database.migrate().await?;
    let after = plain(&database.definition("tb").await?);
    for line in [
        "`id` int unsigned NOT NULL AUTO_INCREMENT",
        "`key` varchar(255) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin NOT NULL COMMENT 'Redis鍵'",
        "`status` tinyint unsigned NOT NULL DEFAULT 0 COMMENT '狀態,0未處理,1已處理'",
        "`sts` tinyint unsigned NOT NULL DEFAULT 0",
        "KEY `we` (`key`) USING BTREE",
        "DEFAULT CHARSET=utf8mb3",
        "配合Redis、以及回調腳本使用",
    ] {
        assert!(after.contains(line), "{line} is not in {after}");
    }
    Ok(())
}

#[tokio::test]
async fn running_twice_changes_nothing() -> Result {
    let mut database = Database::with("twice", &[SEED, ADD_STS, ROWS]).await?;
    database.migrate().await?;
    let before = (
        database.definition("tb").await?,
        database.rows("tb").await?,
        database.rows("tb_duplicates").await?,
    );

    assert_eq!(database.migrate().await?, []);

    let after = (
        database.definition("tb").await?,
        database.rows("tb").await?,
        database.rows("tb_duplicates").await?,
    );
    assert_eq!(after, before);
    Ok(())
}

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
    assert_eq!(plan.to_string(), DRY_RUN);
    Ok(())
}

const DRY_RUN: &str = "\
table `tb`, about 13 rows
1. add columns `owner`, `daemon`, `lease_until`, `run_end`, `retry_at`, `attempt`, `crashes`, `max_attempts`, `adopted`, `tag`, `payload`, `last_error`, `reason`, `history`, `result`, `recurrence`, `finished_at`
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
ADD COLUMN `finished_at` DECIMAL(13,3) NULL
2. add generated column `due_at`
   algorithm INSTANT, lock none
   ALTER TABLE `tb` ADD COLUMN `due_at` DECIMAL(13,3) GENERATED ALWAYS AS (IF(`run_end` = `end_time`, GREATEST(`end_time`, `retry_at`), `end_time`)) VIRTUAL
3. give column `status` the default 0
   algorithm INSTANT, lock none
   ALTER TABLE `tb` ALTER COLUMN `status` SET DEFAULT 0
4. give column `sts` the default 0
   algorithm INSTANT, lock none
   ALTER TABLE `tb` ALTER COLUMN `sts` SET DEFAULT 0
5. create a table for the surplus rows of duplicated keys
   no ALTER TABLE, at most row locks
   CREATE TABLE `tb_duplicates` LIKE `tb`
6. move 6 surplus rows of duplicated keys there (kept: the live row that falls due last, else the newest)
   no ALTER TABLE, at most row locks
   INSERT INTO `tb_duplicates` SELECT ... FROM `tb`; DELETE FROM `tb` ... (batches, a transaction each)
7. add unique key `uk_key`
   algorithm INPLACE, lock NONE
   ALTER TABLE `tb` ADD UNIQUE KEY `uk_key` (`key`)
8. add key `ix_due`
   algorithm INPLACE, lock NONE
   ALTER TABLE `tb` ADD KEY `ix_due` (`status`, `sts`, `due_at`, `id`)
9. add key `ix_tag`
   algorithm INPLACE, lock NONE
   ALTER TABLE `tb` ADD KEY `ix_tag` (`tag`)
10. create a table for what is paused
   no ALTER TABLE, at most row locks
   CREATE TABLE `tb_pauses` (
     `kind`       VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- pause; hold: what was due before; release: not held any more
     `class`      VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- '' = every class
     `method`     VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- '' = every method
     `since`      DECIMAL(13,3) NOT NULL, -- set then
     `due_before` DECIMAL(13,3) NULL, -- of a hold: it keeps back what has an earlier end_time
     `set_by`     VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '', -- by whom, for people
     `reason`     VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '', -- why, for people
     PRIMARY KEY (`kind`, `class`, `method`)
   ) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
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

#[tokio::test]
async fn programs_that_know_only_the_first_columns_go_on_writing() -> Result {
    let mut database = Database::with("old_programs", &[SEED, ADD_STS]).await?;
    database.migrate().await?;
    database
        .run("INSERT INTO tb (`key`, status, start_time, end_time, sts) VALUES ('A@b', 0, 1700000000, 1700000005.25, 0)")
        .await?;
    database
        .run(
            "INSERT INTO tb (`key`, start_time, end_time) VALUES ('A@c', 1700000000, 1700000006.5)",
        )
        .await?;
    database
        .run("UPDATE tb SET status = 1 WHERE `key` = 'A@b'")
        .await?;
    assert_eq!(
        database
            .texts("SELECT CONCAT_WS(' ', `key`, status, sts, due_at) FROM tb ORDER BY id")
            .await?,
        ["A@b 1 0 1700000005.250", "A@c 0 0 1700000006.500"]
    );
    Ok(())
}

#[tokio::test]
async fn a_key_that_compares_without_case_is_changed_so_that_no_task_is_taken_for_another() -> Result
{
    let seed = SEED.replace("COLLATE utf8_bin", "COLLATE utf8_general_ci");
    let mut database = Database::with("without_case", &[&seed, ADD_STS, ROWS]).await?;
    let plan = database.plan().await?;
    assert_eq!(
        plan.steps[0].to_string(),
        "change column `key` from varchar(255) utf8mb3_general_ci to varchar(255) utf8mb3_bin, so that keys compare byte by byte"
    );
    assert!(plan.steps.contains(&Step::MoveDuplicates { rows: 6 }));

    database.migrate().await?;

    assert_eq!(
        database.kept().await?,
        ["2", "6", "9", "10", "11", "12", "13"]
    );
    assert!(
        database
            .definition("tb")
            .await?
            .contains("COMMENT 'Redis鍵'")
    );
    Ok(())
}

#[tokio::test]
async fn a_key_that_is_already_unique_is_not_indexed_again() -> Result {
    let seed = SEED.replace("KEY `we`", "UNIQUE KEY `their_own`");
    let mut database = Database::with("unique", &[&seed]).await?;
    database.migrate().await?;
    let after = database.definition("tb").await?;
    assert!(!after.contains("uk_key"), "{after}");
    database.check().await?;
    Ok(())
}

#[tokio::test]
async fn whatever_step_a_run_ended_after_the_next_one_finishes() -> Result {
    let mut whole = Database::with("whole", &[SEED, ADD_STS, ROWS]).await?;
    let steps = whole.migrate().await?.len();
    let (definition, rows) = (whole.definition("tb").await?, whole.rows("tb").await?);
    assert!(steps > 5, "only {steps} steps to end after");

    for ended_after in 0..steps {
        let name = format!("ended_after_{ended_after}");
        let mut database = Database::with(&name, &[SEED, ADD_STS, ROWS]).await?;
        end_after(&mut database, ended_after).await?;
        database.migrate().await?;
        assert_eq!(database.definition("tb").await?, definition, "{name}");
        assert_eq!(database.rows("tb").await?, rows, "{name}");
        assert_eq!(database.rows("tb_duplicates").await?.len(), 6, "{name}");
    }
    Ok(())
}

/// Ends a migration, and its connection, when it begins the step after `steps` ones.
async fn end_after(database: &mut Database, steps: usize) -> Result {
    let mut conn = database.connect().await?;
    let table = tb();
    let (options, mut begun) = (Options::default(), 0);
    let panicked = tokio::spawn(async move {
        apply(&mut conn, &table, &options, &mut |progress| {
            if let Progress::Begun(_) = progress {
                assert!(begun < steps, "ended here");
                begun += 1;
            }
        })
        .await
    })
    .await;
    assert!(panicked.is_err_and(|error| error.is_panic()));
    Ok(())
}

#[tokio::test]
async fn a_move_that_was_cut_off_midway_is_finished() -> Result {
    let mut database = Database::with("cut_off", &[SEED, ADD_STS, ROWS]).await?;
    end_after(&mut database, 5).await?;
    // As after one committed batch.
    database
        .run(
            "INSERT INTO tb_duplicates (id, `key`, status, start_time, end_time, sts) \
             SELECT id, `key`, status, start_time, end_time, sts FROM tb WHERE id IN (1, 5); \
             DELETE FROM tb WHERE id IN (1, 5)",
        )
        .await?;
    database.migrate().await?;
    assert_eq!(
        database
            .texts("SELECT CAST(id AS CHAR) FROM tb_duplicates ORDER BY id")
            .await?,
        ["1", "3", "4", "5", "7", "8"]
    );
    Ok(())
}

#[tokio::test]
async fn a_table_with_some_of_the_columns_is_completed() -> Result {
    let mut database = Database::with(
        "some_columns",
        &[
            SEED,
            "ALTER TABLE tb ADD COLUMN tag VARCHAR(128) NULL, ADD COLUMN run_end DECIMAL(13,3) NOT NULL DEFAULT 0, ADD COLUMN note TEXT NULL",
        ],
    )
    .await?;
    assert_eq!(
        database.check().await.expect_err("outdated").to_string(),
        "table `tb` lacks column `sts` (and 16 more): run `lapsed migrate`"
    );
    database.migrate().await?;
    database.check().await?;
    Ok(())
}

#[tokio::test]
async fn a_table_that_lacks_one_thing_is_told_which() -> Result {
    let mut database = Database::new("one_thing").await?;
    database.migrate().await?;
    for (damage, lack) in [
        ("DROP INDEX ix_tag", "lacks index `ix_tag`"),
        ("DROP INDEX uk_key", "lacks index `uk_key`"),
        ("DROP COLUMN owner", "lacks column `owner`"),
        (
            "ALTER COLUMN status DROP DEFAULT",
            "is not up to date (give column `status` the default 0)",
        ),
    ] {
        database.run(&format!("ALTER TABLE tb {damage}")).await?;
        assert_eq!(
            database.check().await.expect_err(damage).to_string(),
            format!("table `tb` {lack}: run `lapsed migrate`")
        );
        database.migrate().await?;
        database.check().await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_table_of_pauses_is_wanted_and_kept() -> Result {
    let mut database = Database::new("pauses").await?;
    database.migrate().await?;
    database.run("DROP TABLE tb_pauses").await?;
    assert_eq!(
        database.check().await.expect_err("outdated").to_string(),
        "table `tb` lacks its table of pauses, or this user has no right on that: run `lapsed migrate`"
    );
    check_tasks(&mut database.conn, &tb()).await?;
    assert_eq!(
        database.migrate().await?,
        [(Step::CreatePauses, Method::Plain)]
    );
    database
        .run("INSERT INTO tb_pauses (kind, class, method, since) VALUES ('pause', 'A', '', 1)")
        .await?;
    assert_eq!(database.migrate().await?, []);
    assert_eq!(database.number("SELECT COUNT(*) FROM tb_pauses").await?, 1);

    database.run("ALTER TABLE tb_pauses DROP set_by").await?;
    assert_eq!(
        database.refusal().await?,
        "table `tb` cannot be adopted: table `tb_pauses` for its pauses exists, but lacks column `set_by`: rename it"
    );
    Ok(())
}

#[tokio::test]
async fn a_table_that_cannot_be_adopted_is_refused_with_what_was_expected() -> Result {
    for (name, change, problem) in [
        (
            "datetime",
            "MODIFY end_time DATETIME NOT NULL",
            "column `end_time` is `datetime NOT NULL`, expected `DECIMAL(13,3) UNSIGNED NOT NULL`",
        ),
        (
            "seconds",
            "MODIFY end_time INT UNSIGNED NOT NULL",
            "column `end_time` is `int unsigned NOT NULL`, expected `DECIMAL(13,3) UNSIGNED NOT NULL`",
        ),
        (
            "microseconds",
            "MODIFY end_time DECIMAL(16,6) NOT NULL",
            "column `end_time` is `decimal(16,6) NOT NULL`, expected `DECIMAL(13,3) UNSIGNED NOT NULL`",
        ),
        (
            "text_status",
            "MODIFY status VARCHAR(10) NOT NULL",
            "column `status` is `varchar(10) NOT NULL`, expected `TINYINT UNSIGNED NOT NULL DEFAULT 0`",
        ),
        (
            "foreign_owner",
            "ADD COLUMN owner INT NULL",
            "column `owner` is `int`, expected `BINARY(16) NULL`",
        ),
        (
            "obligatory_daemon",
            "ADD COLUMN daemon VARCHAR(64) NOT NULL",
            "column `daemon` is `varchar(64) NOT NULL`, expected `VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT ''`",
        ),
        (
            "other_due_at",
            "ADD COLUMN due_at DECIMAL(13,3) AS (end_time) VIRTUAL",
            "column `due_at` is `decimal(13,3) AS (`end_time`)`, expected `DECIMAL(13,3) GENERATED ALWAYS AS \
             (IF(`run_end` = `end_time`, GREATEST(`end_time`, `retry_at`), `end_time`)) VIRTUAL`",
        ),
        (
            "obligatory",
            "ADD COLUMN shop INT NOT NULL",
            "column `shop` has no default, so no row could be inserted without it: give it one",
        ),
        (
            "not_tasks",
            "DROP COLUMN end_time",
            "it has no column `end_time`, so it is not a table of tasks",
        ),
        (
            "engine",
            "ENGINE=MyISAM",
            "its engine is `MyISAM`, expected `InnoDB`: change it with `ALTER TABLE ... ENGINE=InnoDB` first",
        ),
        (
            "primary",
            "DROP PRIMARY KEY, ADD PRIMARY KEY (id, end_time)",
            "its primary key is not `id` alone",
        ),
        (
            "namesake",
            "ADD KEY ix_due (end_time)",
            "its index `ix_due` is on (end_time), expected `KEY `ix_due` (`status`, `sts`, `due_at`, `id`)`: rename or drop it first",
        ),
    ] {
        let mut database = Database::with(name, &[SEED]).await?;
        database.run(&format!("ALTER TABLE tb {change}")).await?;
        let before = database.definition("tb").await?;
        assert_eq!(
            plain(&database.refusal().await?),
            format!("table `tb` cannot be adopted: {problem}")
        );
        assert_eq!(database.definition("tb").await?, before);
    }
    Ok(())
}

#[tokio::test]
async fn a_view_is_refused() -> Result {
    let mut database = Database::with("view", &["CREATE VIEW tb AS SELECT 1 AS id"]).await?;
    assert_eq!(
        database.refusal().await?,
        "table `tb` cannot be adopted: it is a view, expected a table"
    );
    Ok(())
}

#[tokio::test]
async fn a_connection_without_a_database_is_refused() -> Result {
    let mut database = Database::new("unselected").await?;
    let (server, _) = database.url.rsplit_once('/').ok_or("a URL")?;
    database.conn = MySqlConnection::connect(server).await?;
    assert_eq!(
        database.refusal().await?,
        "no database is selected: name one in the URL, as in `mysql://host/lapsed`"
    );
    Ok(())
}

#[tokio::test]
async fn two_migrations_at_once_do_it_once() -> Result {
    for (name, setup) in [
        ("at_once_absent", &[][..]),
        ("at_once_seed", &[SEED, ADD_STS, ROWS][..]),
    ] {
        let mut database = Database::with(name, setup).await?;
        let (mut one, mut other) = (database.connect().await?, database.connect().await?);
        let (table, options) = (tb(), Options::default());
        let (mut tell_one, mut tell_other) = (quietly, quietly);
        tokio::try_join!(
            apply(&mut one, &table, &options, &mut tell_one),
            apply(&mut other, &table, &options, &mut tell_other),
        )?;
        database.check().await?;
        if !setup.is_empty() {
            assert_eq!(database.kept().await?.len(), 7);
            assert_eq!(database.rows("tb_duplicates").await?.len(), 6);
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_migration_that_waits_for_another_gives_up_in_time() -> Result {
    let mut database = Database::with("busy", &[SEED]).await?;
    let mut other = database.connect().await?;
    sqlx::raw_sql("DO GET_LOCK(LEFT(CONCAT('lapsed:', DATABASE(), '.tb'), 64), 0)")
        .execute(&mut other)
        .await?;
    let options = Options::default().lock_wait(Duration::from_secs(1));
    let busy = apply(&mut database.conn, &tb(), &options, &mut quietly).await;
    assert_eq!(
        busy.expect_err("it is locked").to_string(),
        "another `lapsed migrate` of table `tb` is still running after 1 s"
    );
    Ok(())
}

#[tokio::test]
async fn a_long_transaction_blocks_a_migration_only_for_so_long() -> Result {
    let mut database = Database::with("blocked", &[SEED, ADD_STS, ROWS]).await?;
    let mut other = database.connect().await?;
    let mut tx = other.begin().await?;
    sqlx::query("UPDATE tb SET status = 1 WHERE id = 10")
        .execute(&mut *tx)
        .await?;

    let options = Options::default().lock_wait(Duration::from_secs(1));
    let blocked = apply(&mut database.conn, &tb(), &options, &mut quietly).await;
    let message = blocked.expect_err("the table is in use").to_string();
    assert!(
        message.starts_with(
            "table `tb` was in use by other transactions for 1 s, so `ALTER TABLE `tb` ADD COLUMN"
        ),
        "{message}"
    );

    tx.rollback().await?;
    database.migrate().await?;
    database.check().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_inserted_twice_before_the_unique_key_is_there_is_moved_in_another_round() -> Result {
    let mut database = Database::with("another_round", &[SEED, ADD_STS, ROWS]).await?;
    let mut writer = database.connect().await?;
    let (told, mut to_write) =
        tokio::sync::mpsc::unbounded_channel::<std::sync::mpsc::Sender<()>>();
    // An old program, between its SELECT and its INSERT for a key that somebody else inserted meanwhile.
    let writing = tokio::spawn(async move {
        while let Some(written) = to_write.recv().await {
            let inserted = sqlx::query(
                "INSERT INTO tb (`key`, status, start_time, end_time, sts) VALUES ('One@pending', 0, 1, 1800000000, 0)",
            )
            .execute(&mut writer)
            .await;
            // Dropped when the insert fails, which ends the wait with an error.
            inserted.map(|_| written.send(()).expect("the migration waits"))?;
        }
        Ok::<_, sqlx::Error>(())
    });
    let (mut rounds, mut started_over) = (0, 0);
    apply(
        &mut database.conn,
        &tb(),
        &Options::default(),
        &mut |progress| match progress {
            Progress::Begun(Step::AddIndex(index)) if index.unique && rounds < 3 => {
                rounds += 1;
                let (written, wait) = std::sync::mpsc::channel();
                told.send(written).expect("the writer runs");
                tokio::task::block_in_place(|| wait.recv()).expect("it is written");
            }
            Progress::StartedOver(_) => started_over += 1,
            _ => {}
        },
    )
    .await?;
    drop(told);
    writing.await??;

    assert_eq!(started_over, 3);
    assert_eq!(
        database
            .texts("SELECT CAST(end_time AS CHAR) FROM tb WHERE `key` = 'One@pending'")
            .await?,
        ["1800000000.000"]
    );
    assert_eq!(database.rows("tb_duplicates").await?.len(), 6 + 3);
    Ok(())
}

#[tokio::test]
async fn writers_that_never_stop_do_not_lose_a_row() -> Result {
    let mut database = Database::with("writers", &[SEED, ADD_STS, ROWS]).await?;
    let migrated = Arc::new(AtomicBool::new(false));
    let writers = [1, 2].map(|writer| {
        let (url, migrated) = (database.url.clone(), Arc::clone(&migrated));
        tokio::spawn(async move {
            let mut conn = MySqlConnection::connect(&url).await?;
            let mut written = 0;
            while !migrated.load(Ordering::Relaxed) {
                sqlx::query(
                    "INSERT INTO tb (`key`, status, start_time, end_time, sts) VALUES (CONCAT('A@b@', ?, '@', ?), 0, 1, 2, 0)",
                )
                .bind(writer)
                .bind(written)
                .execute(&mut conn)
                .await?;
                written += 1;
            }
            Ok::<i64, sqlx::Error>(written)
        })
    });
    database.migrate().await?;
    migrated.store(true, Ordering::Relaxed);
    let mut written = 0;
    for writer in writers {
        written += writer.await??;
    }
    database.check().await?;
    assert!(written > 0, "the writers never ran");
    assert_eq!(
        database
            .number("SELECT COUNT(*) FROM tb WHERE `key` LIKE 'A@b@%'")
            .await?,
        written
    );
    Ok(())
}

#[test]
fn a_table_name_is_a_short_word() {
    for good in ["t", "tb_time_limit_task", "A1", &"x".repeat(55)] {
        assert!(Table::new(good).is_ok(), "{good}");
    }
    for bad in ["", "a-b", "a`b", "a.b", "任務", &"x".repeat(56)] {
        assert_eq!(
            Table::new(bad).expect_err(bad).to_string(),
            format!(
                "table name `{bad}` is not usable: expected 1 to 55 of the characters `A-Z a-z 0-9 _`"
            )
        );
    }
}
