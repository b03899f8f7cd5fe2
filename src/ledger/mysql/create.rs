//! Writing new tasks, over what there is of their keys.

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
        for upsert in self.creations(tasks) {
            conn.execute(upsert).await?;
        }
        let keys: Vec<&str> = tasks.iter().map(|task| task.key.as_str()).collect();
        let standings = self.standings(conn, &keys).await?;
        tasks
            .iter()
            .map(|task| {
                standings
                    .get(task.key.as_str())
                    .map(|row| row.created(task))
                    .ok_or(sqlx::Error::RowNotFound)
            })
            .collect()
    }

    /// The upserts.
    pub(super) fn creations(&self, tasks: &[&NewTask]) -> Vec<Statement<'static>> {
        let of = |policy| {
            let tasks = tasks.iter().copied();
            let tasks: Vec<_> = tasks.filter(|task| task.if_pending == policy).collect();
            (!tasks.is_empty()).then(|| self.creation(tasks, policy))
        };
        IfPending::ALL.into_iter().filter_map(of).collect()
    }

    /// Rows go in the order of their keys, so that two batches do not lock crosswise.
    fn creation(&self, mut tasks: Vec<&NewTask>, policy: IfPending) -> Statement<'static> {
        let now = self.clock.now();
        tasks.sort_by(|a, b| a.key.cmp(&b.key));
        let create = statement(self.queries.create(tasks.len(), policy));
        tasks.iter().fold(create, |upsert, task| {
            let NewTask {
                key,
                due,
                payload,
                tag,
                max_attempts,
                if_pending: _,
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
            match policy {
                IfPending::Move => upsert,
                IfPending::Keep | IfPending::Refuse => upsert.bind(mark()),
            }
        })
    }
}

/// A number that no row has, as milliseconds of a time that never was.
fn mark() -> i64 {
    -rand::random_range(1..10_000_000_000_000)
}
