//! Trials: what claims rely on, tried with two connections.
//!
//! A server that speaks MySQL's protocol may accept each statement and mean something else by it. The trials use a row in the
//! table of rates, with a name that no route has, and a cancelled task whose insertion is rolled back.

use std::time::Duration;

use sqlx::mysql::MySqlConnectOptions;
use sqlx::{ConnectOptions, Connection, MySqlConnection, Row};

use super::access::NO_SUCH_TABLE;
use super::nodes::APART;
use super::{CLOCK, ENGINE_SESSION, IMPATIENT, is_about_rights, number, statement};
use crate::clocks::Reading;
use crate::runner::{Runner, Unresponsive, words};
use lapsed::diagnosis::Finding;
use lapsed::ledger::mysql::queries::{self, Queries};
use lapsed::task::{KeyBucket, TaskKey, UnixMs};
use lapsed_core::format::duration;

const READ_BACK: &str = "ledger.read_back";
const ISOLATION: &str = "ledger.isolation";
const CLAIM: &str = "ledger.claim";
const LOCKED_ROWS: &str = "ledger.locked_rows";
const GENERATED: &str = "ledger.generated";

/// All of them.
const CHECKS: [&str; 6] = [READ_BACK, ISOLATION, CLAIM, LOCKED_ROWS, GENERATED, CLOCK];

/// Checks of [`row_trials`].
const ROW_CHECKS: [&str; 4] = [READ_BACK, ISOLATION, CLAIM, LOCKED_ROWS];

const WRITE_ROW: &str = "INSERT INTO `{t}_rates` (route) VALUES (?)";
const READ_ROW: &str = "SELECT route FROM `{t}_rates` WHERE route = ?";
const REMOVE_ROW: &str = "DELETE FROM `{t}_rates` WHERE route = ?";
const READ_VALUE: &str = "SELECT full_at_ns FROM `{t}_rates` WHERE route = ?";
const CHANGE_ROW: &str = "UPDATE `{t}_rates` SET full_at_ns = full_at_ns + 1 WHERE route = ?";
/// As a claim: a change with a condition that no longer holds after it.
const CLAIM_ROW: &str =
    "UPDATE `{t}_rates` SET full_at_ns = -1 WHERE route = ? AND full_at_ns >= 0";
const UNLOCKED_ROW: &str = "SELECT route FROM `{t}_rates` WHERE route = ? FOR UPDATE SKIP LOCKED";

/// The transaction with the first claim stays open for this long, so that the second claim reaches the row meanwhile.
const HOLD: &str = "SELECT SLEEP(0.05)";

/// A task that ended long ago, which waits for a retry: due at 2.5 s. Its id is used up.
const WRITE_TASK: &str = "INSERT INTO `{t}` (`key`, status, start_time, end_time, sts, run_end, retry_at, finished_at) \
     VALUES (?, 3, 1, 1, 1, 1, 2.5, 1)";
const FIND_TASK: &str = "SELECT CAST(bucket AS SIGNED) FROM `{t}` FORCE INDEX (ix_due) \
     WHERE status = 3 AND sts = 1 AND due_at = CAST(? AS SIGNED) / 1000 AND `key` = ?";
/// The retry belongs to another arming: due at 1 s.
const REARM_TASK: &str = "UPDATE `{t}` SET run_end = 0 WHERE `key` = ?";
const REMOVE_TASK: &str = "DELETE FROM `{t}` WHERE `key` = ?";

/// Error number of a wait for a locked row that took too long.
const LOCK_WAIT_TIMEOUT: u16 = 1205;

/// What a transaction under READ COMMITTED reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Isolation {
    ReadCommitted,
    /// It reads what is not committed yet.
    Dirty,
    /// It does not read what was committed after it began.
    Snapshot,
    /// It waits for rows that others change.
    Locks,
}

/// What `SKIP LOCKED` does with a row that another session has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Locked {
    Skipped,
    Returned,
    Awaited,
    Refused(String),
}

/// Outcome of the trials with a row.
#[derive(Debug)]
struct Outcome {
    read_back: bool,
    isolation: Isolation,
    locked: Locked,
    /// How many of two claims of the row succeeded.
    claims: u64,
}

/// Tries a row, the generated columns and the clock of two connections, `first` and one that it opens.
pub(super) async fn examine(
    options: &MySqlConnectOptions,
    first: &mut MySqlConnection,
    queries: &Queries,
    runner: &mut Runner,
) -> Result<(), Unresponsive> {
    let second = async {
        let mut second = options.connect().await?;
        sqlx::raw_sql(ENGINE_SESSION).execute(&mut second).await?;
        sqlx::raw_sql(IMPATIENT).execute(&mut second).await?;
        Ok::<_, sqlx::Error>(second)
    };
    let Some(mut second) = runner.query(&CHECKS, second).await? else {
        return Ok(());
    };
    let clocks = clocks(first, &mut second);
    runner
        .check(CLOCK, clocks, |readings| judge_clocks(&readings))
        .await?;
    let outcome = row_trials(first, &mut second, queries);
    if let Some(outcome) = runner.query(&ROW_CHECKS, outcome).await? {
        runner.add(judge_row(outcome.as_ref()));
    }
    let generated = generated(&mut second, queries);
    runner.check(GENERATED, generated, judge_generated).await?;
    // A failure to close does not matter.
    let _ = runner.bounded(second.close()).await;
    Ok(())
}

/// Readings of the clock of each connection, and the times that the server gave, in microseconds.
struct Clocks {
    readings: [Reading; 2],
    micros: Vec<i64>,
}

async fn clocks(first: &mut MySqlConnection, second: &mut MySqlConnection) -> sqlx::Result<Clocks> {
    let mut micros = Vec::new();
    let mut readings = Vec::new();
    for conn in [first, second] {
        // The first statement also pays for what the server prepares.
        micros.push(read_micros(conn).await?);
        let reading = Reading::take(async {
            let read = read_micros(conn).await?;
            micros.push(read);
            Ok::<_, sqlx::Error>(UnixMs(read / 1000))
        });
        readings.push(reading.await?);
    }
    Ok(Clocks {
        readings: [readings[0], readings[1]],
        micros,
    })
}

async fn read_micros(conn: &mut MySqlConnection) -> sqlx::Result<i64> {
    let row = sqlx::query(queries::CLOCK).fetch_one(conn).await?;
    row.try_get(0)
}

fn judge_clocks(clocks: &Clocks) -> Finding {
    if clocks.micros.iter().all(|micros| micros % 1_000_000 == 0) {
        return Finding::error(CLOCK, "the clock of the server has whole seconds only").remedy(
            "use a server whose `NOW(3)` has milliseconds: tasks would start up to a second late",
        );
    }
    let [one, other] = clocks.readings;
    let apart = Duration::from_millis((one.ahead_ms - other.ahead_ms).unsigned_abs());
    if apart > APART + one.error + other.error {
        return Finding::error(
            CLOCK,
            format!("two connections read clocks that are {} apart: they lead to different servers", duration(apart)),
        )
        .remedy("let `ledger.url` lead to one server at a time, or synchronize the clocks of all (`chronyd`)");
    }
    Finding::ok(CLOCK, "two connections read the same clock")
}

/// A row of the table of rates. Nothing lists that table.
struct TrialRow<'a> {
    queries: &'a Queries,
    name: String,
}

impl TrialRow<'_> {
    async fn run(&self, template: &str, conn: &mut MySqlConnection) -> sqlx::Result<u64> {
        let asked = statement(self.queries.plain(template)).bind(self.name.clone());
        Ok(asked.execute(conn).await?.rows_affected())
    }

    async fn finds(&self, template: &str, conn: &mut MySqlConnection) -> sqlx::Result<bool> {
        let asked = statement(self.queries.plain(template)).bind(self.name.clone());
        Ok(asked.fetch_optional(conn).await?.is_some())
    }

    async fn value(&self, conn: &mut MySqlConnection) -> sqlx::Result<i64> {
        let asked = statement(self.queries.plain(READ_VALUE)).bind(self.name.clone());
        asked.fetch_one(conn).await?.try_get(0)
    }
}

/// Tries a row, if this user may write and delete there; else returns `None`.
async fn row_trials(
    first: &mut MySqlConnection,
    second: &mut MySqlConnection,
    queries: &Queries,
) -> sqlx::Result<Option<Outcome>> {
    let name = format!("#lapsed doctor {:016x}", rand::random::<u64>());
    let row = TrialRow { queries, name };
    // Delete first, so that no row stays where this user may not delete it.
    for template in [REMOVE_ROW, WRITE_ROW] {
        match row.run(template, first).await {
            Ok(_) => {}
            Err(error) if is_about_rights(&error) || number(&error) == Some(NO_SUCH_TABLE) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
    let outcome = try_row(first, second, &row).await;
    for conn in [&mut *second, &mut *first] {
        sqlx::raw_sql("ROLLBACK").execute(conn).await?;
    }
    row.run(REMOVE_ROW, first).await?;
    outcome.map(Some)
}

async fn try_row(
    first: &mut MySqlConnection,
    second: &mut MySqlConnection,
    row: &TrialRow<'_>,
) -> sqlx::Result<Outcome> {
    let read_back = row.finds(READ_ROW, first).await?;
    let isolation = isolation(first, second, row).await?;

    sqlx::raw_sql("BEGIN").execute(&mut *first).await?;
    let held = row.run(CLAIM_ROW, first).await?;
    let locked = match row.finds(UNLOCKED_ROW, second).await {
        Ok(false) => Locked::Skipped,
        Ok(true) => Locked::Returned,
        Err(error) if number(&error) == Some(LOCK_WAIT_TIMEOUT) => Locked::Awaited,
        Err(error @ sqlx::Error::Database(_)) => Locked::Refused(words(&error)),
        Err(error) => return Err(error),
    };
    let commit = async {
        sqlx::raw_sql(HOLD).execute(&mut *first).await?;
        sqlx::raw_sql("COMMIT").execute(&mut *first).await
    };
    let (committed, second) = tokio::join!(commit, row.run(CLAIM_ROW, second));
    let claims = succeeded(committed.map(|_| held))? + succeeded(second)?;
    Ok(Outcome {
        read_back,
        isolation,
        locked,
        claims,
    })
}

/// Rows that a claim took: none if the server refuses it.
fn succeeded(claim: sqlx::Result<u64>) -> sqlx::Result<u64> {
    match claim {
        Err(sqlx::Error::Database(_)) => Ok(0),
        claim => claim,
    }
}

async fn isolation(
    writer: &mut MySqlConnection,
    reader: &mut MySqlConnection,
    row: &TrialRow<'_>,
) -> sqlx::Result<Isolation> {
    sqlx::raw_sql("BEGIN").execute(&mut *writer).await?;
    row.run(CHANGE_ROW, writer).await?;
    sqlx::raw_sql("BEGIN").execute(&mut *reader).await?;
    let before = row.value(reader).await;
    sqlx::raw_sql("COMMIT").execute(&mut *writer).await?;
    let before = match before {
        Err(error) if number(&error) == Some(LOCK_WAIT_TIMEOUT) => {
            sqlx::raw_sql("ROLLBACK").execute(&mut *reader).await?;
            return Ok(Isolation::Locks);
        }
        before => before?,
    };
    let after = row.value(reader).await?;
    sqlx::raw_sql("ROLLBACK").execute(&mut *reader).await?;
    Ok(match (before, after) {
        (0, 1) => Isolation::ReadCommitted,
        (0, _) => Isolation::Snapshot,
        _ => Isolation::Dirty,
    })
}

fn judge_row(outcome: Option<&Outcome>) -> Vec<Finding> {
    let Some(outcome) = outcome else {
        let why = "this user may not write a row of the table of rates and delete it";
        return ROW_CHECKS.map(|check| Finding::unknown(check, why)).into();
    };
    vec![
        judge_read_back(outcome.read_back),
        judge_isolation(outcome.isolation),
        judge_claims(outcome.claims),
        judge_locked(&outcome.locked),
    ]
}

fn judge_read_back(read: bool) -> Finding {
    if read {
        return Finding::ok(READ_BACK, "a row can be read back as soon as it is written");
    }
    Finding::error(
        READ_BACK,
        "a row that was just written cannot be read: a proxy sends SELECT to a replica, so claimed tasks never run",
    )
    .remedy("send every statement of `ledger.url` to the server that takes writes: no read/write splitting")
}

fn judge_isolation(isolation: Isolation) -> Finding {
    let (found, remedy) = match isolation {
        Isolation::ReadCommitted => {
            return Finding::ok(
                ISOLATION,
                "a transaction reads what others have committed, and nothing else",
            );
        }
        Isolation::Dirty => {
            return Finding::error(
                ISOLATION,
                "a transaction reads what others have not committed: a task may run whose creation is rolled back",
            )
            .remedy("use a server with READ COMMITTED");
        }
        Isolation::Snapshot => (
            "a transaction does not read what others commit meanwhile, although READ COMMITTED was set",
            "use a server with READ COMMITTED: under another isolation level claims lock the gaps between rows, and creations wait for them",
        ),
        Isolation::Locks => (
            "a transaction waits for the rows that others change, although READ COMMITTED was set",
            "use a server with READ COMMITTED: lists and claims wait for each other",
        ),
    };
    Finding::warning(ISOLATION, found).remedy(remedy)
}

fn judge_claims(claims: u64) -> Finding {
    match claims {
        1 => Finding::ok(CLAIM, "of two claims of one row, one succeeds"),
        0 => Finding::warning(CLAIM, "of two claims of one row, none succeeds")
            .remedy("several daemons would hinder each other on this server: start one"),
        _ => Finding::error(
            CLAIM,
            "two claims of one row both succeed: two daemons would run one task",
        )
        .remedy("use a server that judges the condition of an `UPDATE` again after it has waited for a row"),
    }
}

fn judge_locked(locked: &Locked) -> Finding {
    let found = match locked {
        Locked::Skipped => return Finding::ok(LOCKED_ROWS, "`SKIP LOCKED` leaves locked rows out"),
        Locked::Returned => "`SKIP LOCKED` returns a row that is locked".to_owned(),
        Locked::Awaited => "`SKIP LOCKED` waits for a row that is locked".to_owned(),
        Locked::Refused(why) => format!("`SKIP LOCKED` is refused: {why}"),
    };
    Finding::warning(
        LOCKED_ROWS,
        format!("{found}: one locked row slows a whole batch of tasks"),
    )
    .remedy("use a server with `SKIP LOCKED`, or let no program keep rows of tasks locked")
}

/// Compares the generated columns of a task with what they should be; `Err` says what differs. `None`: this user may not
/// insert, or delete.
async fn generated(
    conn: &mut MySqlConnection,
    queries: &Queries,
) -> sqlx::Result<Option<Result<(), &'static str>>> {
    let key = format!("LapsedDoctor@trial@{:016x}", rand::random::<u64>());
    let key = TaskKey::parse(&key).expect("a class, a method and an argument");
    let asks = |template| statement(queries.plain(template)).bind(key.as_str().to_owned());
    match asks(REMOVE_TASK).execute(&mut *conn).await {
        Err(error) if is_about_rights(&error) => return Ok(None),
        removed => removed?,
    };
    sqlx::raw_sql("BEGIN").execute(&mut *conn).await?;
    let compared = compare(conn, queries, &key).await;
    sqlx::raw_sql("ROLLBACK").execute(&mut *conn).await?;
    let stayed = asks(REMOVE_TASK).execute(&mut *conn).await?.rows_affected();
    match compared {
        Err(error) if is_about_rights(&error) => Ok(None),
        Ok(Ok(())) if stayed > 0 => Ok(Some(Err("a row whose insertion was rolled back stayed"))),
        compared => compared.map(Some),
    }
}

async fn compare(
    conn: &mut MySqlConnection,
    queries: &Queries,
    key: &TaskKey,
) -> sqlx::Result<Result<(), &'static str>> {
    let plain = |template| statement(queries.plain(template));
    let named = |template| plain(template).bind(key.as_str().to_owned());
    let due_at = async |conn: &mut MySqlConnection, ms: i64| {
        let found = plain(FIND_TASK).bind(ms).bind(key.as_str().to_owned());
        let found = found.fetch_optional(conn).await?;
        found.map(|row| row.try_get::<i64, _>(0)).transpose()
    };
    named(WRITE_TASK).execute(&mut *conn).await?;
    let retried = due_at(conn, 2_500).await?;
    named(REARM_TASK).execute(&mut *conn).await?;
    let rearmed = due_at(conn, 1_000).await?;
    let bucket = Some(i64::from(KeyBucket::of(key).number()));
    Ok(match (retried, rearmed) {
        (None, _) | (_, None) => Err("`ix_due` does not find a task by its `due_at`"),
        found if found == (bucket, bucket) => Ok(()),
        _ => Err("`bucket` is not the CRC-32 of the key"),
    })
}

fn judge_generated(compared: Option<Result<(), &'static str>>) -> Finding {
    match compared {
        Some(Ok(())) => Finding::ok(
            GENERATED,
            "generated columns follow the columns that they are made of",
        ),
        Some(Err(why)) => Finding::error(GENERATED, why).remedy(
            "use another server, or another version of it: tasks are found by these columns",
        ),
        None => Finding::unknown(
            GENERATED,
            "this user may not insert a row of the table of tasks and delete it",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assertions::assert_is;
    use lapsed::diagnosis::Severity;

    #[test]
    fn a_split_of_reads_and_writes_is_an_error() {
        assert_is(&judge_read_back(true), Severity::Ok, "read back");
        assert_is(&judge_read_back(false), Severity::Error, "to a replica");
    }

    #[test]
    fn without_rights_nothing_is_said_of_a_row() {
        let findings = judge_row(None);
        assert_eq!(findings.len(), ROW_CHECKS.len());
        for finding in findings {
            assert_is(&finding, Severity::Note, "could not be checked");
        }
        assert_is(
            &judge_generated(None),
            Severity::Note,
            "could not be checked",
        );
    }

    #[test]
    fn clocks_of_two_connections_agree_and_have_milliseconds() {
        let reading = |ahead_ms, error_ms| Reading {
            ahead_ms,
            error: Duration::from_millis(error_ms),
        };
        let judge = |one, other, micros: &[i64]| {
            judge_clocks(&Clocks {
                readings: [one, other],
                micros: micros.to_vec(),
            })
        };
        let fine = [1_000_123, 2_000_000];
        assert_is(
            &judge(reading(0, 1), reading(90, 1), &fine),
            Severity::Ok,
            "same clock",
        );
        assert_is(
            &judge(reading(0, 1), reading(200, 1), &fine),
            Severity::Error,
            "200 ms apart",
        );
        assert_is(
            &judge(reading(0, 1), reading(200, 120), &fine),
            Severity::Ok,
            "same clock",
        );
        assert_is(
            &judge(reading(0, 1), reading(0, 1), &[1_000_000, 2_000_000]),
            Severity::Error,
            "whole seconds",
        );
    }
}
