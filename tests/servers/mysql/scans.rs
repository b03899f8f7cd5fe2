//! How much is read to find what is due.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use lapsed::ledger::mysql::MysqlLedger;
use lapsed::ledger::{
    Admin, Claims, DueScan, ForecastRange, MethodScan, NewTask, Pauses, Producer, Scans, Window,
};
use lapsed::task::{KeyBuckets, Paused, TaskKey, UnixMs};
use sqlx::{Connection, Executor, MySqlConnection, Row};

use crate::mysql::rig::{claimant, lock, overdue, start};
use crate::support::wait::until;

#[tokio::test]
async fn a_scan_goes_past_many_paused_rows_in_bounded_stretches() {
    const PAUSED: i64 = 25_000;
    let (_server, ledger, _) = start().await;
    let mut connection = ledger.connection().await.unwrap();
    // MySQL lacks MariaDB's own table of numbers.
    let numbers = format!(
        "JSON_TABLE(CONCAT('[0', REPEAT(',0', {PAUSED}), ']'), '$[*]' COLUMNS (seq FOR ORDINALITY)) AS numbers"
    );
    // One that may start before, in the middle of and behind those that may not.
    let insert = format!(
        "INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time, sts) \
         SELECT CONCAT(IF((seq - 1) % ({PAUSED} / 2) = 0, 'Live', 'Stuck'), '@go@', seq - 1), 0, 1, \
           1000 + (seq - 1) DIV 3, 0 FROM {numbers}"
    );
    connection.execute(&*insert.leak()).await.unwrap();
    let stuck = "Stuck".parse().unwrap();
    ledger.pause(&stuck, None, "me", "").await.unwrap();
    let paused = Paused::of(&ledger.pauses().await.unwrap());
    around_stuck(&ledger, &paused).await;
    // As in tables of older programs.
    connection
        .execute(
            "ALTER TABLE tb_time_limit_task MODIFY `key` VARCHAR(255) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin NOT NULL",
        )
        .await
        .unwrap();
    around_stuck(&ledger, &paused).await;
}

/// From both ends, in pages of 10,000 rows, only what may start is found.
async fn around_stuck(ledger: &MysqlLedger, paused: &Paused) {
    for (window, expected) in [
        (
            Window::OverdueOldest(Duration::ZERO),
            ["0", "12500", "25000"],
        ),
        (
            Window::OverdueNewest(Duration::ZERO),
            ["25000", "12500", "0"],
        ),
    ] {
        let (mut found, mut pages, mut after) = (Vec::new(), 0, None);
        loop {
            let scan = DueScan {
                window,
                after,
                limit: 1_000,
            };
            let page = ledger.scan_unpaused(scan, paused).await.unwrap();
            found.extend(
                page.rows
                    .iter()
                    .map(|row| row.key.args().next().unwrap().to_owned()),
            );
            pages += 1;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, expected);
        assert_eq!(pages, 3, "of 10,000 rows each");
    }
}

#[tokio::test]
async fn pages_of_tasks_due_in_one_millisecond_begin_where_the_last_one_ended() {
    const COUNT: u64 = 5_000;
    let (_server, ledger, _) = start().await;
    let now = ledger.now().await.unwrap();
    let windows = [
        (
            UnixMs(now.0 - 10_000),
            Window::OverdueOldest(Duration::ZERO),
        ),
        (
            UnixMs(now.0 - 10_000),
            Window::OverdueNewest(Duration::ZERO),
        ),
        (
            now.plus(Duration::from_secs(600)),
            Window::Ahead(Duration::from_secs(3600)),
        ),
    ];
    let key = |n: u64, due: UnixMs| TaskKey::build("Same", "ms", [n.to_string(), due.to_string()]);
    for due in [windows[0].0, windows[2].0] {
        let tasks: Vec<NewTask> = (0..COUNT)
            .map(|n| NewTask::new(key(n, due).unwrap(), due))
            .collect();
        ledger.create(&tasks).await.unwrap();
    }
    let mut connection = ledger.connection().await.unwrap();
    for (_, window) in windows {
        for glance in [false, true] {
            let before = rows_read(&mut connection).await;
            let (mut after, mut found) = (None, 0);
            loop {
                let scan = DueScan {
                    window,
                    after,
                    limit: 500,
                };
                let page = match glance {
                    false => ledger.scan(scan).await.unwrap(),
                    true => {
                        let all = KeyBuckets::all();
                        ledger.scan_new(scan, &all, &|_, _| false).await.unwrap()
                    }
                };
                found += page.rows.len() as u64;
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(found, COUNT, "{window:?}");
            let read = rows_read(&mut connection).await - before;
            assert!(read < 2 * COUNT, "{window:?}: {read} of {COUNT} rows");
        }
    }
}

#[tokio::test]
async fn a_scan_by_class_and_method_reads_no_more_for_a_backlog() {
    const STUCK: u64 = 100_000;
    let (_server, ledger, _) = start().await;
    let mut connection = ledger.connection().await.unwrap();
    let numbers = format!(
        "JSON_TABLE(CONCAT('[0', REPEAT(',0', {}), ']'), '$[*]' COLUMNS (seq FOR ORDINALITY)) AS numbers",
        STUCK - 1
    );
    // The others fall due in the middle of the backlog.
    let insert = format!(
        "INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time, sts) \
         SELECT CONCAT(IF((seq - 1) % ({STUCK} / 4) = 0, 'Live', 'Stuck'), '@go@', seq - 1), 0, 1, \
           1000 + (seq - 1) DIV 3, 0 FROM {numbers}"
    );
    connection.execute(&*insert.leak()).await.unwrap();
    let scan = MethodScan {
        by: Duration::ZERO,
        after: None,
        methods: 100,
        limit: 32,
    };
    // The first scan connects and prepares.
    ledger.scan_methods(scan.clone()).await.unwrap();
    let before = rows_read(&mut connection).await;
    let found = ledger.scan_methods(scan.clone()).await.unwrap().unwrap();
    let read = rows_read(&mut connection).await - before;
    let mut sizes: Vec<(String, usize)> = found
        .pages
        .iter()
        .map(|(_, page)| (page.rows[0].key.class().to_owned(), page.rows.len()))
        .collect();
    sizes.sort();
    assert_eq!(sizes, [("Live".to_owned(), 4), ("Stuck".to_owned(), 32)]);
    assert_eq!(found.next, None);
    assert!(read < 100, "{read} of {STUCK} rows were read");

    for lack in ["DROP KEY ix_method", "DROP COLUMN method_crc"] {
        let drop = format!("ALTER TABLE tb_time_limit_task {lack}");
        connection.execute(&*drop.leak()).await.unwrap();
        let found = ledger.scan_methods(scan.clone()).await.unwrap();
        assert_eq!(found, None, "{lack}");
    }
}

/// Steps along an index so far.
async fn rows_read(connection: &mut MySqlConnection) -> u64 {
    let status =
        "SHOW GLOBAL STATUS WHERE Variable_name IN ('Handler_read_next', 'Handler_read_prev')";
    let rows = sqlx::query(status).fetch_all(connection).await.unwrap();
    let counts = rows
        .iter()
        .map(|row| row.get::<String, _>(1).parse::<u64>().unwrap());
    counts.sum()
}

#[tokio::test]
async fn scans_skip_keys_that_are_no_task_keys() {
    let (_server, ledger, _) = start().await;
    let mut connection = ledger.connection().await.unwrap();
    let insert = "INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time, sts) VALUES (?, 0, 1, 2, 0)";
    for key in ["no at sign", "9C@m", "C@m@trailing ", "Good@one"] {
        sqlx::query(insert)
            .bind(key)
            .execute(&mut connection)
            .await
            .unwrap();
    }
    let page = ledger
        .scan(DueScan {
            window: Window::OverdueOldest(Duration::ZERO),
            after: None,
            limit: 100,
        })
        .await
        .unwrap();
    let keys: Vec<&str> = page.rows.iter().map(|row| row.key.as_str()).collect();
    assert_eq!((keys, page.foreign), (vec!["Good@one"], 3));
}

#[tokio::test]
async fn a_scan_for_leases_reads_each_due_row_once_in_bounded_pages() {
    const DUE: i64 = 25_000;
    let (_server, ledger, _) = start().await;
    let mut connection = ledger.connection().await.unwrap();
    // MySQL lacks MariaDB's own table of numbers. One in 5,000 is leased.
    let numbers = format!(
        "JSON_TABLE(CONCAT('[0', REPEAT(',0', {DUE}), ']'), '$[*]' COLUMNS (seq FOR ORDINALITY)) AS numbers"
    );
    let insert = format!(
        "INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time, sts, owner, daemon, run_end, lease_until) \
         SELECT CONCAT('Job@go@', seq - 1), 0, 1, 1000 + (seq - 1) DIV 3, 0, IF((seq - 1) % 5000, NULL, UNHEX(REPEAT('ab', 16))), \
           'elsewhere:1', 1000 + (seq - 1) DIV 3, IF((seq - 1) % 5000, 0, 9000000000) FROM {numbers}"
    );
    connection.execute(&*insert.leak()).await.unwrap();
    // The first scan connects and prepares.
    ledger.scan_leases(None, Duration::ZERO).await.unwrap();
    let read = async |connection: &mut MySqlConnection| -> i64 {
        let rows = connection
            .fetch_all("SHOW GLOBAL STATUS WHERE Variable_name IN ('Handler_read_key', 'Handler_read_next', 'Handler_read_rnd_next')")
            .await
            .unwrap();
        let values = rows.iter().map(|row| row.get::<String, _>(1));
        values.map(|value| value.parse::<i64>().unwrap()).sum()
    };
    // What the counting itself reads.
    let before = read(&mut connection).await;
    let counting = read(&mut connection).await - before;
    let (mut found, mut pages, mut after) = (Vec::new(), 0, None);
    let before = read(&mut connection).await;
    loop {
        let page = ledger.scan_leases(after, Duration::ZERO).await.unwrap();
        found.extend(page.leases.into_iter().map(|lease| lease.row));
        pages += 1;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let read = read(&mut connection).await - before - counting;
    assert_eq!((found.len(), pages), (6, 3), "of 10,000 rows each");
    // Once in the index alone to see how far a page goes, and once for the leases.
    assert!(read <= 2 * DUE + 1_000, "{read} rows were read");
}

#[tokio::test]
async fn the_lease_of_a_locked_row_is_left_alone_and_holds_up_no_other() {
    let (_server, ledger, url) = start().await;
    let armings = overdue(&ledger, 20).await;
    ledger.claim(&armings, &claimant()).await.unwrap();
    let leases = ledger
        .scan_leases(None, Duration::ZERO)
        .await
        .unwrap()
        .leases;
    assert_eq!(leases.len(), 20);
    let mut other = MySqlConnection::connect(&url).await.unwrap();
    let holding = lock(&mut other, armings[7].row).await;
    assert_eq!(ledger.end_leases(&leases).await.unwrap(), 19);
    holding.rollback().await.unwrap();
    assert_eq!(ledger.end_leases(&leases).await.unwrap(), 1);
}

#[tokio::test]
async fn of_known_rows_nothing_but_index_entries_is_read() {
    const TASKS: i64 = 10_000;
    let (_server, ledger, url) = start().await;
    let due = UnixMs(ledger.now().await.unwrap().0 + 60_000);
    let task = |n: i64| {
        let key = TaskKey::build("Job", "run", [n.to_string()]).unwrap();
        NewTask::new(key, due.plus(Duration::from_millis(n.unsigned_abs())))
    };
    let tasks: Vec<NewTask> = (0..TASKS).map(task).collect();
    let row = ledger.create(&tasks).await.unwrap()[0].arming.row;
    let observer = MySqlConnection::connect(&url).await.unwrap();
    let observer = tokio::sync::Mutex::new(observer);
    let before = AtomicI64::new(0);
    until("the server has tidied up after the inserts", async || {
        let read = pages_read(&mut *observer.lock().await).await;
        before.swap(read, Ordering::SeqCst) == read
    })
    .await;
    let mut observer = observer.into_inner();
    let ahead = DueScan {
        window: Window::Ahead(Duration::from_secs(120)),
        after: None,
        limit: TASKS as u32 + 1,
    };
    let range = ForecastRange {
        from: due,
        step: Duration::from_secs(1),
        steps: 20,
        entries: TASKS as u32,
    };
    for _ in 0..3 {
        // Another statement on the same table comes between two executions of one that the index covers.
        assert!(ledger.claimable(&[row]).await.unwrap().is_empty());
        let before = pages_read(&mut observer).await;
        let seen = AtomicI64::new(0);
        let known = |_: u64, _: UnixMs| seen.fetch_add(1, Ordering::SeqCst) >= 0;
        ledger
            .scan_new(ahead, &KeyBuckets::all(), &known)
            .await
            .unwrap();
        assert_eq!(seen.into_inner(), TASKS);
        let counted = ledger.forecast(range).await.unwrap();
        assert_eq!(counted.counts.iter().sum::<u64>(), TASKS as u64);
        let overdue = ledger.count_overdue(due.plus(Duration::from_secs(60)), u32::MAX);
        assert_eq!(overdue.await.unwrap(), TASKS as u64);
        // A page holds some 400 entries. Each row would be two or three pages.
        let read = pages_read(&mut observer).await - before;
        assert!(read < TASKS / 10, "{read} pages");
    }
}

async fn pages_read(connection: &mut MySqlConnection) -> i64 {
    let status = "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_read_requests'";
    let row = connection.fetch_one(status).await.unwrap();
    row.get::<String, _>(1).parse().unwrap()
}
