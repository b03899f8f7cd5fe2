//! Writing new tasks, over what there is of their keys.

use std::collections::HashMap;

use super::MysqlLedger;
use super::connection::{Conn, Statement, statement};
use crate::ledger::{Created, IfPending, NewTask};

impl MysqlLedger {
    /// A statement for each policy there is among them: for most, one. Then where they all stand.
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

    /// The upserts, and the tasks of each. Rows go in the order of their keys, so that two batches do not lock crosswise.
    ///
    /// The smallest of those that come last of their key is there again, to fill up to one of a few sizes: each size is a
    /// prepared statement of the server's, and the same row once more changes nothing.
    pub(super) fn creations<'a>(&self, tasks: &[&'a NewTask]) -> Vec<(String, Vec<&'a NewTask>)> {
        let of = |policy| {
            let tasks = tasks.iter().copied();
            let mut tasks: Vec<_> = tasks.filter(|task| task.if_pending == policy).collect();
            tasks.sort_by(|a, b| a.key.cmp(&b.key));
            let last_of_each = tasks.chunk_by(|a, b| a.key == b.key);
            let last_of_each = last_of_each.filter_map(|of_a_key| of_a_key.last().copied());
            let size = |task: &&NewTask| task.payload.as_ref().map_or(0, String::len);
            let smallest = last_of_each.min_by_key(size)?;
            tasks.resize(rounded_up(tasks.len()), smallest);
            Some((self.queries.create(tasks.len(), policy), tasks))
        };
        IfPending::ALL.into_iter().filter_map(of).collect()
    }

    /// The upsert of these tasks, which have one policy.
    pub(super) fn creation(&self, sql: String, tasks: &[&NewTask]) -> Statement<'static> {
        let now = self.clock.now();
        // The same task has the same mark when it is there again, and no other has.
        let mut marks: HashMap<*const NewTask, i64> = HashMap::new();
        tasks.iter().fold(statement(sql), |upsert, task| {
            let NewTask {
                key,
                due,
                payload,
                tag,
                max_attempts,
                if_pending,
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
            match if_pending {
                IfPending::Move => upsert,
                IfPending::Keep | IfPending::Refuse => {
                    upsert.bind(*marks.entry(std::ptr::from_ref(*task)).or_insert_with(mark))
                }
            }
        })
    }
}

/// A number that no row has, as milliseconds of a time that never was.
fn mark() -> i64 {
    -rand::random_range(1..10_000_000_000_000)
}

/// The next power of two, or one and a half of the one below.
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
