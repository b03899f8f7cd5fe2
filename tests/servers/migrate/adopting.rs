//! What a table becomes, whether it was there or not.

use lapsed::ledger::migrate::{
    Method, Options, Step, apply, check_optional, check_tasks, plan_with,
};

use crate::migrate::database::{ADD_STS, Database, ROWS, Result, SEED, plain, tb};

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
            (Step::CreatePauses, Method::Plain),
            (Step::CreateRates, Method::Plain),
            (Step::CreateDocuments, Method::Plain)
        ]
    );

    database.check().await?;
    assert!(database.plan().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_table_of_an_earlier_version_gets_buckets_and_an_identity() -> Result {
    let mut database = Database::new("earlier").await?;
    database.migrate().await?;
    for change in [
        "ALTER TABLE tb DROP KEY ix_due, ADD KEY ix_due (status, sts, due_at, id), COMMENT='tasks of \\'the\\' shop'",
        "ALTER TABLE tb DROP COLUMN bucket",
    ] {
        database.run(change).await?;
    }
    assert_eq!(
        database.check().await.expect_err("outdated").to_string(),
        "table `tb` lacks column `bucket`: run `lapsed migrate`"
    );

    let steps = database.migrate().await?;

    let steps: Vec<String> = steps.iter().map(|(step, _)| step.to_string()).collect();
    assert_eq!(
        steps,
        [
            "add generated column `bucket`",
            "replace key `ix_due`",
            "give the ledger an identity, in the table's comment"
        ]
    );
    database.check().await?;
    assert!(database.plan().await?.is_empty());
    let comments = "SELECT TABLE_COMMENT FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'tb'";
    let comment = database.texts(comments).await?.remove(0);
    assert!(
        comment.starts_with("tasks of 'the' shop lapsed:"),
        "{comment}"
    );
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
        "table `tb` lacks column `sts` (and 22 more): run `lapsed migrate`"
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
        "table `tb` lacks column `sts` (and 20 more): run `lapsed migrate`"
    );
    database.migrate().await?;
    database.check().await?;
    Ok(())
}

#[tokio::test]
async fn migrating_creates_and_keeps_the_table_of_pauses() -> Result {
    let mut database = Database::new("pauses").await?;
    database.migrate().await?;
    database.run("DROP TABLE tb_pauses").await?;
    assert_eq!(
        database.check().await.expect_err("outdated").to_string(),
        "table `tb` lacks its table of pauses, or this user has no privileges on it: run `lapsed migrate`"
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

    database.run("ALTER TABLE tb_pauses DROP `until`").await?;
    assert_eq!(
        database.check().await.expect_err("outdated").to_string(),
        "table `tb` lacks column `until` in its table of pauses: run `lapsed migrate`"
    );
    check_tasks(&mut database.conn, &tb()).await?;
    let step = Step::AddToPauses("until");
    assert_eq!(
        step.statement(&tb()),
        "ALTER TABLE `tb_pauses` ADD COLUMN `until` DECIMAL(13,3) NULL"
    );
    assert_eq!(database.migrate().await?, [(step, Method::Instant)]);
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
async fn without_the_tables_of_rates_and_documents_a_daemon_starts_and_migrating_makes_them()
-> Result {
    let mut database = Database::new("rates").await?;
    database.migrate().await?;
    database.run("DROP TABLE tb_rates, tb_documents").await?;
    database.check().await?;
    assert_eq!(
        database.migrate().await?,
        [
            (Step::CreateRates, Method::Plain),
            (Step::CreateDocuments, Method::Plain)
        ]
    );
    assert_eq!(database.migrate().await?, []);
    Ok(())
}

#[tokio::test]
async fn without_the_index_of_recurring_tasks_a_daemon_starts_and_migrating_adds_it_online()
-> Result {
    let mut database = Database::new("recurring").await?;
    database.migrate().await?;
    let insert = "INSERT INTO tb (`key`, start_time, end_time, recurrence) VALUES ('A@b', 1, 2, NULL), ('A@c', 1, 2, '{\"every\":\"1h\"}')";
    database.run(insert).await?;
    for lack in ["DROP KEY ix_recurring", "DROP COLUMN recurring"] {
        database.run(&format!("ALTER TABLE tb {lack}")).await?;
        database.check().await?;
        check_tasks(&mut database.conn, &tb()).await?;
    }
    let lacks = check_optional(&mut database.conn, &tb()).await;
    assert_eq!(
        lacks.expect_err("outdated").to_string(),
        "table `tb` lacks column `recurring`: run `lapsed migrate`"
    );

    let steps = database.migrate().await?;

    let steps: Vec<_> = steps
        .iter()
        .map(|(step, method)| (step.to_string(), *method))
        .collect();
    assert_eq!(
        steps,
        [
            (
                "add generated column `recurring`".to_owned(),
                Method::Instant
            ),
            ("add key `ix_recurring`".to_owned(), Method::InPlace),
        ]
    );
    check_optional(&mut database.conn, &tb()).await?;
    let found = "SELECT `key` FROM tb FORCE INDEX (ix_recurring) WHERE recurring = 1 ORDER BY id";
    assert_eq!(database.texts(found).await?, ["A@c"]);
    assert_eq!(database.migrate().await?, []);
    Ok(())
}

#[tokio::test]
async fn the_key_takes_every_character_when_that_is_asked_for() -> Result {
    let mut database = Database::with("utf8mb4", &[SEED, ADD_STS, ROWS]).await?;
    database.migrate().await?;
    let before = database.rows("tb").await?;
    let options = Options::default().utf8mb4(true);
    let plan = plan_with(&mut database.conn, &tb(), &options).await?;
    let text = plan.to_string();
    assert!(
        text.contains("1. change column `key` from varchar(255) utf8mb3_bin to varchar(255) utf8mb4_bin, so that keys may have any character"),
        "{text}"
    );
    assert!(text.contains("algorithm COPY, lock SHARED"), "{text}");
    assert_eq!(plan.steps.len(), 1);

    apply(&mut database.conn, &tb(), &options, &mut |_| {}).await?;

    assert_eq!(database.rows("tb").await?, before);
    let definition = database.definition("tb").await?;
    assert!(definition.contains("COMMENT 'Redis鍵'"), "{definition}");
    database
        .run("INSERT INTO tb (`key`, start_time, end_time) VALUES ('One@😀', 1, 2)")
        .await?;
    assert!(
        plan_with(&mut database.conn, &tb(), &options)
            .await?
            .is_empty()
    );
    assert!(database.migrate().await?.is_empty(), "it stays so");
    Ok(())
}

#[tokio::test]
async fn a_seed_table_is_adopted_and_converted_in_one_go() -> Result {
    let seed = SEED.replace("utf8_bin", "utf8_general_ci");
    let seed = seed.replace("ENGINE=InnoDB", "ENGINE=InnoDB ROW_FORMAT=COMPACT");
    let mut database = Database::with("utf8mb4_at_once", &[&seed, ADD_STS]).await?;
    let options = Options::default().utf8mb4(true);
    apply(&mut database.conn, &tb(), &options, &mut |_| {}).await?;
    database
        .run("INSERT INTO tb (`key`, start_time, end_time) VALUES ('One@😀', 1, 2), ('one@😀', 1, 2)")
        .await?;
    database.check().await?;
    Ok(())
}

#[tokio::test]
async fn an_archive_of_an_earlier_version_gets_the_column_for_the_start_of_runs() -> Result {
    let mut database = Database::new("archive_start").await?;
    let options = Options::default().archive(true);
    apply(&mut database.conn, &tb(), &options, &mut |_| {}).await?;
    database
        .run("ALTER TABLE tb_archive DROP claimed_at")
        .await?;
    let planned = plan_with(&mut database.conn, &tb(), &options).await?;
    assert_eq!(planned.steps, [Step::AddToArchive("claimed_at")]);
    apply(&mut database.conn, &tb(), &options, &mut |_| {}).await?;
    let column = "SELECT COUNT(*) FROM tb_archive WHERE claimed_at = 0";
    assert_eq!(database.number(column).await?, 0);
    let planned = plan_with(&mut database.conn, &tb(), &options).await?;
    assert!(planned.is_empty(), "{:?}", planned.steps);
    Ok(())
}
