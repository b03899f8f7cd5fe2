//! What is read of a large table is bounded, also by the server itself.

use std::time::Duration;

use lapsed::Config;
use lapsed::ledger::mysql::MysqlLedger;
use lapsed::ledger::{
    Admin, DetailedStatsLimits, ListFilter, Producer, Prune, Retention, StateFilter,
};
use lapsed::task::{State, UnixMs};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, MySqlPool, Row};

use crate::mysql::rig::start;
use crate::support::wait::until;

/// Rows of these classes: done ones, pending ones that are due tomorrow, and dead ones. All due times differ.
async fn fill(connection: &mut MySqlConnection, done: u32, pending: u32, dead: u32) {
    for (name, status, from, count) in [
        ("Done", 1, -900_000, done),
        ("Pending", 0, 86_400, pending),
        ("Dead", 2, -900_000, dead),
    ] {
        let insert = format!(
            "INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time, sts, finished_at) \
             SELECT CONCAT('{name}@m@', seq), {status}, UNIX_TIMESTAMP(), FLOOR(UNIX_TIMESTAMP()) + {from} + seq, 0, \
               IF({status} > 0, UNIX_TIMESTAMP() - 90, NULL) \
             FROM JSON_TABLE(CONCAT('[0', REPEAT(',0', {} - 1), ']'), '$[*]' COLUMNS (seq FOR ORDINALITY)) AS numbers",
            count.max(1)
        );
        connection.execute(AssertSqlSafe(insert)).await.unwrap();
    }
}

/// How many rows and index entries the server has read so far.
async fn reads(connection: &mut MySqlConnection) -> u64 {
    let rows = connection
        .fetch_all("SHOW GLOBAL STATUS LIKE 'Handler_read%'")
        .await
        .unwrap();
    let of = |name: &str| {
        let row = rows.iter().find(|row| row.get::<String, _>(0) == name);
        row.unwrap().get::<String, _>(1).parse::<u64>().unwrap()
    };
    // Tables of the session, as `SHOW` has one, are read by `rnd_next`.
    of("Handler_read_next") + of("Handler_read_prev") + of("Handler_read_key")
}

fn of_state(state: StateFilter) -> ListFilter {
    ListFilter {
        states: vec![state],
        limit: 10,
        ..ListFilter::default()
    }
}

#[tokio::test]
async fn gauges_and_lists_read_a_bounded_number_of_rows() {
    let (_server, ledger, url) = start().await;
    let mut admin = MySqlConnection::connect(&url).await.unwrap();
    fill(&mut admin, 40_000, 20_000, 10_000).await;
    let limits = DetailedStatsLimits {
        rows: 100,
        entries: 1_000,
        ..DetailedStatsLimits::GAUGES
    };
    ledger.detailed_stats(limits).await.unwrap();

    let before = reads(&mut admin).await;
    let stats = ledger.detailed_stats(limits).await.unwrap();
    let read = reads(&mut admin).await - before;
    assert!(read < 6_000, "{read} for the gauges");
    assert_eq!((stats.counts.done, stats.counts.dead), (1_000, 1_000));
    for state in ["done", "dead", "pending"] {
        assert!(stats.at_least.contains(&state), "{state}: {stats:?}");
    }

    let is = |state| of_state(StateFilter::Is(state));
    let of_class = ListFilter {
        class: Some("Done".to_owned()),
        limit: 10,
        ..ListFilter::default()
    };
    let now = ledger.now().await.unwrap();
    let due_after = ListFilter {
        due_after: Some(UnixMs(now.0 + 86_400_000 + 15_000_000)),
        ..is(State::Pending)
    };
    let lists = [
        (is(State::Pending), 10),
        (is(State::Done), 10),
        (is(State::Dead), 10),
        (of_state(StateFilter::Overdue), 0),
        (of_class.clone(), 10),
        (
            ListFilter {
                method: Some("m".to_owned()),
                ..of_class
            },
            10,
        ),
        (due_after, 10),
    ];
    for (filter, shown) in lists {
        let before = reads(&mut admin).await;
        let page = ledger.list(&filter).await.unwrap();
        let read = reads(&mut admin).await - before;
        assert_eq!(
            (page.tasks.len(), page.searched),
            (shown, None),
            "{filter:?}"
        );
        assert!(read < 1_000, "{read} for {filter:?}");
    }
}

#[tokio::test]
async fn statistics_of_methods_read_a_bounded_number_of_rows() {
    let (_server, ledger, url) = start().await;
    let mut admin = MySqlConnection::connect(&url).await.unwrap();
    fill(&mut admin, 1, 60_000, 60_000).await;
    let stats = ledger
        .detailed_stats(DetailedStatsLimits::default())
        .await
        .unwrap();
    assert_eq!((stats.counts.pending, stats.counts.dead), (60_000, 60_000));
    // Each is a read from anywhere in the table: more would take seconds where the rows are not in memory.
    for rows in [stats.methods_of, stats.methods_of_dead] {
        assert!(rows.is_some_and(|rows| rows <= 25_000), "{rows:?}");
    }
    let figures = |name: &str| stats.methods.iter().find(|of| of.name == name).cloned();
    assert_eq!(figures("Pending@m").map(|of| of.pending), Some(25_000));
    assert_eq!(figures("Dead@m").map(|of| of.dead), Some(25_000));
}

#[tokio::test]
async fn a_search_for_few_among_many_goes_on_from_its_cursor() {
    let (_server, ledger, url) = start().await;
    let mut admin = MySqlConnection::connect(&url).await.unwrap();
    fill(&mut admin, 1, 1, 50_000).await;
    admin
        .execute("UPDATE tb_time_limit_task SET last_error = 'odd' WHERE `key` IN ('Dead@m@7', 'Dead@m@20000', 'Dead@m@49999')")
        .await
        .unwrap();
    let mut filter = ListFilter {
        error: Some("ODD".to_owned()),
        ..of_state(StateFilter::Is(State::Dead))
    };
    let mut found = Vec::new();
    loop {
        let page = ledger.list(&filter).await.unwrap();
        found.extend(page.tasks.into_iter().map(|task| task.key.to_string()));
        filter.cursor = page.next;
        if filter.cursor.is_none() {
            break;
        }
    }
    assert_eq!(found, ["Dead@m@7", "Dead@m@20000", "Dead@m@49999"]);
}

#[tokio::test]
async fn finished_rows_beyond_a_maximum_are_pruned_oldest_first() {
    let (_server, ledger, url) = start().await;
    let mut admin = MySqlConnection::connect(&url).await.unwrap();
    fill(&mut admin, 120_000, 1, 1).await;
    let left = 120_000 - 300;
    // More than one statement passes over on the way from the end.
    let surplus = ledger.surplus(State::Done, left).await.unwrap();
    assert!(surplus.is_some());
    let mut prune = Prune {
        state: State::Done,
        age: None,
        surplus,
        after: None,
        limit: 100,
        archive: false,
        dry_run: false,
    };
    let mut pruned = 0;
    loop {
        let batch = ledger.prune(&prune).await.unwrap();
        pruned += batch.rows;
        prune.after = batch.next;
        if prune.after.is_none() {
            break;
        }
    }
    assert_eq!(pruned, 300);
    let oldest = "SELECT MIN(end_time) = (SELECT end_time FROM tb_time_limit_task WHERE `key` = 'Done@m@301') \
         FROM tb_time_limit_task WHERE status = 1";
    let oldest = sqlx::query_scalar::<_, i64>(oldest);
    assert_eq!(oldest.fetch_one(&mut admin).await.unwrap(), 1);
    for keep in [left, left + 1, 1_000_000] {
        assert_eq!(ledger.surplus(State::Done, keep).await.unwrap(), None);
    }
}

#[tokio::test]
async fn the_server_ends_a_statement_that_takes_too_long() {
    let (_server, _, url) = start().await;
    let mut config = Config::default().ledger;
    config.url = url.as_str().into();
    config.statement_timeout = Duration::from_millis(500);
    let ledger = MysqlLedger::new(&config).unwrap();
    ledger.now().await.unwrap();
    let mut holder = MySqlConnection::connect(&url).await.unwrap();
    holder
        .execute("LOCK TABLES tb_time_limit_task WRITE")
        .await
        .unwrap();
    let error = ledger
        .list(&of_state(StateFilter::Overdue))
        .await
        .unwrap_err();
    assert!(error.is_transient(), "{error}");
    let admin = MySqlPool::connect(&url).await.unwrap();
    let left = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT%tb_time_limit_task%' AND id <> CONNECTION_ID()";
    until("the server no longer works on it", async || {
        let left = sqlx::query_scalar::<_, i64>(left).fetch_one(&admin);
        left.await.unwrap() == 0
    })
    .await;
    // A migration takes as long as it takes.
    drop(holder);
    let mut own = ledger.connection().await.unwrap();
    let slow = sqlx::query_scalar::<_, i64>("SELECT SLEEP(1)").fetch_one(&mut own);
    assert_eq!(slow.await.unwrap(), 0, "it was not ended");
}

#[tokio::test]
async fn rows_whose_key_is_no_task_key_are_shown_counted_apart_and_cancelled() {
    let (_server, ledger, url) = start().await;
    let mut admin = MySqlConnection::connect(&url).await.unwrap();
    admin
        .execute(
            "INSERT INTO tb_time_limit_task (`key`, start_time, end_time) VALUES \
             ('not a key', UNIX_TIMESTAMP() - 900, UNIX_TIMESTAMP() - 800), ('Sql@trail@x ', UNIX_TIMESTAMP() - 900, UNIX_TIMESTAMP() - 700), \
             ('Sql@good', UNIX_TIMESTAMP() - 900, UNIX_TIMESTAMP() - 100)",
        )
        .await
        .unwrap();
    let stats = ledger
        .detailed_stats(DetailedStatsLimits::GAUGES)
        .await
        .unwrap();
    let counts = stats.counts;
    assert_eq!(
        (counts.pending, counts.overdue, counts.malformed),
        (1, 1, 2)
    );
    let waited = ledger.overdue_for().await.unwrap().as_secs();
    assert!((100..700).contains(&waited), "{waited} s");
    assert_eq!(counts.overdue_ms_max / 1_000 / 100, waited / 100);

    let page = ledger.list(&of_state(StateFilter::Overdue)).await.unwrap();
    let keys: Vec<&str> = page.malformed.iter().map(|row| &*row.key).collect();
    assert_eq!(
        (page.tasks.len(), keys),
        (1, vec!["not a key", "Sql@trail@x "])
    );
    for (prefix, cancelled) in [("not", 1), ("Sql@trail", 1)] {
        let filter = ListFilter::prefix(prefix);
        let page = ledger.cancel_page(&filter, false).await.unwrap();
        assert_eq!((page.cancelled.len(), page.malformed), (0, cancelled));
    }
    assert_eq!(ledger.stats().await.unwrap().malformed, 0);
    assert!(ledger.overdue_for().await.unwrap() >= Duration::from_secs(100));
}
