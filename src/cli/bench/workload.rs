//! Workload: writes tasks like any producer, rows and armed keys in bulk.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures_util::{StreamExt, TryStreamExt};
use indicatif::ProgressBar;
use lapsed::{Due, UnixMs};
use tokio::time::Instant;

use super::daemon::CLASS;
use super::environment::Environment;
use super::progress::bar;
use super::tasks::{BATCH, FAR, far_due, task_of};

/// Concurrent calls.
const LOADERS: usize = 4;

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
    let started = Instant::now();
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
    written.took = started.elapsed();
    Ok(written)
}
