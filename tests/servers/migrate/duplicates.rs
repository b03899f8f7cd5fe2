//! Rows that share a key: one is kept, the others are moved aside.

use lapsed::ledger::migrate::{Options, Progress, Step, apply};

use crate::migrate::database::{ADD_STS, Database, ROWS, Result, SEED, tb};
use crate::migrate::interruptions::end_after;

#[tokio::test]
async fn the_live_row_due_last_of_a_duplicated_key_is_kept_or_else_the_newest() -> Result {
    let mut database = Database::with("kept", &[SEED, ADD_STS, ROWS]).await?;
    database.migrate().await?;
    assert_eq!(
        database.kept().await?,
        ["2", "6", "9", "10", "11", "12", "13"]
    );
    Ok(())
}

#[tokio::test]
async fn the_newest_of_live_rows_due_at_the_same_time_is_kept() -> Result {
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
async fn a_move_that_was_cut_off_midway_is_finished() -> Result {
    let mut database = Database::with("cut_off", &[SEED, ADD_STS, ROWS]).await?;
    end_after(&mut database, 8).await?;
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
            Progress::Started(Step::AddIndex(index)) if index.unique && rounds < 3 => {
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
