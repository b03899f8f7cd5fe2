//! The archive: rows are in exactly one table whatever happens, and its partitions follow the months.

use std::time::Duration;

use lapsed::ledger::migrate::Options;
use lapsed::ledger::mysql::MysqlLedger;
use lapsed::ledger::mysql::queries::{self, Queries};
use lapsed::ledger::{Admin, ListFilter, Prune, Retention, StateFilter};
use lapsed::task::{State, TaskKey};
use lapsed_sandbox::PrivateMaria;
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, Row};

use crate::mysql::proxy::{Act, Proxy};
use crate::mysql::rig::{connect, lock};
use crate::support::maria::numbers;
use crate::support::wait::until;

const DAY_S: i64 = 86_400;

/// A server, a ledger with an archive, and its URL.
async fn start() -> (PrivateMaria, MysqlLedger, String) {
    let server = PrivateMaria::options().durable(true).start();
    let server = server.await.unwrap();
    let url = server.create_database("app").await.unwrap();
    let ledger = connect(&url);
    let options = Options::default().archive(true);
    ledger.migrate_with(&options).await.unwrap();
    (server, ledger, url)
}

fn archiving() -> Prune {
    Prune {
        state: State::Done,
        age: Some(Duration::from_secs(3_600)),
        surplus: None,
        after: None,
        limit: 500,
        archive: true,
        dry_run: false,
    }
}

/// Archives every row that is old enough. Returns the number of rows.
async fn archive_all(ledger: &MysqlLedger) -> u64 {
    let (mut prune, mut rows) = (archiving(), 0);
    loop {
        let pruned = ledger.prune(&prune).await.unwrap();
        rows += pruned.rows;
        prune.after = pruned.next;
        if prune.after.is_none() {
            return rows;
        }
    }
}

async fn session(url: &str) -> MySqlConnection {
    MySqlConnection::connect(url).await.unwrap()
}

/// Inserts tasks that were done so many seconds ago, by the clock of the session.
async fn done(session: &mut MySqlConnection, name: &str, count: i64, ago_s: i64) {
    let insert = format!(
        "INSERT INTO tb_time_limit_task (`key`, status, start_time, end_time, finished_at, payload) \
         SELECT CONCAT('Done@{name}@', seq), 1, UNIX_TIMESTAMP() - {ago_s} - 9, UNIX_TIMESTAMP() - {ago_s} - 1, UNIX_TIMESTAMP() - {ago_s}, '[1]' \
         FROM {}",
        numbers(count)
    );
    session.execute(AssertSqlSafe(insert)).await.unwrap();
}

async fn number(session: &mut MySqlConnection, question: &str) -> i64 {
    let question = sqlx::query_scalar(AssertSqlSafe(question.to_owned()));
    question.fetch_one(session).await.unwrap()
}

/// The number of rows of both tables.
async fn rows(session: &mut MySqlConnection) -> (i64, i64) {
    let there = number(session, "SELECT COUNT(*) FROM tb_time_limit_task").await;
    let archived = "SELECT COUNT(*) FROM tb_time_limit_task_archive";
    (there, number(session, archived).await)
}

/// The statement that deletes rows which have been copied.
fn is_delete(statement: &str) -> bool {
    statement.starts_with("DELETE FROM `tb_time_limit_task` WHERE id IN")
}

#[tokio::test]
async fn a_server_that_is_killed_between_copy_and_delete_has_each_row_in_one_table() {
    let (mut server, ledger, url) = start().await;
    done(&mut session(&url).await, "killed", 20, 7_200).await;
    let hold = |statement: &str| match is_delete(statement) {
        true => Act::Hold,
        false => Act::Pass,
    };
    let proxy = Proxy::before(&url, hold).await;
    let through = connect(&proxy.url(&url));
    let archiving = tokio::spawn(async move { through.prune(&archiving()).await });
    until("the rows are copied", async || proxy.held() == 1).await;
    assert_eq!(rows(&mut session(&url).await).await, (20, 0));
    server.kill();
    assert!(archiving.await.unwrap().unwrap_err().is_transient());
    server.restart().await.unwrap();
    assert_eq!(rows(&mut session(&url).await).await, (20, 0));
    assert_eq!(archive_all(&ledger).await, 20);
    assert_eq!(rows(&mut session(&url).await).await, (0, 20));
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_leaves_each_row_in_one_table() {
    let (_server, ledger, url) = start().await;
    let mut admin = session(&url).await;
    done(&mut admin, "lost", 20, 7_200).await;
    let hold = |statement: &str| match statement {
        "COMMIT" => Act::Hold,
        _ => Act::Pass,
    };
    let proxy = Proxy::before(&url, hold).await;
    let through = connect(&proxy.url(&url));
    let caller = tokio::spawn(async move { through.prune(&archiving()).await });
    until("it commits", async || proxy.held() == 1).await;
    assert_eq!(rows(&mut admin).await, (20, 0));
    // Whoever asked has left; the transaction goes on.
    caller.abort();
    proxy.let_go();
    until("it is committed", async || {
        rows(&mut session(&url).await).await == (0, 20)
    })
    .await;
    assert_eq!(archive_all(&ledger).await, 0);
    assert_eq!(rows(&mut admin).await, (0, 20));
}

#[tokio::test]
async fn a_row_that_cannot_be_deleted_is_not_archived() {
    let (_server, _, url) = start().await;
    let mut admin = session(&url).await;
    done(&mut admin, "refused", 3, 7_200).await;
    // Referenced by a foreign key.
    let refuse = |statement: &str| match is_delete(statement) {
        true => Act::Refuse(1451),
        false => Act::Pass,
    };
    let proxy = Proxy::before(&url, refuse).await;
    let through = connect(&proxy.url(&url));
    for _ in 0..2 {
        through.prune(&archiving()).await.unwrap_err();
        assert_eq!(rows(&mut admin).await, (3, 0));
    }
    // Its connections have no transaction open.
    let open = "SELECT COUNT(*) FROM information_schema.INNODB_TRX";
    assert_eq!(number(&mut admin, open).await, 0);
}

#[tokio::test]
async fn two_daemons_that_archive_the_same_rows_lose_none_and_double_none() {
    let (_server, ledger, url) = start().await;
    let mut admin = session(&url).await;
    done(&mut admin, "both", 5_000, 7_200).await;
    let other = connect(&url);
    let (one, two) = tokio::join!(archive_all(&ledger), archive_all(&other));
    // One may have met the locks of the other, and gone by.
    let rest = archive_all(&ledger).await;
    assert_eq!(one + two + rest, 5_000);
    assert_eq!(rows(&mut admin).await, (0, 5_000));
    let keys = "SELECT COUNT(DISTINCT `key`) FROM tb_time_limit_task_archive WHERE payload = '[1]'";
    assert_eq!(number(&mut admin, keys).await, 5_000);
}

#[tokio::test]
async fn a_row_that_another_session_has_locked_holds_up_no_other() {
    let (_server, ledger, url) = start().await;
    let mut admin = session(&url).await;
    done(&mut admin, "locked", 40, 7_200).await;
    let row = "SELECT CAST(id AS SIGNED) FROM tb_time_limit_task WHERE `key` = 'Done@locked@7'";
    let row = number(&mut admin, row).await;
    let mut other = session(&url).await;
    let holding = lock(&mut other, row.try_into().unwrap()).await;
    assert_eq!(archive_all(&ledger).await, 39);
    assert_eq!(rows(&mut admin).await, (1, 39));
    holding.rollback().await.unwrap();
    assert_eq!(archive_all(&ledger).await, 1);
    assert_eq!(rows(&mut admin).await, (0, 40));
}

#[tokio::test]
async fn a_row_that_was_archived_before_is_archived_once() {
    let (_server, ledger, url) = start().await;
    let mut admin = session(&url).await;
    done(&mut admin, "restored", 3, 7_200).await;
    admin
        .execute("CREATE TABLE dump AS SELECT * FROM tb_time_limit_task")
        .await
        .unwrap();
    assert_eq!(archive_all(&ledger).await, 3);
    // A dump of the table is restored, without its archive.
    admin
        .execute("INSERT INTO tb_time_limit_task (id, `key`, status, start_time, end_time, finished_at, payload) \
             SELECT id, `key`, status, start_time, end_time, finished_at, payload FROM dump")
        .await
        .unwrap();
    done(&mut admin, "another", 2, 7_200).await;
    assert_eq!(archive_all(&ledger).await, 5);
    assert_eq!(rows(&mut admin).await, (0, 5));
}

#[tokio::test]
async fn without_an_archive_nothing_is_deleted_and_the_error_says_what_to_do() {
    let server = PrivateMaria::options().durable(false).start();
    let server = server.await.unwrap();
    let url = server.create_database("app").await.unwrap();
    let ledger = connect(&url);
    ledger.migrate().await.unwrap();
    let mut admin = session(&url).await;
    done(&mut admin, "absent", 3, 7_200).await;
    let key = TaskKey::parse("Done@absent@1").unwrap();
    let filter = ListFilter {
        archived: true,
        limit: 1,
        ..ListFilter::default()
    };
    let errors = [
        ledger.prune(&archiving()).await.unwrap_err(),
        ledger.maintain_archive(None).await.unwrap_err(),
        ledger.find_archived(&key).await.unwrap_err(),
        ledger.list(&filter).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(
            error.to_string(),
            "ledger refused: there is no table `tb_time_limit_task_archive`: set `archive = true` in `[retention]`, and run `lapsed migrate`"
        );
    }
    let there = number(&mut admin, "SELECT COUNT(*) FROM tb_time_limit_task").await;
    assert_eq!(there, 3);
}

/// A daemon's user, whose sessions have a clock that the test sets.
struct User {
    url: String,
    admin: MySqlConnection,
}

impl User {
    /// Creates a user with these privileges.
    async fn new(url: &str, name: &str, grants: &[&str]) -> Self {
        let mut admin = session(url).await;
        let create = format!("CREATE USER {name}@'%' IDENTIFIED BY 'pw'");
        admin.execute(AssertSqlSafe(create)).await.unwrap();
        for grant in grants {
            let grant = format!("GRANT {grant} TO {name}@'%'");
            admin.execute(AssertSqlSafe(grant)).await.unwrap();
        }
        let (scheme, rest) = url.split_once("://").unwrap();
        let (_, place) = rest.rsplit_once('@').unwrap();
        Self {
            url: format!("{scheme}://{name}:pw@{place}"),
            admin,
        }
    }

    /// Sets the clock of new sessions this far from the present.
    async fn set_clock(&mut self, ahead_s: i64) {
        let now = number(&mut self.admin, "SELECT UNIX_TIMESTAMP()").await;
        let set = format!(
            "SET GLOBAL init_connect = 'SET timestamp = {}'",
            now + ahead_s
        );
        self.admin.execute(AssertSqlSafe(set)).await.unwrap();
    }

    /// Partitions of the archive by name, with the number of their rows.
    async fn partitions(&mut self) -> Vec<(String, i64)> {
        let names = "SELECT CAST(PARTITION_NAME AS CHAR) FROM information_schema.PARTITIONS \
             WHERE TABLE_NAME = 'tb_time_limit_task_archive' ORDER BY PARTITION_ORDINAL_POSITION";
        let names: Vec<String> = sqlx::query_scalar(names)
            .fetch_all(&mut self.admin)
            .await
            .unwrap();
        let mut partitions = Vec::new();
        for name in names {
            let count =
                format!("SELECT COUNT(*) FROM tb_time_limit_task_archive PARTITION (`{name}`)");
            partitions.push((name, number(&mut self.admin, &count).await));
        }
        partitions
    }
}

const ARCHIVE: &str = "app.tb_time_limit_task_archive";

#[tokio::test]
async fn partitions_follow_the_months_and_are_dropped_when_all_of_their_tasks_are_too_old() {
    const YEAR: Option<Duration> = Some(Duration::from_secs(365 * 86_400));
    let (_server, _, url) = start().await;
    let grants = [
        "SELECT, INSERT, UPDATE, DELETE ON app.tb_time_limit_task",
        &format!("SELECT, INSERT, ALTER, CREATE, DROP ON {ARCHIVE}"),
    ];
    let mut user = User::new(&url, "daemon", &grants).await;
    assert_eq!(user.partitions().await.len(), 5, "four months, and later");
    // Half a year on, it has been away.
    user.set_clock(190 * DAY_S).await;
    let ledger = connect(&user.url);
    done(&mut session(&user.url).await, "then", 7, 7_200).await;
    assert_eq!(archive_all(&ledger).await, 7);
    let (later, count) = user.partitions().await.pop().unwrap();
    assert_eq!(
        (later.as_str(), count),
        ("p_later", 7),
        "it takes what has no other"
    );
    let made = ledger.maintain_archive(YEAR).await.unwrap();
    assert!((5..=7).contains(&made.created.len()), "{made:?}");
    assert!(made.dropped.is_empty(), "{made:?}");
    let partitions = user.partitions().await;
    assert_eq!(partitions.last().unwrap().1, 0, "it was divided");
    let of_rows = partitions.iter().filter(|(_, count)| *count == 7);
    assert_eq!(of_rows.count(), 1, "{partitions:?}");
    assert_eq!(
        ledger.maintain_archive(YEAR).await.unwrap(),
        Default::default()
    );

    // Tasks from before the first month are in the first partition.
    done(&mut session(&user.url).await, "before", 3, 400 * DAY_S).await;
    assert_eq!(archive_all(&ledger).await, 3);
    assert_eq!(user.partitions().await[0].1, 3);

    // A year later the first months are too old, and those of half a year ago are not.
    user.set_clock((190 + 250) * DAY_S).await;
    let ledger = connect(&user.url);
    let made = ledger.maintain_archive(YEAR).await.unwrap();
    assert!((1..=3).contains(&made.dropped.len()), "{made:?}");
    assert!(made.created.len() >= 7, "{made:?}");
    let left: i64 = user.partitions().await.iter().map(|(_, count)| count).sum();
    assert_eq!(left, 7);
    user.set_clock((190 + 250 + 365) * DAY_S).await;
    let ledger = connect(&user.url);
    ledger.maintain_archive(YEAR).await.unwrap();
    let left: i64 = user.partitions().await.iter().map(|(_, count)| count).sum();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_daemon_that_may_not_alter_archives_all_the_same_and_says_what_to_grant() {
    let (_server, _, url) = start().await;
    let tasks = "SELECT, INSERT, UPDATE, DELETE ON app.tb_time_limit_task";
    let grants = [tasks, &format!("SELECT, INSERT ON {ARCHIVE}")];
    let mut user = User::new(&url, "restricted", &grants).await;
    user.set_clock(190 * DAY_S).await;
    let ledger = connect(&user.url);
    done(&mut session(&user.url).await, "then", 7, 7_200).await;
    let error = ledger.maintain_archive(None).await.unwrap_err().to_string();
    assert!(
        error.contains("cannot add ")
            && error.contains(
                "partitions to the archive: grant ALTER, CREATE, DROP and INSERT on `tb_time_limit_task_archive` to this user, \
                 or run `lapsed migrate` each month"
            ),
        "{error}"
    );
    assert_eq!(archive_all(&ledger).await, 7);
    assert_eq!(user.partitions().await.pop().unwrap().1, 7);
    // As its owner does from time to time.
    User::new(&url, "owner", &["ALL ON app.*"]).await;
    let owner = connect(&user.url.replace("restricted", "owner"));
    let options = Options::default().archive(true);
    owner.migrate_with(&options).await.unwrap();
    let partitions = user.partitions().await;
    assert_eq!(partitions.last().unwrap().1, 0, "{partitions:?}");
    let left: i64 = partitions.iter().map(|(_, count)| count).sum();
    assert_eq!(left, 7);
    let made = ledger.maintain_archive(None).await.unwrap();
    assert_eq!(made, Default::default(), "there is nothing to do");
}

#[tokio::test]
async fn partitions_are_created_once_by_many_daemons() {
    let (_server, _, url) = start().await;
    let mut user = User::new(&url, "daemons", &["ALL ON app.*"]).await;
    user.set_clock(190 * DAY_S).await;
    let ledgers: Vec<MysqlLedger> = (0..4).map(|_| connect(&user.url)).collect();
    let all = ledgers.iter().map(|ledger| ledger.maintain_archive(None));
    let made = futures_util::future::join_all(all).await;
    let created: usize = made
        .into_iter()
        .map(|made| made.unwrap().created.len())
        .sum();
    assert_eq!(user.partitions().await.len(), 5 + created);
}

#[tokio::test]
async fn statements_of_the_archive_use_the_index_that_is_meant_for_them() {
    let (_server, ledger, url) = start().await;
    let mut admin = session(&url).await;
    for (name, ago) in [("a", 1), ("b", 40), ("c", 80)] {
        done(&mut admin, name, 2_000, ago * DAY_S).await;
    }
    assert_eq!(archive_all(&ledger).await, 6_000);
    done(&mut admin, "left", 2_000, 7_200).await;
    admin
        .execute("ANALYZE TABLE tb_time_limit_task, tb_time_limit_task_archive")
        .await
        .unwrap();
    // The server reads nothing for a row that is not there.
    let first = "SELECT CAST(MIN(id) AS SIGNED) FROM tb_time_limit_task";
    let first = number(&mut admin, first).await;
    let queries = Queries::new(ledger.table());
    let archive = Queries::of_archive(ledger.table());
    let place = |index: &str, columns: &str| {
        let place = archive.plain(queries::PLACE).replace("{columns}", columns);
        place.replace("{index}", &format!(" FORCE INDEX ({index})"))
    };
    let by_due = place("ix_due", "id, due_at")
        + "status = 1 AND sts = 0 AND ((due_at = 1 AND id > 1) OR due_at > 1) ORDER BY due_at, id LIMIT 10";
    let by_key = place("ix_key", "id, `key`")
        + "`key` >= 'Done@a@1' AND `key` < 'Done@a@2' AND ((`key` = 'Done@a@1' AND id > 1) OR `key` > 'Done@a@1') ORDER BY `key`, id LIMIT 10";
    let expected = [
        (queries.with_rows(queries::LOCK_PRUNABLE, 8), "PRIMARY"),
        (queries.with_rows(queries::ARCHIVE_ROWS, 8), "PRIMARY"),
        (queries.with_rows(queries::ARCHIVE_OTHERS, 8), "PRIMARY"),
        (queries.with_rows(queries::DELETE_ARCHIVED, 8), "PRIMARY"),
        (
            archive.archived_by_key().replacen('?', "'Done@a@1'", 1),
            "ix_key",
        ),
        (by_due, "ix_due"),
        (by_key, "ix_key"),
        (
            place("PRIMARY", "id") + "id > 5 ORDER BY id LIMIT 10",
            "PRIMARY",
        ),
    ];
    for (statement, index) in expected {
        // Eight rows, then the status and the age.
        let mut values = statement.clone();
        for n in 0..statement.matches('?').count() {
            let value = if n < 8 { first + n as i64 } else { 1 };
            values = values.replacen('?', &value.to_string(), 1);
        }
        let explain = format!("EXPLAIN FORMAT=TRADITIONAL {values}");
        let explained = sqlx::query(AssertSqlSafe(explain)).fetch_all(&mut admin);
        for row in explained.await.unwrap() {
            // An INSERT names the table that it fills, too.
            let found: Option<String> = row.try_get("key").unwrap();
            let kind: Option<String> = row.try_get("type").unwrap();
            let extra: Option<String> = row.try_get("Extra").unwrap();
            let of_values = kind.as_deref() == Some("ALL") && statement.starts_with("INSERT");
            if !of_values {
                assert_eq!(found.as_deref(), Some(index), "{statement}");
            }
            let extra = extra.unwrap_or_default();
            assert!(!extra.contains("filesort"), "{statement}: {extra}");
        }
    }
    // A page costs what its rows cost, in as many partitions as there are.
    let filter = ListFilter {
        archived: true,
        states: vec![StateFilter::Is(State::Done)],
        newest: true,
        limit: 50,
        ..ListFilter::default()
    };
    let page = ledger.list(&filter).await.unwrap();
    let dues: Vec<_> = page.tasks.iter().map(|task| task.due_at).collect();
    assert!(dues.len() == 50 && dues.is_sorted_by(|one, next| one >= next));
}
