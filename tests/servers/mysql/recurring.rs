//! The index of recurring tasks: what a list reads through it, and that it stays right under load.

use std::time::Duration;

use lapsed::ledger::mysql::MysqlLedger;
use lapsed::ledger::{
    Admin as _, Claims as _, ListFilter, NewTask, Producer as _, Prune, Retention as _, Settlement,
    StateFilter,
};
use lapsed::task::{Contents, Recurrence, State, TaskKey, UnixMs, Verdict};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, MySqlConnection, Row as _};

use crate::mysql::rig::{claimant, connect, overdue, start};
use crate::support::wait::until;

/// Longer than a page of InnoDB: such a text is stored off-page.
const LONG: usize = 20_000;

fn key(n: u32) -> TaskKey {
    TaskKey::build("Report", "daily", [n.to_string()]).unwrap()
}

fn series(n: u32, due: UnixMs) -> NewTask {
    NewTask {
        recurrence: Some(Recurrence::every(Duration::from_secs(3_600)).unwrap()),
        ..NewTask::new(key(n), due)
    }
}

fn pending() -> ListFilter {
    ListFilter {
        recurring: true,
        states: vec![StateFilter::Is(State::Pending)],
        limit: 50,
        ..ListFilter::default()
    }
}

/// The number of rows and index entries that the server has read.
async fn reads(connection: &mut MySqlConnection) -> u64 {
    let status = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Handler_read_key', 'Handler_read_next', 'Handler_read_prev')";
    let rows = connection.fetch_all(status).await.unwrap();
    let value = |row: &sqlx::mysql::MySqlRow| row.get::<String, _>(1).parse::<u64>().unwrap();
    rows.iter().map(value).sum()
}

async fn run(connection: &mut MySqlConnection, statement: &str) {
    let statement = sqlx::raw_sql(AssertSqlSafe(statement.to_owned()));
    statement.execute(connection).await.unwrap();
}

#[tokio::test]
async fn a_list_of_recurring_tasks_reads_their_rows_alone() {
    let (_server, ledger, url) = start().await;
    overdue(&ledger, 2_000).await;
    let due = UnixMs(ledger.now().await.unwrap().0 + 60_000);
    let created = [1, 2, 3].map(|n| series(n, due));
    ledger.create(&created).await.unwrap();
    overdue(&ledger, 2_000).await;
    let mut connection = MySqlConnection::connect(&url).await.unwrap();

    let before = reads(&mut connection).await;
    let page = ledger.list(&pending()).await.unwrap();
    let read = reads(&mut connection).await - before;

    let keys: Vec<&TaskKey> = page.tasks.iter().map(|task| &task.key).collect();
    assert_eq!(keys, [&key(1), &key(2), &key(3)]);
    assert!((1..50).contains(&read), "{read} reads");
    assert_eq!((page.next, page.searched), (None, None));
    let first = ListFilter {
        limit: 1,
        ..pending()
    };
    let first = ledger.list(&first).await.unwrap();
    assert_eq!(first.tasks, page.tasks[..1]);

    // A table that is not migrated yet: the same list, by reading all rows.
    for lack in ["DROP KEY ix_recurring", "DROP COLUMN recurring"] {
        run(
            &mut connection,
            &format!("ALTER TABLE tb_time_limit_task {lack}"),
        )
        .await;
        let before = reads(&mut connection).await;
        let listed = ledger.list(&pending()).await.unwrap();
        assert_eq!(listed.tasks, page.tasks);
        let read = reads(&mut connection).await - before;
        assert!(read > 2_000, "{read} reads");
        let rest = ListFilter {
            cursor: first.next.clone(),
            ..pending()
        };
        assert_eq!(ledger.list(&rest).await.unwrap().tasks, page.tasks[1..]);
    }
}

/// Creates the task. Another worker may run, settle and prune it before its row is read back.
async fn create_or_lose(ledger: &MysqlLedger, task: NewTask) {
    if let Err(error) = ledger.create(&[task]).await {
        let error = error.to_string();
        assert!(
            error.contains("deleted right after it was written"),
            "{error}"
        );
    }
}

/// One change at random. What a key is at the moment decides whether it does anything.
async fn change(ledger: &MysqlLedger, connection: &mut MySqlConnection, random: &mut StdRng) {
    let n = random.random_range(0..40);
    let now = ledger.now().await.unwrap();
    let due = UnixMs(now.0 + random.random_range(-5_000..5_000));
    let payload = random
        .random_bool(0.5)
        .then(|| format!("\"{}\"", "x".repeat(65_000)));
    let keys = [key(n)];
    let of_key = format!("WHERE `key` = '{}'", keys[0]);
    let table = "tb_time_limit_task";
    match random.random_range(0..10) {
        0 | 1 => {
            let task = NewTask {
                contents: Contents {
                    payload,
                    ..Contents::default()
                },
                ..NewTask::new(key(n), due)
            };
            create_or_lose(ledger, task).await;
        }
        2 | 3 => {
            let task = NewTask {
                contents: Contents {
                    payload,
                    ..Contents::default()
                },
                ..series(n, due)
            };
            create_or_lose(ledger, task).await;
        }
        4 => drop(ledger.reschedule(&keys[0], due).await.unwrap()),
        5 => drop(ledger.cancel(&keys).await.unwrap()),
        6 => {
            let found = ledger.look_up(&keys).await.unwrap().remove(0);
            let armings: Vec<_> = found.into_iter().map(|found| found.arming).collect();
            for claim in ledger.claim(&armings, &claimant()).await.unwrap() {
                let verdict = match random.random_bool(0.5) {
                    true => Verdict::Complete,
                    false => Verdict::Release,
                };
                let settlement = Settlement {
                    lease: claim.lease,
                    verdict,
                };
                ledger.settle(&[settlement]).await.unwrap();
            }
        }
        7 => {
            let long = format!(
                "UPDATE {table} SET recurrence = CONCAT('{{\"every\":\"1h\"', REPEAT(' ', {LONG}), '}}') {of_key}"
            );
            run(connection, &long).await;
        }
        8 => {
            for statement in [
                "BEGIN".to_owned(),
                format!("UPDATE {table} SET recurrence = NULL, payload = NULL {of_key}"),
                format!("UPDATE {table} SET recurrence = REPEAT(' ', {LONG}) {of_key}"),
                format!("DELETE FROM {table} {of_key}"),
                "ROLLBACK".to_owned(),
            ] {
                run(connection, &statement).await;
            }
        }
        _ => {
            for state in [State::Done, State::Cancelled] {
                let prune = Prune {
                    state,
                    age: Some(Duration::ZERO),
                    surplus: None,
                    after: None,
                    limit: 3,
                    archive: false,
                    dry_run: false,
                };
                ledger.prune(&prune).await.unwrap();
            }
        }
    }
}

/// MDEV-38140: MariaDB can corrupt an index on a virtual column that is computed from an off-page text.
#[tokio::test]
async fn the_index_of_recurring_tasks_stays_right_while_their_texts_change() {
    const WORKERS: u64 = 4;
    const CHANGES: usize = 400;
    let (_server, ledger, url) = start().await;
    let mut working = tokio::task::JoinSet::new();
    for seed in 0..WORKERS {
        let (ledger, url) = (connect(&url), url.clone());
        working.spawn(async move {
            let mut connection = MySqlConnection::connect(&url).await.unwrap();
            let mut random = StdRng::seed_from_u64(seed);
            for _ in 0..CHANGES {
                change(&ledger, &mut connection, &mut random).await;
            }
        });
    }
    // Old versions of rows are kept for it, and purged when it ends.
    let mut reader = MySqlConnection::connect(&url).await.unwrap();
    while !working.is_empty() {
        run(&mut reader, "START TRANSACTION WITH CONSISTENT SNAPSHOT").await;
        let ended = tokio::time::timeout(Duration::from_millis(300), working.join_next()).await;
        if let Ok(Some(ended)) = ended {
            ended.unwrap();
        }
        run(&mut reader, "COMMIT").await;
    }

    // A record that is purged while it is checked is a warning; a damaged index is an error each time.
    until("a check says nothing but that all is well", async || {
        let mut checker = MySqlConnection::connect(&url).await.unwrap();
        let check = "CHECK TABLE tb_time_limit_task EXTENDED";
        let rows = checker.fetch_all(check).await.unwrap();
        for row in &rows {
            let [kind, text] = ["Msg_type", "Msg_text"].map(|name| row.get::<String, _>(name));
            let is_well = (&kind[..], &text[..]) == ("status", "OK");
            assert!(kind == "Warning" || is_well, "{kind}: {text}");
        }
        rows.len() == 1
    })
    .await;
    let mut ids = async |index: &str, condition: &str| {
        let question = format!(
            "SELECT id FROM tb_time_limit_task FORCE INDEX ({index}) WHERE {condition} ORDER BY id"
        );
        let rows = sqlx::query_scalar::<_, u64>(AssertSqlSafe(question));
        rows.fetch_all(&mut reader).await.unwrap()
    };
    let indexed = ids("ix_recurring", "recurring = 1").await;
    assert!(!indexed.is_empty());
    assert_eq!(indexed, ids("PRIMARY", "recurrence IS NOT NULL").await);
    let once = ids("ix_recurring", "recurring IS NULL").await;
    assert_eq!(once, ids("PRIMARY", "recurrence IS NULL").await);
    drop(ledger);
}
