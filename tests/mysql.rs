//! What only the MySQL ledger can be asked: its statements, and other sessions' locks.

use std::sync::Arc;
use std::time::Duration;

use lapsed::ledger::mysql::MysqlLedger;
use lapsed::ledger::mysql::queries::{self, Queries};
use lapsed::ledger::{
    Arming, Catalog, Claimant, DueScan, IfPending, Ledger, NewTask, Pauses, Renewal, Ruling,
    Settled, Settlement, Window,
};
use lapsed::sandbox::PrivateMaria;
use lapsed::task::{Paused, TaskKey, UnixMs};
use lapsed::timer::ledger_poll::LedgerPoll;
use lapsed::{Config, TaskClient};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, Row};
use tokio::task::JoinSet;
use tokio::time::Instant;

async fn start() -> (PrivateMaria, MysqlLedger, String) {
    let server = PrivateMaria::options()
        .durable(false)
        .start()
        .await
        .unwrap();
    let url = server.create_database("app").await.unwrap();
    let ledger = connect(&url);
    ledger.migrate().await.unwrap();
    (server, ledger, url)
}

fn connect(url: &str) -> MysqlLedger {
    let mut config = Config::default().ledger;
    config.url = url.into();
    MysqlLedger::new(&config).unwrap()
}

async fn overdue(ledger: &MysqlLedger, count: i64) -> Vec<Arming> {
    let now = ledger.now().await.unwrap();
    let task = |n: i64| {
        NewTask::new(
            TaskKey::build("Lock", "row", [n.to_string()]).unwrap(),
            UnixMs(now.0 - 1_000 + n),
        )
    };
    let created = ledger
        .create(&(0..count).map(task).collect::<Vec<_>>())
        .await
        .unwrap();
    created.iter().map(|created| created.arming).collect()
}

/// SQL: a table of the numbers from 1 to `count`, as its column `seq`. MySQL lacks MariaDB's own.
fn numbers(count: i64) -> String {
    format!(
        "JSON_TABLE(CONCAT('[0', REPEAT(',0', {count} - 1), ']'), '$[*]' COLUMNS (seq FOR ORDINALITY)) AS numbers"
    )
}

fn claimant() -> Claimant {
    Claimant {
        daemon: "test".into(),
        lease: Duration::from_secs(30),
    }
}

/// The index a statement uses.
async fn index_of(connection: &mut MySqlConnection, statement: &str) -> Option<String> {
    let row = explain(connection, statement).await;
    row.try_get::<Option<String>, _>("key").unwrap()
}

/// What `EXPLAIN` says of a statement, with values put in for its parameters.
async fn explain(connection: &mut MySqlConnection, statement: &str) -> MySqlRow {
    let by_key = statement.contains("`key` IN");
    // MySQL sees that nothing falls due at a moment of 1970 and in future: no plan.
    let value = |n: usize, before: &str| {
        if before.ends_with("end_time = CAST(") {
            "9000000000000".to_owned()
        } else if by_key {
            format!("'Lock@row@{n}'")
        } else {
            (n % 5 + 1).to_string()
        }
    };
    // MySQL 9 would tell in prose.
    let mut explain = "EXPLAIN FORMAT=TRADITIONAL ".to_owned();
    for (n, part) in statement.split('?').enumerate() {
        if n > 0 {
            let value = value(n, &explain);
            explain.push_str(&value);
        }
        explain.push_str(part);
    }
    let explained = sqlx::query(AssertSqlSafe(explain));
    explained.fetch_one(connection).await.unwrap()
}

#[tokio::test]
async fn every_statement_can_be_prepared() {
    let (_server, ledger, _) = start().await;
    let queries = Queries::new(ledger.table());
    let mut connection = ledger.connection().await.unwrap();
    let statements = [
        queries.create(2, IfPending::Move),
        queries.create(2, IfPending::Keep),
        queries.create(2, IfPending::Refuse),
        queries.with_keys(queries::STANDING, 2),
        queries.with_keys(queries::CANCEL, 2),
        queries.plain(queries::RECORD) + queries::RECORD_BY_KEY,
        queries.unpaused(queries::UNPAUSED_OLDEST, 2, 4),
        queries.unpaused(queries::UNPAUSED_NEWEST, 1, 1),
    ];
    let of_rows = [
        queries::CLAIM,
        queries::CLAIMED,
        queries::DISOWN,
        queries::RENEW,
        queries::RENEWED,
        queries::COMPLETE,
        queries::RELEASE,
        queries::SETTLED,
        queries::UNLOCKED,
        queries::EXISTING,
        queries::UPCOMING,
        queries::REDRIVE_ROWS,
        queries::DISCARD_ROWS,
        queries::PRUNE_ROWS,
        queries::CANCELLABLE,
        queries::CANCEL_ROWS,
        queries::CANCEL_TAGGED,
        queries::CANCELLED_AS,
        queries::NOT_CANCELLED,
    ];
    let plain = [
        queries::CLOCK,
        queries::SCAN_OVERDUE_OLDEST,
        queries::SCAN_OVERDUE_NEWEST,
        queries::SCAN_AHEAD,
        queries::GLANCE_AHEAD,
        queries::RETRY,
        queries::BURY,
        queries::SNOOZE,
        queries::COMPLETE_WITH,
        queries::FINISHED,
        queries::COUNT_FINISHED,
        queries::GO_ON,
        queries::SERIES,
        queries::RECUR_NEW,
        queries::RECUR_SAME,
        queries::RECUR_OVER,
        queries::GIVE_BACK,
        queries::TIDY,
        queries::RESCHEDULE,
        queries::RUN_NOW,
        queries::REDRIVE,
        queries::REVIVE,
        queries::ADOPT_NEW,
        queries::ADOPT_OVER,
        queries::WITHDRAW,
        queries::COMPLETE_IN,
        queries::AGAIN_IN,
        queries::STATS,
        queries::IDS_OF_TAG,
        queries::IDS_OF_KEYS,
        queries::PAUSES,
        queries::PAUSE,
        queries::SET_PAUSE,
        queries::LIFT_PAUSE,
        queries::SET_HOLD,
        queries::RELEASE_SOME,
        queries::RELEASE_ALL,
        queries::COUNT_OVERDUE,
        queries::STRETCH_OLDEST,
        queries::STRETCH_NEWEST,
    ];
    let of_rows = of_rows.map(|template| queries.with_rows(template, 4));
    let plain = plain.map(|template| queries.plain(template));
    for statement in statements.into_iter().chain(of_rows).chain(plain) {
        let prepared = connection
            .prepare(sqlx::SqlStr::from_static(statement.clone().leak()))
            .await;
        assert!(prepared.is_ok(), "{statement}: {}", prepared.err().unwrap());
    }
}

#[tokio::test]
async fn statements_use_the_index_that_is_meant_for_them() {
    let (_server, ledger, _) = start().await;
    overdue(&ledger, 2_000).await;
    let queries = Queries::new(ledger.table());
    let mut connection = ledger.connection().await.unwrap();
    connection
        .execute("ANALYZE TABLE tb_time_limit_task")
        .await
        .unwrap();
    let expected = [
        (queries.with_keys(queries::STANDING, 8), "uk_key"),
        (queries.with_rows(queries::CLAIM, 8), "PRIMARY"),
        (queries.with_rows(queries::CLAIMED, 8), "PRIMARY"),
        (queries.with_rows(queries::RENEW, 8), "PRIMARY"),
        (queries.with_rows(queries::COMPLETE, 8), "PRIMARY"),
        (queries.with_rows(queries::RELEASE, 8), "PRIMARY"),
        (queries.plain(queries::SCAN_OVERDUE_OLDEST), "ix_due"),
        (queries.plain(queries::SCAN_OVERDUE_NEWEST), "ix_due"),
        (queries.plain(queries::SCAN_AHEAD), "ix_due"),
        (queries.plain(queries::GLANCE_AHEAD), "ix_due"),
        (queries.with_rows(queries::UPCOMING, 8), "PRIMARY"),
        (queries.with_rows(queries::CANCELLABLE, 8), "PRIMARY"),
        (queries.with_rows(queries::CANCEL_ROWS, 8), "PRIMARY"),
        (queries.with_rows(queries::CANCEL_TAGGED, 8), "PRIMARY"),
        (queries.with_rows(queries::CANCELLED_AS, 8), "PRIMARY"),
        (queries.with_rows(queries::NOT_CANCELLED, 8), "PRIMARY"),
        (
            queries.records(true) + "id > 3 AND tag = 'a' ORDER BY id LIMIT 9",
            "ix_tag",
        ),
        (
            queries.records(false)
                + "id > 3 AND `key` >= 'Lock@row@1777' AND `key` < 'Lock@row@1778' ORDER BY id LIMIT 9",
            "uk_key",
        ),
        (queries.plain(queries::STRETCH_OLDEST), "ix_due"),
        (queries.plain(queries::STRETCH_NEWEST), "ix_due"),
        (queries.plain(queries::RETRY), "PRIMARY"),
        (queries.plain(queries::GO_ON), "PRIMARY"),
        (queries.plain(queries::RECUR_SAME), "PRIMARY"),
        (queries.plain(queries::RECUR_OVER), "PRIMARY"),
        (queries.plain(queries::COMPLETE_IN), "PRIMARY"),
        (queries.plain(queries::ADOPT_OVER), "PRIMARY"),
        (queries.plain(queries::WITHDRAW), "PRIMARY"),
        (queries.plain(queries::SNOOZE), "PRIMARY"),
        (queries.plain(queries::COMPLETE_WITH), "PRIMARY"),
        (queries.with_rows(queries::REDRIVE_ROWS, 8), "PRIMARY"),
        (queries.with_rows(queries::DISCARD_ROWS, 8), "PRIMARY"),
        (queries.with_rows(queries::PRUNE_ROWS, 8), "PRIMARY"),
        (queries.plain(queries::FINISHED), "ix_due"),
        (queries.plain(queries::COUNT_FINISHED), "ix_due"),
        (queries.plain(queries::PICK_DEAD) + "id > ?", "ix_due"),
    ];
    for (statement, index) in expected {
        assert_eq!(
            index_of(&mut connection, &statement).await.as_deref(),
            Some(index),
            "{statement}"
        );
    }
}

#[tokio::test]
async fn what_is_pending_cannot_be_deleted_even_by_its_row() {
    let (_server, ledger, url) = start().await;
    let rows = overdue(&ledger, 4).await;
    let mut connection = MySqlConnection::connect(&url).await.unwrap();
    connection
        .execute("UPDATE tb_time_limit_task SET finished_at = 1, reason = 'exhausted'")
        .await
        .unwrap();
    let ids: Vec<u64> = rows.iter().map(|arming| arming.row).collect();
    assert_eq!(ledger.discard_rows(&ids).await.unwrap(), 0);
    assert_eq!(ledger.redrive_rows(&ids).await.unwrap(), 0);
    // As if they had been done when they were looked for, and created anew since.
    let delete = Queries::new(ledger.table()).with_rows(queries::PRUNE_ROWS, ids.len());
    let delete = ids
        .iter()
        .fold(sqlx::query(AssertSqlSafe(delete)), |delete, id| {
            delete.bind(*id)
        });
    let deleted = delete.bind(1).bind(0).execute(&mut connection).await;
    assert_eq!(deleted.unwrap().rows_affected(), 0);
    let count = sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM tb_time_limit_task");
    assert_eq!(count.fetch_one(&mut connection).await.unwrap(), 4);
}

#[tokio::test]
async fn a_row_that_another_session_has_locked_holds_up_no_redrive() {
    let (_server, ledger, url) = start().await;
    let rows = overdue(&ledger, 20).await;
    let mut connection = MySqlConnection::connect(&url).await.unwrap();
    connection
        .execute("UPDATE tb_time_limit_task SET status = 2")
        .await
        .unwrap();
    let ids: Vec<u64> = rows.iter().map(|arming| arming.row).collect();
    let mut locking = connection.begin().await.unwrap();
    let lock = format!(
        "SELECT id FROM tb_time_limit_task WHERE id = {} FOR UPDATE",
        ids[7]
    );
    locking.execute(AssertSqlSafe(lock)).await.unwrap();
    assert_eq!(ledger.redrive_rows(&ids).await.unwrap(), 19);
    assert_eq!(ledger.discard_rows(&ids).await.unwrap(), 0);
    locking.rollback().await.unwrap();
    assert_eq!(ledger.discard_rows(&ids).await.unwrap(), 1);
}

#[tokio::test]
async fn looking_again_at_what_is_known_reads_the_index_alone() {
    let (_server, ledger, _) = start().await;
    overdue(&ledger, 2_000).await;
    let queries = Queries::new(ledger.table());
    let mut connection = ledger.connection().await.unwrap();
    let templates = [
        queries::GLANCE_AHEAD,
        queries::STRETCH_OLDEST,
        queries::STRETCH_NEWEST,
    ];
    for template in templates {
        let row = explain(&mut connection, &queries.plain(template)).await;
        let extra: String = row.try_get("Extra").unwrap();
        assert!(extra.contains("Using index"), "{extra}");
        assert!(!extra.contains("filesort"), "{extra}");
    }
}

#[tokio::test]
async fn a_scan_goes_past_many_paused_rows_in_bounded_stretches() {
    const PAUSED: i64 = 25_000;
    let (_server, ledger, _) = start().await;
    let mut connection = ledger.connection().await.unwrap();
    // One that may start before, in the middle of and behind those that may not.
    let numbers = numbers(PAUSED + 1);
    let insert = format!(
        "INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time, sts) \
         SELECT CONCAT(IF((seq - 1) % ({PAUSED} / 2) = 0, 'Live', 'Stuck'), '@go@', seq - 1), 0, 1, \
           1000 + (seq - 1) DIV 3, 0 FROM {numbers}"
    );
    connection.execute(&*insert.leak()).await.unwrap();
    let stuck = "Stuck".parse().unwrap();
    ledger.set(&stuck, "me", "").await.unwrap();
    let paused = Paused::of(&ledger.all().await.unwrap());
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
                    true => ledger.scan_news(scan, &|_, _| false).await.unwrap(),
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
async fn what_is_to_be_cancelled_is_found_in_an_index_alone() {
    let (_server, ledger, _) = start().await;
    overdue(&ledger, 2_000).await;
    let queries = Queries::new(ledger.table());
    let mut connection = ledger.connection().await.unwrap();
    // With the values that are no numbers.
    let of_keys = queries::IDS_OF_KEYS.replacen('?', "'Lock@row@1'", 1);
    for (template, index) in [
        (queries::IDS_OF_TAG.replacen('?', "'a'", 1), "ix_tag"),
        (of_keys.replacen('?', "'Lock@row@2'", 1), "uk_key"),
    ] {
        let row = explain(&mut connection, &queries.plain(&template)).await;
        let extra: String = row.try_get("Extra").unwrap();
        let found: Option<String> = row.try_get("key").unwrap();
        assert_eq!(found.as_deref(), Some(index));
        assert!(extra.contains("Using index"), "{extra}");
        assert!(!extra.contains("filesort"), "{extra}");
    }
}

#[tokio::test]
async fn a_row_that_has_another_tag_by_now_is_not_cancelled() {
    let (_server, ledger, _) = start().await;
    overdue(&ledger, 2).await;
    let cancel = Queries::new(ledger.table()).with_rows(queries::CANCEL_ROWS, 1);
    let mut connection = ledger.connection().await.unwrap();
    for (tag, cancelled) in [(Some("other"), 0), (None, 1)] {
        let update = sqlx::query(AssertSqlSafe(cancel.clone()));
        let update = update.bind(1).bind(tag).bind(tag);
        let result = update.execute(&mut connection).await.unwrap();
        assert_eq!(result.rows_affected(), cancelled, "{tag:?}");
    }
    let tagged = Queries::new(ledger.table()).with_rows(queries::CANCEL_TAGGED, 1);
    let update = sqlx::query(AssertSqlSafe(tagged)).bind(vec![7u8; 16]);
    let update = update.bind(2).bind("other");
    let result = update.execute(&mut connection).await.unwrap();
    assert_eq!(result.rows_affected(), 0);
}

#[tokio::test]
async fn creations_at_the_same_time_share_statements() {
    const CREATORS: usize = 64;
    let (_server, ledger, _) = start().await;
    let ledger = Arc::new(ledger);
    let timer = Arc::new(LedgerPoll::new(ledger.clock().clone()));
    let tasks = TaskClient::with_parts(Arc::clone(&ledger) as _, timer);
    let mut connection = ledger.connection().await.unwrap();
    let before = inserts(&mut connection).await;
    let mut creators = JoinSet::new();
    for creator in 0..CREATORS {
        let tasks = tasks.clone();
        creators.spawn(async move {
            let mut ids = Vec::new();
            for n in 0..10 {
                let args = [creator, n];
                let delay = Duration::from_secs(3600 + n as u64);
                let made = tasks.create("Many", "create", args, delay).await.unwrap();
                let key = TaskKey::build("Many", "create", args.map(|n| n.to_string())).unwrap();
                ids.push((key, made.arming()));
            }
            ids
        });
    }
    let made: Vec<_> = creators.join_all().await.into_iter().flatten().collect();
    let statements = inserts(&mut connection).await - before;
    assert!(
        statements < made.len() as u64 / 2,
        "{statements} statements for {} tasks",
        made.len()
    );
    let keys: Vec<TaskKey> = made.iter().map(|(key, _)| key.clone()).collect();
    let standings = ledger.look_up(&keys).await.unwrap();
    for ((key, arming), standing) in made.iter().zip(standings) {
        assert_eq!(standing.unwrap().arming, *arming, "{key}");
    }
}

async fn inserts(connection: &mut MySqlConnection) -> u64 {
    let status = "SHOW GLOBAL STATUS LIKE 'Com_insert'";
    let row = sqlx::query(status).fetch_one(connection).await.unwrap();
    row.get::<String, _>(1).parse().unwrap()
}

#[tokio::test]
async fn a_task_that_is_refused_fails_nobody_elses_creation() {
    let (_server, ledger, _) = start().await;
    let mut connection = ledger.connection().await.unwrap();
    // A rule of the owner of the database that lapsed knows nothing of.
    connection
        .execute(
            "ALTER TABLE tb_time_limit_task ADD CONSTRAINT no_bad CHECK (`key` NOT LIKE 'Bad%')",
        )
        .await
        .unwrap();
    let timer = Arc::new(LedgerPoll::new(ledger.clock().clone()));
    let tasks = TaskClient::with_parts(Arc::new(ledger) as _, timer);
    let create = |class: &'static str, n: u32| {
        let tasks = tasks.clone();
        async move {
            tasks
                .create(class, "m", [n], Duration::from_secs(60))
                .await
                .is_ok()
        }
    };
    let mut creators = JoinSet::new();
    for n in 0..50 {
        creators.spawn(create(if n == 25 { "Bad" } else { "Good" }, n));
    }
    let created = creators.join_all().await;
    assert_eq!(created.iter().filter(|created| !**created).count(), 1);
}

#[tokio::test]
async fn a_locked_row_fails_nobody_elses_creation() {
    let (_server, ledger, url) = start().await;
    let timer = Arc::new(LedgerPoll::new(ledger.clock().clone()));
    let tasks = TaskClient::with_parts(Arc::new(ledger) as _, timer);
    let hour = Duration::from_secs(3_600);
    // With a neighbour, since a wait for a row's lock keeps others out of the gap before it.
    for n in [1, 2] {
        tasks.create("Locked", "row", [n], hour).await.unwrap();
    }
    let mut other = MySqlConnection::connect(&url).await.unwrap();
    let mut holding = other.begin().await.unwrap();
    let lock = "SELECT id FROM tb_time_limit_task WHERE `key` = 'Locked@row@2' FOR UPDATE";
    sqlx::query(lock).fetch_all(&mut *holding).await.unwrap();

    let mut creators = JoinSet::new();
    for n in 0..50 {
        let (class, method, n) = match n {
            25 => ("Locked", "row", 2),
            n => ("Many", "create", n),
        };
        let tasks = tasks.clone();
        creators.spawn(async move { (class, tasks.create(class, method, [n], 2 * hour).await) });
    }
    let created = creators.join_all().await;
    let failed = created
        .iter()
        .filter_map(|(class, made)| Some((class, made.as_ref().err()?)));
    for (class, error) in failed {
        assert!(
            *class == "Locked" && error.to_string().contains("locked"),
            "{class}: {error}"
        );
    }
    assert_eq!(created.iter().filter(|(_, made)| made.is_ok()).count(), 49);
    holding.rollback().await.unwrap();
    tasks.create("Locked", "row", [2], 2 * hour).await.unwrap();
}

#[tokio::test]
async fn a_locked_row_delays_no_other() {
    let (_server, ledger, url) = start().await;
    let armings = overdue(&ledger, 64).await;
    let locked = armings[17];
    let mut other = MySqlConnection::connect(&url).await.unwrap();
    let mut holding = other.begin().await.unwrap();
    let lock = "SELECT id FROM tb_time_limit_task WHERE id = ? FOR UPDATE";
    sqlx::query(lock)
        .bind(locked.row)
        .fetch_one(&mut *holding)
        .await
        .unwrap();

    let started = Instant::now();
    let claims = ledger.claim(&armings, &claimant()).await.unwrap();
    assert_eq!(claims.len(), 63);
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "one lock wait of a second: {:?}",
        started.elapsed()
    );
    // From now on it asks first: no more waits.
    let started = Instant::now();
    let leases: Vec<_> = claims.iter().map(|claim| claim.lease).collect();
    assert!(
        ledger
            .renew(&leases, Duration::from_secs(30))
            .await
            .unwrap()
            .iter()
            .all(|renewal| *renewal == Renewal::Held)
    );
    assert!(
        ledger
            .claim(&[locked], &claimant())
            .await
            .unwrap()
            .is_empty()
    );
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );

    holding.rollback().await.unwrap();
    let claimed = ledger.claim(&[locked], &claimant()).await.unwrap();
    assert_eq!(claimed.len(), 1);

    let mut holding = other.begin().await.unwrap();
    sqlx::query(lock)
        .bind(locked.row)
        .fetch_one(&mut *holding)
        .await
        .unwrap();
    let settlements: Vec<Settlement> = claims
        .iter()
        .chain(&claimed)
        .map(|claim| Settlement {
            lease: claim.lease,
            ruling: Ruling::Complete,
        })
        .collect();
    let settled = ledger.settle(&settlements).await.unwrap();
    assert!(
        settled[..63]
            .iter()
            .all(|settled| *settled == Settled::Applied),
        "{settled:?}"
    );
    assert_eq!(settled[63], Settled::Locked);
    holding.rollback().await.unwrap();
    assert_eq!(
        ledger.settle(&settlements[63..]).await.unwrap(),
        [Settled::Applied]
    );
}

#[tokio::test]
async fn a_server_that_falls_silent_costs_no_connection_for_ever() {
    let (server, ledger, url) = start().await;
    let mut config = Config::default().ledger;
    config.url = url.as_str().into();
    config.max_connections = 2;
    config.statement_timeout = Duration::from_millis(200);
    let hasty = MysqlLedger::new(&config).unwrap();
    hasty.sync_clock().await.unwrap();
    server.stop_process().unwrap();
    for _ in 0..3 {
        let error = hasty.sync_clock().await.unwrap_err();
        assert!(error.is_transient(), "{error}");
    }
    server.continue_process().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while let Err(error) = hasty.sync_clock().await {
        assert!(Instant::now() < deadline, "{error}");
    }
    drop(ledger);
}

#[tokio::test]
async fn keys_that_are_no_task_keys_are_passed_by() {
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
async fn errors_say_what_to_do() {
    let (server, ledger, url) = start().await;
    let refused = |url: &str| {
        let ledger = connect(url);
        async move { ledger.check().await.unwrap_err().to_string() }
    };
    let wrong = url.replace("root@", "nobody:wrong@");
    assert!(
        refused(&wrong)
            .await
            .contains("check user and password in `ledger.url`"),
        "{}",
        refused(&wrong).await
    );
    let no_database = server.url("nowhere");
    assert!(
        refused(&no_database).await.contains("create the database"),
        "{}",
        refused(&no_database).await
    );
    let empty = server.create_database("fresh").await.unwrap();
    assert!(
        refused(&empty).await.contains("run `lapsed migrate`"),
        "{}",
        refused(&empty).await
    );

    let mut connection = ledger.connection().await.unwrap();
    connection
        .execute("CREATE USER reader@'%'")
        .await
        .unwrap();
    connection
        .execute("GRANT SELECT ON app.* TO reader@'%'")
        .await
        .unwrap();
    let reader = url.replace("root@", "reader@");
    let error = refused(&reader).await;
    assert!(
        error.contains(" command denied to user 'reader'@")
            && error.contains("; grant UPDATE on ")
            && error.ends_with("`tb_time_limit_task` to this user"),
        "{error}"
    );
    connection
        .execute("GRANT SELECT, INSERT, UPDATE ON app.* TO reader@'%'")
        .await
        .unwrap();
    let error = connect(&reader).discard_rows(&[1]).await.unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("; grant DELETE on ")
            && error.ends_with("`tb_time_limit_task` to this user"),
        "{error}"
    );
    let nobody_there = "mysql://root@127.0.0.1:1/app";
    assert!(
        refused(nobody_there)
            .await
            .contains("ledger did not answer"),
        "{}",
        refused(nobody_there).await
    );
}

#[tokio::test]
async fn counters_at_their_end_keep_no_batch_from_being_claimed_or_released() {
    let (_server, ledger, _) = start().await;
    let armings = overdue(&ledger, 3).await;
    let mut connection = ledger.connection().await.unwrap();
    for (row, attempt, crashes) in [(armings[0].row, 65_535, 0), (armings[1].row, 1, 255)] {
        let full = "UPDATE tb_time_limit_task SET attempt = ?, crashes = ?, run_end = end_time, lease_until = 1 WHERE id = ?";
        sqlx::query(full)
            .bind(attempt)
            .bind(crashes)
            .bind(row)
            .execute(&mut connection)
            .await
            .unwrap();
    }
    let claims = ledger.claim(&armings, &claimant()).await.unwrap();
    let counters: Vec<(u16, u8)> = claims
        .iter()
        .map(|claim| (claim.attempt.number, claim.attempt.crashes))
        .collect();
    assert_eq!(counters, [(65_535, 1), (2, 255), (1, 0)]);
}

/// Somebody's open transaction on a row; until it ends no statement of others gets by.
async fn lock(connection: &mut MySqlConnection, row: u64) -> sqlx::MySqlTransaction<'_> {
    let mut holding = connection.begin().await.unwrap();
    sqlx::query("SELECT id FROM tb_time_limit_task WHERE id = ? FOR UPDATE")
        .bind(row)
        .fetch_one(&mut *holding)
        .await
        .unwrap();
    holding
}

#[tokio::test]
async fn a_row_that_is_gone_is_not_taken_for_locked() {
    let (_server, ledger, url) = start().await;
    let armings = overdue(&ledger, 3).await;
    let mut other = MySqlConnection::connect(&url).await.unwrap();
    let claims = ledger.claim(&armings[..2], &claimant()).await.unwrap();
    let holding = lock(&mut other, armings[2].row).await;
    assert!(
        ledger
            .claim(&armings[2..], &claimant())
            .await
            .unwrap()
            .is_empty(),
        "from here on it asks first which rows are locked"
    );
    holding.rollback().await.unwrap();
    sqlx::query("DELETE FROM tb_time_limit_task WHERE id = ?")
        .bind(armings[0].row)
        .execute(&mut other)
        .await
        .unwrap();
    let leases: Vec<_> = claims.iter().map(|claim| claim.lease).collect();
    let renewals = ledger.renew(&leases, Duration::from_secs(30)).await;
    assert_eq!(renewals.unwrap(), [Renewal::Lost, Renewal::Held]);
    let settlements = leases.iter().map(|lease| Settlement {
        lease: *lease,
        ruling: Ruling::Complete,
    });
    let settlements: Vec<Settlement> = settlements.collect();
    assert_eq!(
        ledger.settle(&settlements).await.unwrap(),
        [Settled::Fenced, Settled::Applied]
    );
}

#[tokio::test]
async fn a_superseded_row_that_is_locked_delays_no_other_settlement() {
    let (_server, ledger, url) = start().await;
    let armings = overdue(&ledger, 2).await;
    let claims = ledger.claim(&armings, &claimant()).await.unwrap();
    let moved = NewTask::new(claims[0].key.clone(), UnixMs(armings[0].due.0 + 5_000));
    ledger.create(&[moved]).await.unwrap();
    let mut other = MySqlConnection::connect(&url).await.unwrap();
    let holding = lock(&mut other, armings[0].row).await;
    let settlements = claims.iter().map(|claim| Settlement {
        lease: claim.lease,
        ruling: Ruling::Complete,
    });
    let settlements: Vec<Settlement> = settlements.collect();
    assert_eq!(
        ledger.settle(&settlements).await.unwrap(),
        [Settled::Locked, Settled::Applied]
    );
    holding.rollback().await.unwrap();
    assert_eq!(
        ledger.settle(&settlements).await.unwrap(),
        [Settled::Superseded, Settled::Applied]
    );
}

#[tokio::test]
async fn a_series_that_is_claimed_again_before_it_is_looked_at_has_gone_on() {
    let (_server, ledger, url) = start().await;
    let armings = overdue(&ledger, 2).await;
    let claims = ledger.claim(&armings, &claimant()).await.unwrap();
    let mut other = MySqlConnection::connect(&url).await.unwrap();
    // Nobody is faster than this: whatever goes on is claimed.
    for statement in [
        "DELETE FROM tb_time_limit_task ORDER BY id LIMIT 1",
        "CREATE TRIGGER at_once BEFORE UPDATE ON tb_time_limit_task FOR EACH ROW SET \
           NEW.owner = IF(NEW.end_time > OLD.end_time, REPEAT('x', 16), NEW.owner), \
           NEW.lease_until = IF(NEW.end_time > OLD.end_time, UNIX_TIMESTAMP() + 30, NEW.lease_until)",
    ] {
        other.execute(statement).await.unwrap();
    }
    let go_on = Ruling::GoOn {
        next: UnixMs(claims[1].lease.arming.due.0 + 1),
        ran: true,
        error: None,
        mishap: None,
        result: None,
    };
    let settlements = [(&claims[0], Ruling::Complete), (&claims[1], go_on)];
    let settlements = settlements.map(|(claim, ruling)| Settlement {
        lease: claim.lease,
        ruling,
    });
    assert_eq!(
        ledger.settle(&settlements).await.unwrap(),
        [Settled::Fenced, Settled::Applied]
    );
}

#[tokio::test]
async fn a_statement_that_the_server_cuts_short_is_no_refusal() {
    let (_server, ledger, url) = start().await;
    let armings = overdue(&ledger, 1).await;
    let mut other = MySqlConnection::connect(&url).await.unwrap();
    let version: String = sqlx::query_scalar("SELECT CAST(VERSION() AS CHAR)")
        .fetch_one(&mut other)
        .await
        .unwrap();
    let is_maria = version.contains("MariaDB");
    if is_maria {
        let limit = "SET GLOBAL max_statement_time = 0.2";
        other.execute(limit).await.unwrap();
    }
    let limited = connect(&url);
    let mut killer = MySqlConnection::connect(&url).await.unwrap();
    let holding = lock(&mut other, armings[0].row).await;
    let (claimant, cut_short) = (claimant(), async {
        // A limit of MySQL holds for queries alone.
        if !is_maria {
            kill_the_update(&mut killer).await;
        }
    });
    let (claimed, ()) = tokio::join!(limited.claim(&armings, &claimant), cut_short);
    let error = claimed.unwrap_err();
    assert!(error.is_transient(), "{error}");
    holding.rollback().await.unwrap();
}

/// Cuts short the `UPDATE` that waits for a lock, as soon as there is one.
async fn kill_the_update(connection: &mut MySqlConnection) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        // Not `information_schema`: there MySQL refuses statements whose values are no text.
        let all = sqlx::query("SHOW PROCESSLIST").fetch_all(&mut *connection);
        let updating = all.await.unwrap().into_iter().find(|row| {
            let state = row.try_get_unchecked::<Option<String>, _>("State");
            state.unwrap().as_deref() == Some("updating")
        });
        if let Some(row) = updating {
            let id: u64 = row.try_get_unchecked("Id").unwrap();
            let kill = AssertSqlSafe(format!("KILL QUERY {id}"));
            connection.execute(kill).await.unwrap();
            return;
        }
        assert!(Instant::now() < deadline, "no statement waits for the lock");
    }
}
