//! `lapsed rearm`: writes the timer's entries again from the ledger.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use lapsed::Config;
use lapsed::compose::Adapters;
use lapsed::ledger::{DuePage, DueScan, LedgerError, Window};
use lapsed::task::{DELAY_MAX, KeyBuckets, UnixMs};
use lapsed::timer::{Alarm, ArmMode, Armed, TimerError};
use serde_json::json;

use super::EXIT_FAILED;
use super::output::Output;
use super::progress::Progress;

/// Rows of one page: read, then armed while the next page is read.
const PAGE: u32 = 1_000;

/// Index entries of one page when tasks are counted.
const COUNT_PAGE: u32 = 10_000;

#[derive(Args)]
pub struct Rearm {
    /// Only count the tasks
    #[arg(long)]
    dry_run: bool,
}

/// A place in the order of due times.
type Place = Option<(UnixMs, u64)>;

impl Rearm {
    pub async fn run(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        let adapters = Adapters::new(config)?;
        adapters.ledger.check().await?;
        let horizon = adapters.timer.horizon();
        let span = horizon.map_or(DELAY_MAX, |horizon| horizon.min(DELAY_MAX));
        let pending = count(&adapters, span).await?;
        if self.dry_run {
            let value = json!({ "pending": pending, "dry_run": true });
            output.print(&value, format!("tasks to arm: {pending}"))?;
            return Ok(ExitCode::SUCCESS);
        }
        let progress = Progress::new(Some(pending));
        let armed = arm_all(&adapters, span, &progress).await;
        progress.finish();
        let armed = armed.with_context(|| {
            format!(
                "stopped after {} of {pending} tasks: run it again, tasks that are armed stay so",
                progress.count()
            )
        })?;
        let value = json!({
            "pending": progress.count(),
            "written": armed.written,
            "present": armed.present,
            "complete": !progress.is_interrupted(),
            "dry_run": false,
        });
        output.print(
            &value,
            format!(
                "pending tasks: {}, armed now: {}, armed before: {}",
                progress.count(),
                armed.written,
                armed.present
            ),
        )?;
        if progress.is_interrupted() {
            eprintln!("interrupted: run it again to arm the other tasks");
            return Ok(EXIT_FAILED.into());
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Counts the tasks due within `span`, from the index alone.
async fn count(adapters: &Adapters, span: Duration) -> Result<u64, LedgerError> {
    let count = AtomicU64::new(0);
    let all = KeyBuckets::all();
    let known = |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        true
    };
    let mut after = None;
    loop {
        let scan = scan_of(span, after, COUNT_PAGE);
        after = adapters.ledger.scan_new(scan, &all, &known).await?.next;
        if after.is_none() {
            return Ok(count.into_inner());
        }
    }
}

/// Arms every task due within `span`, a page at a time. An armed task is left as it is.
async fn arm_all(
    adapters: &Adapters,
    span: Duration,
    progress: &Progress,
) -> anyhow::Result<Armed> {
    let mut total = Armed::default();
    let mut page = read(adapters, span, None).await?;
    loop {
        let DuePage { rows, next, .. } = page;
        let alarms: Vec<Alarm> = rows.into_iter().map(Alarm::from).collect();
        let (armed, following) = tokio::join!(arm(adapters, &alarms), async {
            match next {
                Some(_) => read(adapters, span, next).await.map(Some),
                None => Ok(None),
            }
        });
        let Armed { written, present } = armed?;
        total.written += written;
        total.present += present;
        let interrupted = progress
            .show(progress.count() + alarms.len() as u64)
            .is_break();
        match following? {
            Some(following) if !interrupted => page = following,
            _ => return Ok(total),
        }
    }
}

async fn arm(adapters: &Adapters, alarms: &[Alarm]) -> Result<Armed, TimerError> {
    match alarms {
        [] => Ok(Armed::default()),
        alarms => adapters.timer.arm(alarms, ArmMode::IfMissing).await,
    }
}

async fn read(adapters: &Adapters, span: Duration, after: Place) -> Result<DuePage, LedgerError> {
    adapters.ledger.scan(scan_of(span, after, PAGE)).await
}

fn scan_of(span: Duration, after: Place, limit: u32) -> DueScan {
    DueScan {
        window: Window::Ahead(span),
        after,
        limit,
    }
}
