//! Workload: writes tasks like any producer, rows and armed keys in bulk.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures_util::{StreamExt, TryStreamExt};
use indicatif::ProgressBar;
use lapsed::{Due, Task, UnixMs};
use tokio::time::Instant;

use super::daemon::{CLASS, METHOD};
use super::environment::Environment;
use super::progress::bar;

/// Tasks per call.
pub const BATCH: u32 = 500;

/// Concurrent calls.
const LOADERS: usize = 4;

/// First number of far tasks, which do not fall due during the measurement.
pub const FAR: u32 = 3_000_000_000;

/// Earliest due time of far tasks, from now.
const FAR_FROM: Duration = Duration::from_secs(24 * 3600);

/// Span of the due times of far tasks.
const FAR_SPAN_MS: u64 = 23 * 24 * 3600 * 1000;

/// Result of writing a set of tasks.
#[derive(Debug, Clone, Copy)]
pub struct Written {
    /// Smallest and largest row id.
    pub rows: (u64, u64),
    /// Tasks whose key Redis did not accept.
    pub unarmed: u64,
    /// Duration of writing.
    pub took: Duration,
}

impl Written {
    /// The smallest and largest row id of both.
    pub fn rows_with(&self, other: &Self) -> (u64, u64) {
        let (first, last) = self.rows;
        (first.min(other.rows.0), last.max(other.rows.1))
    }
}

/// The task of a number.
pub fn task(number: u32) -> Task {
    task_of(CLASS, number)
}

fn task_of(class: &str, number: u32) -> Task {
    Task::new(class, METHOD, [number]).expect("class, method and a number fit the grammar")
}

/// Due time of a far task. Consecutive numbers are far apart, as with tasks of real users.
pub fn far_due(now: UnixMs, number: u32) -> UnixMs {
    let spread = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15) % FAR_SPAN_MS;
    now.plus(FAR_FROM + Duration::from_millis(spread))
}

/// Writes the far tasks.
pub async fn write_far(environment: &Environment, pending: u32) -> anyhow::Result<Written> {
    let now = environment.client.now().await?;
    let bar = bar("pending", u64::from(pending));
    write(
        environment,
        FAR..FAR + pending,
        move |number| far_due(now, number),
        &bar,
    )
    .await
}

/// Writes the tasks of these numbers, each due at its time on the ledger's clock.
pub async fn write(
    environment: &Environment,
    numbers: Range<u32>,
    due: impl Fn(u32) -> UnixMs + Send + Sync + 'static,
    bar: &ProgressBar,
) -> anyhow::Result<Written> {
    write_of(CLASS, environment, numbers, due, bar).await
}

/// As [`write`], of another class.
pub async fn write_of(
    class: &'static str,
    environment: &Environment,
    numbers: Range<u32>,
    due: impl Fn(u32) -> UnixMs + Send + Sync + 'static,
    bar: &ProgressBar,
) -> anyhow::Result<Written> {
    let begun = Instant::now();
    let due = Arc::new(due);
    let batches = numbers.clone().step_by(BATCH as usize);
    let calls = batches.map(|first| {
        let last = numbers.end.min(first.saturating_add(BATCH));
        let (client, due) = (environment.client.clone(), Arc::clone(&due));
        // In a spawned task: building statements is CPU work.
        let call = environment.writers.spawn(async move {
            let tasks = (first..last)
                .map(|number| Ok((task_of(class, number), Due::at(due(number))?)))
                .collect::<anyhow::Result<_>>()?;
            anyhow::Ok(client.create_many(tasks).await?)
        });
        async move {
            let made = call.await.context("write tasks")?;
            made.context("write tasks")
        }
    });
    let mut written = Written {
        rows: (u64::MAX, 0),
        unarmed: 0,
        took: Duration::ZERO,
    };
    // The iterator is lazy: calls are spawned one by one.
    let mut done = futures_util::stream::iter(calls).buffer_unordered(LOADERS);
    while let Some(made) = done.try_next().await? {
        bar.inc(made.len() as u64);
        for made in made {
            let row = made.arming().row;
            written.rows = (written.rows.0.min(row), written.rows.1.max(row));
            written.unarmed += u64::from(!made.armed);
        }
    }
    bar.finish_and_clear();
    written.took = begun.elapsed();
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_tasks_fall_due_in_1_to_24_days() {
        const DAY_MS: i64 = 24 * 3600 * 1000;
        let dues: Vec<i64> = (FAR..FAR + 10_000)
            .map(|number| far_due(UnixMs(0), number).0)
            .collect();
        assert!(dues.iter().all(|due| (DAY_MS..24 * DAY_MS).contains(due)));
        let late = dues.iter().filter(|due| **due > 12 * DAY_MS).count();
        assert!((4_000..6_000).contains(&late), "{late}");
    }
}
