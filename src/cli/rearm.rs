//! `lapsed rearm`: writes the timer's entries again from the ledger.

use std::fmt;
use std::process::ExitCode;
use std::str::FromStr;
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
use super::log::stderr_line;
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
    /// Go on behind the place that an earlier run has printed when it stopped
    #[arg(long, value_name = "PLACE")]
    from: Option<Place>,
}

/// A task in the order of due times: its due time in Unix milliseconds and its row id, as in `1795278006909-12`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place(UnixMs, u64);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0.0, self.1)
    }
}

impl FromStr for Place {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.split_once('-').and_then(|(due_ms, row)| {
            let due_ms = due_ms.parse().ok()?;
            Some(Self(UnixMs(due_ms), row.parse().ok()?))
        });
        parsed
            .ok_or("expected a place as an earlier run has printed it, such as `1795278006909-12`")
    }
}

impl Rearm {
    pub async fn run(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        let adapters = Adapters::new(config)?;
        adapters.ledger.check().await?;
        let horizon = adapters.timer.horizon();
        let span = horizon.map_or(DELAY_MAX, |horizon| horizon.min(DELAY_MAX));
        let pending = count(&adapters, span, self.from).await?;
        if self.dry_run {
            let value = json!({ "pending": pending, "dry_run": true });
            output.print(&value, format!("tasks to arm: {pending}"))?;
            return Ok(ExitCode::SUCCESS);
        }
        let progress = Progress::new(Some(pending));
        let mut reached = self.from;
        let armed = arm_all(&adapters, span, &mut reached, &progress).await;
        progress.finish();
        let next = reached.map_or_else(String::new, |place| format!(" --from {place}"));
        let armed = armed.with_context(|| {
            format!(
                "stopped after {} of {pending} tasks: go on with `lapsed rearm{next}`",
                progress.count()
            )
        })?;
        let value = json!({
            "pending": progress.count(),
            "written": armed.written,
            "present": armed.present,
            "missing": armed.missing,
            "complete": !progress.is_interrupted(),
            "next": reached.filter(|_| progress.is_interrupted()).map(|place| place.to_string()),
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
        if armed.missing > 0 {
            stderr_line!(
                "note: {} entries are missing and were not written: a program may have removed them to cancel their tasks; the next daemon decides, and the tasks run without an entry, too",
                armed.missing
            );
        }
        if progress.is_interrupted() {
            stderr_line!("interrupted: `lapsed rearm{next}` arms the other tasks");
            return Ok(EXIT_FAILED.into());
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Counts the tasks due within `span` and behind a place, from the index alone.
async fn count(
    adapters: &Adapters,
    span: Duration,
    from: Option<Place>,
) -> Result<u64, LedgerError> {
    let count = AtomicU64::new(0);
    let all = KeyBuckets::all();
    let known = |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        true
    };
    let mut after = from;
    loop {
        let scan = scan_of(span, after, COUNT_PAGE);
        after = next_of(&adapters.ledger.scan_new(scan, &all, &known).await?);
        if after.is_none() {
            return Ok(count.into_inner());
        }
    }
}

/// Arms every task due within `span` and behind `reached`, a page at a time, and moves `reached` behind each page. An armed
/// task is left as it is.
async fn arm_all(
    adapters: &Adapters,
    span: Duration,
    reached: &mut Option<Place>,
    progress: &Progress,
) -> anyhow::Result<Armed> {
    let mut total = Armed::default();
    let mut page = read(adapters, span, *reached).await?;
    loop {
        let next = next_of(&page);
        let DuePage { rows, .. } = page;
        let alarms: Vec<Alarm> = rows.into_iter().map(Alarm::from).collect();
        let (armed, following) = tokio::join!(arm(adapters, &alarms), async {
            match next {
                Some(_) => read(adapters, span, next).await.map(Some),
                None => Ok(None),
            }
        });
        let Armed {
            written,
            present,
            missing,
        } = armed?;
        total.written += written;
        total.present += present;
        total.missing += missing;
        *reached = next.or(*reached);
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

fn next_of(page: &DuePage) -> Option<Place> {
    page.next.map(|(due, row)| Place(due, row))
}

async fn read(
    adapters: &Adapters,
    span: Duration,
    after: Option<Place>,
) -> Result<DuePage, LedgerError> {
    adapters.ledger.scan(scan_of(span, after, PAGE)).await
}

fn scan_of(span: Duration, after: Option<Place>, limit: u32) -> DueScan {
    DueScan {
        window: Window::Ahead(span),
        after: after.map(|Place(due, row)| (due, row)),
        limit,
    }
}
