//! Tables that are not taken, and why.

use lapsed::ledger::migrate::{Options, Progress, Step, apply};
use sqlx::{Connection, MySqlConnection};

use crate::migrate::database::{Database, Result, SEED, plain, tb};

#[tokio::test]
async fn an_incomplete_table_is_rejected_and_the_missing_part_named() -> Result {
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
            "its index `ix_due` is on (end_time), expected `KEY `ix_due` (`status`, `sts`, `due_at`, `id`, `bucket`)`: rename or drop it first",
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
async fn missing_rights_on_the_side_tables_cause_no_migration_step() -> Result {
    let mut database = Database::new("denied").await?;
    database.migrate().await?;
    for statement in [
        "CREATE USER denied_user@'%' IDENTIFIED BY 'pw'",
        "GRANT SELECT, INSERT, UPDATE ON denied.tb TO denied_user@'%'",
        "GRANT SELECT ON denied.tb_pauses TO denied_user@'%'",
    ] {
        database.run(statement).await?;
    }
    let url = database.url.replace("root@", "denied_user:pw@");
    let mut conn = MySqlConnection::connect(&url).await?;
    let mut skipped = Vec::new();
    let options = Options::default();
    apply(&mut conn, &tb(), &options, &mut |progress| {
        if let Progress::Skipped(step) = progress {
            skipped.push(step.clone());
        }
    })
    .await?;
    assert_eq!(skipped, [Step::CreateRates, Step::CreateDocuments]);

    database.run("ALTER TABLE tb DROP INDEX ix_tag").await?;
    let denied = apply(&mut conn, &tb(), &options, &mut |_| {}).await;
    assert_eq!(
        denied.expect_err("no right").to_string(),
        "cannot add key `ix_tag`: this user lacks the privileges for it; \
         migrate as a user with ALTER, CREATE, INDEX and INSERT on the database of table `tb`"
    );
    Ok(())
}
