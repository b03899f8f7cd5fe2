//! `lapsed import`, on jobs that the real programs have written where a package registry has them.

pub mod asynq;
mod bullmq;
mod changes;
mod garbage;
mod limits;
mod php;
pub mod programs;
mod rules;
mod sidekiq;
mod string_jobs;

use std::collections::BTreeMap;

use serde_json::Value;
use sqlx::Row as _;

use crate::support::rig::Rig;
use crate::support::shell::Shell;

/// A task as its row has it.
#[derive(Debug, Clone, PartialEq)]
struct Imported {
    due: i64,
    payload: Value,
    attempt: i64,
    max_attempts: Option<i64>,
}

/// The result of an import: exit code, what it printed as JSON, and standard error.
struct Report {
    code: i32,
    value: Value,
    stderr: String,
}

impl Report {
    fn count(&self, what: &str) -> u64 {
        let count = self.value[what].as_u64();
        count.unwrap_or_else(|| panic!("`{what}` in {}: {}", self.value, self.stderr))
    }

    fn counts<const N: usize>(&self, what: [&str; N]) -> [u64; N] {
        what.map(|what| self.count(what))
    }
}

fn import(shell: &Shell, args: &[&str]) -> Report {
    let (code, stdout, stderr) = shell.run(&[&["--json", "import"], args].concat());
    let value = serde_json::from_str(&stdout).unwrap_or(Value::Null);
    Report {
        code,
        value,
        stderr,
    }
}

/// All tasks by their keys.
async fn tasks(rig: &Rig) -> BTreeMap<String, Imported> {
    let rows = sqlx::query(
        "SELECT `key`, CAST(end_time * 1000 AS SIGNED) AS due, payload, CAST(attempt AS SIGNED) AS attempt, \
           CAST(max_attempts AS SIGNED) AS max_attempts, CAST(run_end = end_time AS SIGNED) AS counts \
         FROM tb_time_limit_task",
    );
    let rows = rows.fetch_all(&rig.sql).await.unwrap();
    let task = |row: &sqlx::mysql::MySqlRow| {
        let payload: Option<String> = row.get("payload");
        let (attempt, counts): (i64, i64) = (row.get("attempt"), row.get("counts"));
        assert_eq!(
            counts,
            i64::from(attempt > 0),
            "the attempts are of this arming"
        );
        let task = Imported {
            due: row.get("due"),
            payload: payload.map_or(Value::Null, |json| serde_json::from_str(&json).unwrap()),
            attempt,
            max_attempts: row.get("max_attempts"),
        };
        (row.get("key"), task)
    };
    rows.iter().map(task).collect()
}

/// The same tasks as before: nothing was created, moved or changed.
async fn assert_unchanged(rig: &Rig, before: &BTreeMap<String, Imported>) {
    assert_eq!(&tasks(rig).await, before);
}
