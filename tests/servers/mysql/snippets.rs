//! The SQL of the README and of docs/, run as it is printed there.

use lapsed::ledger::Admin;
use lapsed::ledger::migrate::{self, Options};
use lapsed::ledger::mysql::MysqlLedger;
use lapsed::task::TaskKey;
use lapsed_sandbox::PrivateMaria;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};

use crate::mysql::rig::{connect, start};

const README: &str = include_str!("../../../README.md");
const SCHEDULING: &str = include_str!("../../../docs/scheduling.md");
const TASKS: &str = include_str!("../../../docs/tasks.md");
const PHP_GUIDE: &str = include_str!("../../../docs/from-php-listener.md");
const PHP_README: &str = include_str!("../../../examples/php/README.md");
const PHP_CONFIG: &str = include_str!("../../../examples/php/lapsed.toml");
const WORKERS_README: &str = include_str!("../../../examples/workers/README.md");
const WORKERS_CONFIG: &str = include_str!("../../../examples/workers/lapsed.toml");
const PHP_SCHEMA: &str = include_str!("../../../examples/php/schema.sql");

/// The end of summer time of 2026: local times between 02:00 and 03:00 occur twice.
const SUMMER_TIME_ENDS_S: i64 = 1_792_890_000;

/// A time zone with that end of summer time, as MySQL and MariaDB keep it in their tables.
const ZONE: [&str; 4] = [
    "INSERT INTO mysql.time_zone (Time_zone_id, Use_leap_seconds) VALUES (901, 'N')",
    "INSERT INTO mysql.time_zone_name (Name, Time_zone_id) VALUES ('Europe/Berlin', 901)",
    "INSERT INTO mysql.time_zone_transition_type (Time_zone_id, Transition_type_id, `Offset`, Is_DST, Abbreviation) \
     VALUES (901, 0, 3600, 0, 'CET'), (901, 1, 7200, 1, 'CEST')",
    "INSERT INTO mysql.time_zone_transition (Time_zone_id, Transition_time, Transition_type_id) \
     VALUES (901, 1774746000, 1), (901, 1792890000, 0)",
];

/// The block of SQL of `page` that contains `text`.
fn snippet<'a>(page: &'a str, text: &str) -> &'a str {
    let mut blocks = page
        .split("```sql\n")
        .skip(1)
        .map(|rest| rest.split("```").next().expect("split gives one part"));
    blocks
        .find(|block| block.contains(text))
        .unwrap_or_else(|| panic!("no block of SQL contains `{text}`"))
}

async fn run(session: &mut MySqlConnection, statements: &str) {
    let done = sqlx::raw_sql(AssertSqlSafe(statements.to_owned()))
        .execute(session)
        .await;
    done.unwrap_or_else(|error| panic!("{statements}: {error}"));
}

async fn text(session: &mut MySqlConnection, query: &str) -> String {
    let query = sqlx::query_scalar(AssertSqlSafe(query.to_owned()));
    query.fetch_one(session).await.unwrap()
}

/// A session at the second pass of the repeated hour.
async fn berlin(url: &str) -> MySqlConnection {
    let mut session = MySqlConnection::connect(url).await.unwrap();
    for statement in ZONE {
        run(&mut session, statement).await;
    }
    let now = SUMMER_TIME_ENDS_S + 1_800;
    let settings = format!("SET time_zone = 'Europe/Berlin', timestamp = {now}.125");
    run(&mut session, &settings).await;
    // The zone and the clock are as meant: the first pass of this local time was an hour ago.
    let local =
        "SELECT CONCAT(CAST(NOW(3) AS CHAR), ' ', UNIX_TIMESTAMP() - UNIX_TIMESTAMP(NOW()))";
    assert_eq!(
        text(&mut session, local).await,
        "2026-10-25 02:30:00.125 3600"
    );
    session
}

async fn row(session: &mut MySqlConnection, columns: &str, key: &str) -> String {
    let query =
        format!("SELECT CONCAT_WS(' ', {columns}) FROM tb_time_limit_task WHERE `key` = '{key}'");
    text(session, &query).await
}

#[tokio::test]
async fn the_rows_of_the_documents_are_due_in_time_in_the_hour_that_is_repeated() {
    let (_server, _ledger, url) = start().await;
    let mut session = berlin(&url).await;
    for (page, key, delay) in [
        (SCHEDULING, "Order@close@43", 1800),
        (TASKS, "Report@build@7", 30),
    ] {
        run(&mut session, snippet(page, &format!("VALUES ('{key}'"))).await;
        let now = SUMMER_TIME_ENDS_S + 1_800;
        assert_eq!(
            row(&mut session, "start_time, end_time", key).await,
            format!("{now}.125 {}.125", now + delay),
            "{key}"
        );
    }
    // The row as it is now: left behind by a run in progress, whose lease holds.
    let taken = "UPDATE tb_time_limit_task SET run_end = end_time, lease_until = UNIX_TIMESTAMP() + 1, end_time = end_time - 600, \
                 run_end = end_time WHERE `key` = 'Report@build@7'";
    run(&mut session, taken).await;
    run(&mut session, snippet(TASKS, "VALUES ('Report@build@7'")).await;
    let moved = row(&mut session, "end_time", "Report@build@7").await;
    assert_eq!(
        moved,
        format!("{}.125", SUMMER_TIME_ENDS_S + 1_830),
        "a run in progress does not keep its time"
    );
    run(
        &mut session,
        "UPDATE tb_time_limit_task SET end_time = end_time - 7, lease_until = 0",
    )
    .await;
    run(&mut session, snippet(TASKS, "VALUES ('Report@build@7'")).await;
    let kept = row(&mut session, "end_time", "Report@build@7").await;
    assert_eq!(kept, format!("{}.125", SUMMER_TIME_ENDS_S + 1_823));
}

#[tokio::test]
async fn the_row_of_the_documents_replaces_what_an_earlier_task_of_the_key_left() {
    let (_server, ledger, url) = start().await;
    let mut session = MySqlConnection::connect(&url).await.unwrap();
    let key = TaskKey::parse("Order@close@43").unwrap();
    let finished = "INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time, run_end, attempt, max_attempts, adopted, \
                    tag, payload, recurrence, finished_at) \
                    VALUES ('Order@close@43', 1, 1000, 1001, 1001, 1, 2, 1, 'old', '{\"old\": 1}', '{\"every\": 60000}', 1002)";
    run(&mut session, finished).await;
    let printed = snippet(SCHEDULING, "VALUES ('Order@close@43'");
    run(&mut session, printed).await;
    let columns = "status, sts, adopted, tag, payload, IFNULL(max_attempts, 'none'), IFNULL(recurrence, 'none')";
    assert_eq!(
        row(&mut session, columns, "Order@close@43").await,
        "0 0 0 shop-7 {\"amount\": 5} none none"
    );
    let record = ledger.find(&key).await.unwrap().unwrap();
    assert_eq!(
        (record.state.to_string(), record.attempt),
        ("pending".to_owned(), 0)
    );

    // Without a tag and a payload, both ways that the page names.
    for without in [
        printed.replace("'shop-7', '{\"amount\": 5}'", "NULL, NULL"),
        printed
            .replace(", tag, payload)", ")")
            .replace("+ 1800,\n        'shop-7', '{\"amount\": 5}')", "+ 1800)"),
    ] {
        run(&mut session, printed).await;
        run(&mut session, &without).await;
        let left = row(
            &mut session,
            "IFNULL(tag, 'none'), IFNULL(payload, 'none')",
            "Order@close@43",
        );
        assert_eq!(left.await, "none none", "{without}");
    }
}

/// The statements of the guide that follow a comment.
fn after<'a>(block: &'a str, comment: &str) -> &'a str {
    let (_, rest) = block.split_once(comment).unwrap();
    rest.split("--").next().expect("split gives one part")
}

async fn migrated(ledger: &MysqlLedger) {
    let mut session = ledger.connection().await.unwrap();
    migrate::apply(
        &mut session,
        ledger.table(),
        &Options::default(),
        &mut |_| (),
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn the_way_back_to_the_old_listener_is_as_printed() {
    let server = PrivateMaria::start().await.unwrap();
    for (database, schema) in [
        ("with_index", PHP_SCHEMA.to_owned()),
        (
            "without_index",
            PHP_SCHEMA.replace(
                "PRIMARY KEY (id),\n  KEY ix_key (`key`)",
                "PRIMARY KEY (id)",
            ),
        ),
    ] {
        let url = server.create_database(database).await.unwrap();
        let ledger = connect(&url);
        let mut session = MySqlConnection::connect(&url).await.unwrap();
        run(&mut session, &schema).await;
        migrated(&ledger).await;
        let block = snippet(PHP_GUIDE, "DROP KEY uk_key");
        let (look, _) = block.split_once(';').unwrap();
        let found = sqlx::query(AssertSqlSafe(look.to_owned()))
            .fetch_all(&mut session)
            .await
            .unwrap();
        let way = match found.len() {
            0 => "-- It shows none:",
            _ => "-- It shows an index:",
        };
        assert_eq!(found.len(), usize::from(database == "with_index"));
        run(&mut session, after(block, way)).await;
        let twice = "INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time) VALUES ('A@b', 0, 1, 1), ('A@b', 0, 1, 1)";
        run(&mut session, twice).await;
        let indexes = "SELECT GROUP_CONCAT(DISTINCT index_name) FROM information_schema.statistics \
                       WHERE table_schema = DATABASE() AND table_name = 'tb_time_limit_task' AND column_name = 'key'";
        assert_eq!(text(&mut session, indexes).await, "ix_key", "{database}");
        migrated(&ledger).await;
        assert!(
            text(&mut session, indexes).await.contains("uk_key"),
            "{database}"
        );
    }
}

#[tokio::test]
async fn the_examples_log_in_as_the_user_that_their_readme_creates() {
    let server = PrivateMaria::start().await.unwrap();
    let root = server.create_database("app").await.unwrap();
    let mut session = MySqlConnection::connect(&root).await.unwrap();
    // Twice, as by a reader who tries both.
    for readme in [PHP_README, WORKERS_README, PHP_README] {
        run(&mut session, snippet(readme, "CREATE USER")).await;
    }
    for config in [PHP_CONFIG, WORKERS_CONFIG] {
        let config: toml::Table = config.parse().unwrap();
        let url = config["ledger"]["url"].as_str().unwrap();
        let url = url.replace(":3306/", &format!(":{}/", server.port()));
        let mut session = MySqlConnection::connect(&url).await.unwrap();
        let user = text(&mut session, "SELECT CURRENT_USER()").await;
        assert_eq!(user, "lapsed@127.0.0.1");
    }
    // And the one of the main page, whose database has another name.
    run(&mut session, snippet(README, "CREATE USER")).await;
    let url = format!(
        "mysql://lapsed:try-it@127.0.0.1:{}/lapsed_try",
        server.port()
    );
    assert!(README.contains(&url.replace(&server.port().to_string(), "3306")));
    MySqlConnection::connect(&url).await.unwrap();
}
