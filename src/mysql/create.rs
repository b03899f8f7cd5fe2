//! Upserts of new tasks.

use std::collections::HashMap;

use super::MysqlLedger;
use super::connection::{Conn, Statement, statement};
use lapsed_core::ledger::{Created, IfPending, NewTask};
use lapsed_core::task::{Contents, row_due};

impl MysqlLedger {
    /// Writes the tasks, a statement for each policy among them, and reads their rows.
    pub(super) async fn create_batch(
        &self,
        conn: &mut Conn,
        tasks: &[&NewTask],
    ) -> sqlx::Result<Vec<Created>> {
        for (sql, tasks) in self.creations(tasks) {
            conn.execute(self.creation(sql, &tasks)).await?;
        }
        let keys: Vec<&str> = tasks.iter().map(|task| task.key.as_str()).collect();
        let lookups = self.look_up_rows(conn, &keys).await?;
        tasks
            .iter()
            .map(|task| {
                lookups
                    .get(task.key.as_str())
                    .map(|row| row.created(task))
                    .ok_or(sqlx::Error::RowNotFound)
            })
            .collect()
    }

    /// Returns the upserts with the tasks of each. Rows are ordered by key, so that two batches do not deadlock.
    ///
    /// Repeats the smallest task to fill up to one of a few sizes, since each size is a prepared statement. Only a task that
    /// comes last of its key is repeated: the same row again changes nothing.
    pub(super) fn creations<'a>(&self, tasks: &[&'a NewTask]) -> Vec<(String, Vec<&'a NewTask>)> {
        let of = |(policy, replaces)| {
            let is_of = |task: &&NewTask| task.if_pending == policy && task.replaces == replaces;
            let mut tasks: Vec<_> = tasks.iter().copied().filter(is_of).collect();
            tasks.sort_by(|a, b| a.key.cmp(&b.key));
            let last_of_each = tasks.chunk_by(|a, b| a.key == b.key);
            let last_of_each = last_of_each.filter_map(|of_a_key| of_a_key.last().copied());
            let size = |task: &&NewTask| task.contents.payload.as_ref().map_or(0, String::len);
            let smallest = last_of_each.min_by_key(size)?;
            tasks.resize(rounded_up(tasks.len()), smallest);
            Some((self.queries.create(tasks.len(), policy, replaces), tasks))
        };
        let policies = IfPending::ALL.into_iter();
        let kinds = policies.flat_map(|policy| [(policy, false), (policy, true)]);
        kinds.filter_map(of).collect()
    }

    /// Builds the upsert of these tasks, which have one policy.
    pub(super) fn creation(&self, sql: String, tasks: &[&NewTask]) -> Statement<'static> {
        // A whole second would be taken for a legacy program's: see `UNDELETE`.
        let now = row_due(self.clock.now());
        // A repeated task has the same mark, and different tasks have different ones.
        let mut marks: HashMap<*const NewTask, i64> = HashMap::new();
        tasks.iter().fold(statement(sql), |upsert, task| {
            let NewTask {
                key,
                due,
                contents:
                    Contents {
                        payload,
                        tag,
                        max_attempts,
                    },
                attempts,
                if_pending,
                replaces: _,
                recurrence,
            } = task;
            let upsert = upsert
                .bind(key.to_string())
                .bind(now.0)
                .bind(due.0)
                .bind(*max_attempts)
                .bind(tag.clone())
                .bind(payload.clone())
                .bind(recurrence.as_ref().map(ToString::to_string));
            let upsert = match if_pending {
                IfPending::Move => upsert,
                IfPending::Keep | IfPending::Refuse => {
                    upsert.bind(*marks.entry(std::ptr::from_ref(*task)).or_insert_with(mark))
                }
            };
            upsert.bind(*attempts)
        })
    }
}

/// Returns a number that no row has: a negative time in milliseconds.
fn mark() -> i64 {
    -rand::random_range(1..10_000_000_000_000)
}

/// Rounds up to a power of two, or to one and a half times a power of two.
fn rounded_up(count: usize) -> usize {
    let power = count.next_power_of_two();
    let below = power / 4 * 3;
    if count <= below { below } else { power }
}

#[cfg(test)]
mod tests {
    use super::rounded_up;

    #[test]
    fn five_hundred_sizes_become_eighteen() {
        let counts = [1, 2, 3, 4, 5, 7, 12, 13, 385, 512];
        assert_eq!(counts.map(rounded_up), [1, 2, 3, 4, 6, 8, 12, 16, 512, 512]);
        let sizes: std::collections::BTreeSet<usize> = (1..=512).map(rounded_up).collect();
        assert_eq!(sizes.len(), 18);
    }
}
