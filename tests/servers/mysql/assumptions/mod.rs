//! What the statements of the ledger take for granted about the server, a line each. `scripts/on-mysql` runs them on another.

mod lines;

use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, Row as _};

use self::lines::{LINES, Line};
use crate::support::maria::database;
use crate::support::wait::until;

/// Each line begins with these three rows.
const TABLE: &str = "DROP TABLE IF EXISTS t;
    CREATE TABLE t (
      id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
      k VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
      status TINYINT UNSIGNED NOT NULL DEFAULT 0,
      end_time DECIMAL(13,3) UNSIGNED NOT NULL DEFAULT 100,
      retry_at DECIMAL(13,3) NOT NULL DEFAULT 0,
      n BIGINT NOT NULL DEFAULT 0,
      due_at DECIMAL(13,3) GENERATED ALWAYS AS (GREATEST(end_time, retry_at)) VIRTUAL,
      UNIQUE KEY uk_k (k), KEY ix_due (status, due_at, id)
    ) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
    INSERT INTO t (k) VALUES ('a'), ('b'), ('c')";

/// What the ledger sets in its sessions.
const SESSION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SET SESSION innodb_lock_wait_timeout = 1, time_zone = '+00:00'";

/// A session as the ledger's.
async fn session(url: &str) -> MySqlConnection {
    let mut session = MySqlConnection::connect(url).await.unwrap();
    session.execute(SESSION).await.unwrap();
    session
}

/// What a statement answers.
async fn answer(session: &mut MySqlConnection, statement: &str, wanted: &str) -> String {
    let sql = || sqlx::raw_sql(AssertSqlSafe(statement.to_owned()));
    let answered = if statement.starts_with("SELECT") {
        sql().fetch_all(session).await.map(|rows| {
            let texts = rows
                .iter()
                .map(|row| row.try_get_unchecked::<String, _>(0).unwrap());
            texts.collect::<Vec<_>>().join(",")
        })
    } else {
        sql()
            .execute(session)
            .await
            .map(|done| match wanted.starts_with("id ") {
                true => format!("id {}", done.last_insert_id()),
                false => format!("matched {}", done.rows_affected()),
            })
    };
    answered.unwrap_or_else(|error| format!("error {}", number(&error)))
}

fn number(error: &sqlx::Error) -> u16 {
    let database = error
        .as_database_error()
        .unwrap_or_else(|| panic!("{error}"));
    database
        .downcast_ref::<sqlx::mysql::MySqlDatabaseError>()
        .number()
}

/// What differs from the line.
async fn check(url: &str, (name, before, statement, expected): &Line) -> Option<String> {
    let [mut a, mut b] = [session(url).await, session(url).await];
    a.execute(TABLE).await.unwrap();
    for step in *before {
        let (session, step) = match step.strip_prefix("b: ") {
            Some(step) => (&mut b, step),
            None => (&mut a, *step),
        };
        let fails = step.strip_prefix("fails: ");
        let found = answer(session, fails.unwrap_or(step), "").await;
        assert_eq!(
            found.starts_with("error"),
            fails.is_some(),
            "{name}: `{step}`: {found}"
        );
    }
    let found = answer(&mut a, statement, expected).await;
    // Locks are gone before the next line drops the table.
    for session in [a, b] {
        session.close().await.unwrap();
    }
    let is_expected = expected.split(" or ").any(|expected| expected == found);
    (!is_expected).then(|| format!("{name}: {found}, not {expected}"))
}

#[tokio::test]
async fn the_server_does_what_each_line_says() {
    let url = database("assumptions").await;
    let mut failed = Vec::new();
    for line in LINES {
        failed.extend(check(&url, line).await);
    }
    let mut session = session(&url).await;
    let version = answer(&mut session, "SELECT VERSION()", "").await;
    assert!(failed.is_empty(), "{version}:\n{}", failed.join("\n"));
    println!("{version} does what {} lines say", LINES.len());
}

#[tokio::test]
async fn a_deadlock_is_error_1213_for_one_of_the_two_whose_transaction_is_undone() {
    let url = database("assumed_deadlocks").await;
    let [mut a, mut b] = [session(&url).await, session(&url).await];
    a.execute(TABLE).await.unwrap();
    for (session, id) in [(&mut a, 1), (&mut b, 2)] {
        // The server sees the circle at once; without that, this is longer than the test waits.
        session
            .execute("SET SESSION innodb_lock_wait_timeout = 600")
            .await
            .unwrap();
        session.execute("BEGIN").await.unwrap();
        let update = format!("UPDATE t SET n = n + 1 WHERE id = {id}");
        assert_eq!(answer(session, &update, "").await, "matched 1");
    }
    let (of_a, of_b) = tokio::join!(
        answer(&mut a, "UPDATE t SET n = n + 1 WHERE id = 2", ""),
        answer(&mut b, "UPDATE t SET n = n + 1 WHERE id = 1", "")
    );
    let mut answers = [of_a, of_b];
    for session in [&mut a, &mut b] {
        session.execute("COMMIT").await.unwrap();
    }
    answers.sort();
    assert_eq!(answers, ["error 1213", "matched 1"]);
    assert_eq!(answer(&mut a, "SELECT n FROM t", "").await, "1,1,0");
}

#[tokio::test]
async fn a_session_that_is_killed_gives_back_its_locks() {
    let url = database("assumed_kills").await;
    let [mut a, mut b] = [session(&url).await, session(&url).await];
    a.execute(TABLE).await.unwrap();
    b.execute("BEGIN").await.unwrap();
    b.execute("UPDATE t SET n = 1 WHERE id = 1").await.unwrap();
    let id = answer(&mut b, "SELECT CONNECTION_ID()", "").await;
    assert_eq!(answer(&mut a, &format!("KILL {id}"), "").await, "matched 0");
    let other = tokio::sync::Mutex::new(&mut a);
    until("the row is free", async || {
        let free = "SELECT n FROM t FORCE INDEX (PRIMARY) WHERE id = 1 FOR UPDATE SKIP LOCKED";
        answer(*other.lock().await, free, "").await == "0"
    })
    .await;
    assert_eq!(
        answer(&mut a, &format!("KILL {id}"), "").await,
        "error 1094"
    );
}
