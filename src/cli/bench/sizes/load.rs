//! Loads a table in bulk: the server copies three tasks that went through the program.

use std::time::Duration;

use anyhow::{Context, ensure};
use lapsed::ledger::{Claimant, Settled, Settlement};
use lapsed::task::{AttemptError, Death, How, Reason, State, Verdict};
use lapsed::{Due, Task, TaskKey, UnixMs};
use sqlx::{AssertSqlSafe, MySqlConnection};

use crate::bench::environment::Environment;
use crate::bench::progress::bar;

/// Tasks in each of these numbers that follow each other: pending, done, dead.
const CYCLE: [(State, u32); 3] = [(State::Pending, 30), (State::Done, 30), (State::Dead, 1)];

/// All of them.
const CYCLE_TASKS: u32 = 61;

/// Tasks per statement: as many as five digits count.
const CHUNK: u32 = 100_000;

/// Tasks with the same tag, whatever their states.
pub const TAGGED: u32 = 1_000;

/// Class and method of the tasks, in turn.
const METHODS: [&str; 4] = ["Order@close", "Order@remind", "Auction@end", "Review@score"];

/// The error of a dead task. Its number is that of the task, modulo [`WAREHOUSES`].
const ERROR: &str = "warehouse 0 does not answer";
const WAREHOUSES: u32 = 20;

/// Ten rows, to count with.
const DIGITS: &str = "SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 \
     UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9";

/// The columns of the table that are not generated, without the id.
const COLUMNS: &str = "SELECT CAST(COLUMN_NAME AS CHAR) FROM information_schema.COLUMNS \
     WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? AND COALESCE(GENERATION_EXPRESSION, '') = '' AND COLUMN_NAME <> 'id' \
     ORDER BY ORDINAL_POSITION";

const PAYLOAD: &str = r#"{"customer":4711,"amount":"19.90"}"#;

/// Due time of the first pending task, from now, and the span from there to the last one.
const AHEAD: Duration = Duration::from_secs(6 * 3600);
const AHEAD_SPAN_MS: u64 = 24 * 24 * 3600 * 1000;

/// Span of the due times of finished tasks, until a minute ago.
const BACK_SPAN_MS: u64 = 30 * 24 * 3600 * 1000;
const BACK_MS: u64 = 60_000;

/// Number of rows of a size: one dead task beside each sixty others.
pub fn rows_of(size: u32) -> u32 {
    let rows = u64::from(size) * u64::from(CYCLE_TASKS) / u64::from(CYCLE_TASKS - 1);
    u32::try_from(rows).unwrap_or(u32::MAX)
}

/// The key of a number.
pub fn key(number: u32) -> TaskKey {
    let method = METHODS[(number / CYCLE_TASKS) as usize % METHODS.len()];
    let key = format!("{method}@{number}");
    key.parse()
        .expect("class, method and a number fit the grammar")
}

/// The tag of a number.
pub fn tag(number: u32) -> String {
    format!("batch-{}", number / TAGGED)
}

/// The error of a dead task of this number of a warehouse.
pub fn error(warehouse: u32) -> String {
    ERROR.replace('0', &warehouse.to_string())
}

/// The rows that are copied.
pub struct Originals {
    /// Pending, done, dead.
    rows: [u64; 3],
    /// Columns of the table that are written.
    columns: Vec<String>,
}

impl Originals {
    /// Creates three tasks as every producer does, and settles two of them as a daemon does.
    pub async fn make(
        environment: &Environment,
        sql: &mut MySqlConnection,
    ) -> anyhow::Result<Self> {
        let now = environment.client.now().await?;
        let due = [now.plus(AHEAD), now, now];
        let mut tasks = Vec::new();
        for (name, due) in ["pending", "done", "dead"].into_iter().zip(due) {
            let task = Task::new("Original", "copy", [name])?.payload(PAYLOAD);
            tasks.push((task.tag("original"), Due::at(due)?));
        }
        let made = environment.client.create_many(tasks).await;
        let made = made.context("create the tasks that are copied")?;
        let armings: Vec<_> = made.iter().map(|made| made.arming()).collect();
        let by = Claimant {
            daemon: "bench".to_owned(),
            lease: Duration::from_secs(30),
        };
        let ledger = &environment.adapters.ledger;
        let claims = ledger.claim(&armings[1..], &by).await?;
        let settlements: Vec<Settlement> = claims
            .iter()
            .map(|claim| Settlement {
                lease: claim.lease,
                verdict: match claim.lease.arming == armings[1] {
                    true => Verdict::Complete,
                    false => Verdict::Bury(death(now)),
                },
            })
            .collect();
        let settled = ledger.settle(&settlements).await?;
        ensure!(
            settled == [Settled::Applied; 2],
            "the tasks that are copied were not settled: {settled:?}"
        );
        let rows: Vec<u64> = armings.iter().map(|arming| arming.row).collect();
        let columns = sqlx::query_scalar(COLUMNS).bind(&environment.config.ledger.table);
        let columns = columns.fetch_all(sql).await.context("read the columns")?;
        Ok(Self {
            rows: [rows[0], rows[1], rows[2]],
            columns,
        })
    }

    /// Writes the tasks of the numbers from `from` until `to`.
    pub async fn copy(
        &self,
        environment: &Environment,
        sql: &mut MySqlConnection,
        from: u32,
        to: u32,
    ) -> anyhow::Result<()> {
        let bar = bar("rows", u64::from(to - from));
        for first in (from..to).step_by(CHUNK as usize) {
            let count = CHUNK.min(to - first);
            let text = self.statement(&environment.config.ledger.table, first, count);
            let written = sqlx::query(AssertSqlSafe(text)).execute(&mut *sql).await;
            let written = written.context("copy rows")?.rows_affected();
            ensure!(
                written == u64::from(count),
                "{written} rows of {count} were written"
            );
            bar.inc(written);
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Copies every column. The times of a finished task move back by the same span, so each stays as long after the others as
    /// it was. Numbers that follow each other are far apart in time, as with tasks of real users.
    fn statement(&self, table: &str, first: u32, count: u32) -> String {
        let [pending, done, dead] = self.rows;
        let [(_, first_done), (_, done_too), _] = CYCLE;
        let first_dead = first_done + done_too;
        let names = self.columns.iter().map(|column| format!("`{column}`"));
        let names: Vec<String> = names.collect();
        let values: Vec<String> = self.columns.iter().map(|column| value(column)).collect();
        format!(
            "INSERT INTO `{table}` ({names}) SELECT STRAIGHT_JOIN {values} \
             FROM (SELECT n, original, \
                 IF(original = {pending}, 0, ({BACK_MS} + CRC32(n) % {BACK_SPAN_MS}) / 1000) AS back, \
                 IF(original = {pending}, CRC32(n) % {AHEAD_SPAN_MS} / 1000, 0) AS ahead \
               FROM (SELECT n, CASE WHEN n % {CYCLE_TASKS} < {first_done} THEN {pending} \
                   WHEN n % {CYCLE_TASKS} < {first_dead} THEN {done} ELSE {dead} END AS original \
                 FROM (SELECT {first} + a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d AS n \
                   FROM ({DIGITS}) AS a CROSS JOIN ({DIGITS}) AS b CROSS JOIN ({DIGITS}) AS c CROSS JOIN ({DIGITS}) AS e \
                     CROSS JOIN ({DIGITS}) AS f) AS numbers \
                 WHERE n < {end}) AS of_original) AS moved \
               JOIN `{table}` AS original_row FORCE INDEX (PRIMARY) ON original_row.id = original",
            names = names.join(", "),
            values = values.join(", "),
            end = u64::from(first) + u64::from(count),
        )
    }
}

/// What is written into a column of the copy.
fn value(column: &str) -> String {
    match column {
        "key" => {
            let methods = METHODS.map(|method| format!("'{method}'")).join(", ");
            let turns = METHODS.len();
            format!("CONCAT(ELT(1 + n DIV {CYCLE_TASKS} % {turns}, {methods}), '@', n)")
        }
        "tag" => format!("CONCAT('batch-', n DIV {TAGGED})"),
        "end_time" => "end_time - back + ahead".to_owned(),
        "start_time" | "finished_at" => format!("{column} - back"),
        // 0 stands for never.
        "run_end" | "retry_at" | "changed_at" | "claimed_at" => {
            format!("IF({column} = 0, 0, {column} - back)")
        }
        "last_error" | "history" => {
            format!("REPLACE({column}, '{ERROR}', REPLACE('{ERROR}', '0', n % {WAREHOUSES}))")
        }
        _ => format!("`{column}`"),
    }
}

fn death(now: UnixMs) -> Death {
    Death {
        reason: Reason::Permanent,
        error: ERROR.to_owned(),
        attempt_error: AttemptError {
            how: How::Failed,
            attempt: 1,
            started: Some(now),
            at: now,
            error: ERROR.to_owned(),
            daemon: "bench".to_owned(),
            crashes: 0,
            snoozes: 0,
        },
    }
}

/// Checks that the program reads what was loaded: the first task of each state among the numbers from `from` on.
///
/// # Errors
/// A task is missing, or is not in its state.
pub async fn check(environment: &Environment, from: u32) -> anyhow::Result<()> {
    let cycle = from.next_multiple_of(CYCLE_TASKS);
    let mut number = cycle;
    for (state, tasks) in CYCLE {
        let key = key(number);
        let found = environment.adapters.ledger.find(&key).await?;
        let found = found.with_context(|| format!("`{key}` was not loaded"))?;
        ensure!(
            found.state == state,
            "`{key}` is {}, expected {state}",
            found.state
        );
        ensure!(
            found.tag == Some(tag(number)) && found.payload.as_deref() == Some(PAYLOAD),
            "`{key}` was loaded with the tag {:?} and the payload {:?}",
            found.tag,
            found.payload
        );
        let expected = (state == State::Dead).then(|| error(number % WAREHOUSES));
        ensure!(
            found.last_error == expected,
            "`{key}` was loaded with the error {:?}",
            found.last_error
        );
        number += tasks;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_one_dead_task_for_sixty_others() {
        assert_eq!(rows_of(60), CYCLE_TASKS);
        assert_eq!(rows_of(60_000_000), 61_000_000);
        let tasks: u32 = CYCLE.iter().map(|(_, tasks)| tasks).sum();
        assert_eq!(tasks, CYCLE_TASKS);
    }

    #[test]
    fn keys_and_tags_are_those_of_the_statement() {
        let methods = value("key");
        for method in METHODS {
            assert!(methods.contains(&format!("'{method}'")), "{methods}");
        }
        assert_eq!(key(61).to_string(), "Order@remind@61");
        assert_eq!(tag(1_999), "batch-1");
        assert_eq!(error(7), "warehouse 7 does not answer");
    }
}
