//! Migrations that are cut off, that wait, and that meet writers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lapsed::ledger::migrate::{Options, Progress, apply};
use sqlx::{Connection, MySqlConnection};

use crate::migrate::database::{ADD_STS, Database, ROWS, Result, SEED, quietly, tb};

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
pub async fn end_after(database: &mut Database, steps: usize) -> Result {
    let mut conn = database.connect().await?;
    let table = tb();
    let (options, mut begun) = (Options::default(), 0);
    let panicked = tokio::spawn(async move {
        apply(&mut conn, &table, &options, &mut |progress| {
            if let Progress::Started(_) = progress {
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
