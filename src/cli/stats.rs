//! `lapsed stats`: counts tasks by state, class and method, with their lateness.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use lapsed::Config;
use lapsed::compose::Adapters;
use lapsed::ledger::{DetailedStats, DetailedStatsLimits, Ledger, MethodStats};
use lapsed::task::Pause;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use super::filters::duration;
use super::output::{Output, say};
use super::pauses;

/// Maximum number of methods in the table; JSON has all.
const METHODS_SHOWN: usize = 50;

#[derive(Args)]
pub struct Stats {
    /// Refresh every second, or at this interval (`--watch=5s`), until interrupted
    #[arg(long, value_name = "EVERY", num_args = 0..=1, require_equals = false, default_missing_value = "1s", value_parser = every)]
    watch: Option<Duration>,
}

fn every(text: &str) -> Result<Duration, String> {
    const SHORTEST: Duration = Duration::from_millis(100);
    match duration(text)? {
        every if every < SHORTEST => Err("expected at least 100ms".to_owned()),
        every => Ok(every),
    }
}

impl Stats {
    pub async fn run(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        let ledger = Adapters::new(config)?.ledger;
        let Some(every) = self.watch else {
            let (stats, pauses) = look(&*ledger).await?;
            show(output, &stats, &pauses)?;
            return Ok(ExitCode::SUCCESS);
        };
        let mut interrupt = signal(SignalKind::interrupt()).context("watch for SIGINT")?;
        let watching = async {
            loop {
                let asked = Instant::now();
                let (stats, pauses) = look(&*ledger).await?;
                let took = asked.elapsed();
                if !output.json {
                    begin_page()?;
                }
                show(output, &stats, &pauses)?;
                // The ledger has other work: queries take at most half of the time.
                tokio::time::sleep(every.saturating_sub(took).max(took)).await;
            }
        };
        tokio::select! {
            ended = watching => ended,
            _ = interrupt.recv() => Ok(ExitCode::SUCCESS),
        }
    }
}

async fn look(ledger: &dyn Ledger) -> anyhow::Result<(DetailedStats, Vec<Pause>)> {
    let stats = ledger
        .detailed_stats(DetailedStatsLimits::default())
        .await?;
    Ok((stats, ledger.pauses().await?))
}

/// On a terminal, overwrites the previous page; elsewhere, appends.
fn begin_page() -> anyhow::Result<()> {
    const CLEAR: &str = "\x1b[2J\x1b[H";
    say(match std::io::stdout().is_terminal() {
        true => CLEAR,
        false => "",
    })
}

fn show(output: Output, stats: &DetailedStats, pauses: &[Pause]) -> anyhow::Result<()> {
    let mut value = serde_json::to_value(stats)?;
    value["pauses"] = json!(pauses);
    let mut lines = vec![counts(stats)];
    if !stats.methods.is_empty() {
        lines.push(String::new());
        lines.push(methods(stats));
    }
    lines.extend(pauses::lines(pauses));
    output.print(&value, lines.join("\n"))
}

fn counts(stats: &DetailedStats) -> String {
    let counts = stats.counts.by_state();
    // The count of malformed rows is shown only if there are any.
    let shown = counts
        .iter()
        .filter(|(state, count)| *state != "malformed" || *count > 0);
    let lines = shown.map(|(state, count)| {
        let more = if stats.at_least.contains(state) {
            "+"
        } else {
            ""
        };
        format!("{state:<10} {count:>12}{more}")
    });
    let mut lines: Vec<String> = lines.collect();
    if stats.counts.overdue > 0 {
        let oldest = seconds(stats.counts.overdue_ms_max);
        lines.push(format!("the oldest is {oldest} s overdue"));
    }
    if !stats.at_least.is_empty() {
        lines.push("+: there may be more; counting stopped at a limit".to_owned());
    }
    lines.join("\n")
}

fn methods(stats: &DetailedStats) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "TASKS", "PENDING", "WAITING", "RUNNING", "OVERDUE", "OLDEST", "DEAD", "DONE", "P50",
        "P99", "MAX",
    ]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for of_method in stats.methods.iter().take(METHODS_SHOWN) {
        table.add_row(row(of_method));
    }
    let mut text = table.trim_fmt();
    let left = stats.methods.len().saturating_sub(METHODS_SHOWN);
    if left > 0 {
        text += &format!("\nand {left} more: `--json` has all");
    }
    if stats
        .methods
        .iter()
        .any(|of_method| of_method.due_to_done.is_some())
    {
        text += "\nDONE to MAX: tasks done within the last hour at the first attempt, the most recently due; \
                 P50, P99 and MAX are seconds from due to done";
    }
    for (of, which) in [
        (stats.methods_of, "unfinished"),
        (stats.methods_of_dead, "dead"),
    ] {
        if let Some(of) = of {
            text += &format!(
                "\nper class and method, only the {of} {which} tasks due first are counted"
            );
        }
    }
    text
}

fn row(of_method: &MethodStats) -> [String; 11] {
    let MethodStats {
        name,
        pending,
        waiting,
        running,
        overdue,
        overdue_ms_max,
        dead,
        due_to_done,
    } = of_method;
    let oldest = match overdue {
        0 => String::new(),
        _ => seconds(*overdue_ms_max),
    };
    let [count, p50, p99, max] = match due_to_done {
        None => Default::default(),
        Some(took) => [
            took.count.to_string(),
            seconds(took.p50_ms),
            seconds(took.p99_ms),
            seconds(took.max_ms),
        ],
    };
    [
        name.escape_debug().to_string(),
        pending.to_string(),
        waiting.to_string(),
        running.to_string(),
        overdue.to_string(),
        oldest,
        dead.to_string(),
        count,
        p50,
        p99,
        max,
    ]
}

fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1_000, ms % 1_000)
}
