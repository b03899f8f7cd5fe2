//! Report: a table or one JSON document on stdout, and the plot.

use std::path::Path;

use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value as Json, json};

use super::meter::Cost;
use super::plot;
use super::results::Results;
use super::samples::{Lateness, Samples};
use super::stats::{Row, Stat, Value, medians};
use crate::cli::output::{Output, say};

/// Maximum number of value columns: more do not fit a terminal.
const COLUMNS: usize = 6;

/// Results of a scenario.
#[derive(Default)]
pub struct Report {
    pub rows: Vec<Row>,
    /// Curves of the plot, if lateness was measured.
    pub curves: Vec<(String, Samples)>,
    /// Statistics over all rows.
    pub summary: Vec<Stat>,
}

/// Description of the benchmark.
pub struct Heading {
    pub scenario: &'static str,
    pub options: Json,
    /// Notes on the clock and other conditions of the results.
    pub notes: Vec<String>,
}

impl Report {
    /// Adds a run: statistics of its scenario, common statistics, and the lateness of its tasks.
    pub fn add(
        &mut self,
        run: u32,
        results: &Results,
        mut own: Vec<Stat>,
        tasks_per_s: f64,
        (curve, lateness): (String, Samples),
    ) {
        own.extend(stats(results, &lateness, tasks_per_s));
        self.rows.push(Row {
            label: results.label.clone(),
            run: Some(run),
            stats: own,
        });
        self.curves.push((curve, lateness));
    }

    /// Prints the report and writes the plot.
    pub fn publish(
        &self,
        heading: &Heading,
        plot_to: Option<&Path>,
        output: Output,
    ) -> anyhow::Result<()> {
        if let Some(file) = plot_to {
            let svg = plot::svg(heading.scenario, &self.curves);
            std::fs::write(file, svg).with_context(|| format!("write `{}`", file.display()))?;
        }
        let medians = medians(&self.rows);
        let repeated = medians.len() < self.rows.len();
        if output.json {
            let summary = self.summary.clone();
            let summary = Row {
                label: "all".to_owned(),
                run: None,
                stats: summary,
            };
            let document = json!({
                "scenario": heading.scenario,
                "version": env!("CARGO_PKG_VERSION"),
                "options": heading.options,
                "notes": heading.notes,
                "rows": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
                "medians": medians.iter().map(Row::json).collect::<Vec<_>>(),
                "summary": summary.json(),
            });
            return say(&serde_json::to_string(&document)?);
        }
        let mut columns: Vec<&Row> = self.rows.iter().collect();
        if repeated {
            columns.extend(&medians);
        }
        for columns in columns.chunks(COLUMNS) {
            say(&table(columns))?;
        }
        for Stat { name, value } in &self.summary {
            say(&format!("{name}: {}", value.text()))?;
        }
        heading
            .notes
            .iter()
            .try_for_each(|note| say(&format!("# {note}")))
    }
}

/// One statistic per line, one run per column.
fn table(columns: &[&Row]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let headings = columns.iter().map(|row| match row.run {
        Some(run) => format!("{} #{run}", row.label),
        None => format!("{} median", row.label),
    });
    table.set_header(std::iter::once(String::new()).chain(headings));
    let mut names: Vec<&'static str> = Vec::new();
    for stat in columns.iter().flat_map(|row| &row.stats) {
        if !names.contains(&stat.name) {
            names.push(stat.name);
        }
    }
    for name in names {
        let values = columns.iter().map(|row| {
            let stat = row.stats.iter().find(|stat| stat.name == name);
            stat.map(|stat| stat.value.text()).unwrap_or_default()
        });
        table.add_row(std::iter::once(name.to_owned()).chain(values));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

/// Statistics that every run has.
fn stats(results: &Results, lateness: &Samples, tasks_per_s: f64) -> Vec<Stat> {
    let mut stats = lateness_stats(lateness);
    let count = |name, value| Stat {
        name,
        value: Value::Count(value),
    };
    stats.push(count("early", results.early()));
    stats.push(count("lost", results.lost()));
    stats.push(count("duplicates", results.duplicates()));
    stats.push(count("unsettled", results.unsettled()));
    stats.push(Stat {
        name: "tasks_per_s",
        value: Value::Measured(tasks_per_s, 0),
    });
    stats.extend(costs(results));
    stats
}

/// Percentiles in milliseconds.
pub fn lateness_stats(samples: &Samples) -> Vec<Stat> {
    let ms = |us: u64| us as f64 / 1000.0;
    let value = |lateness: Option<Lateness>| match lateness {
        Some(Lateness::Started(us)) => Value::Measured(ms(us), 3),
        Some(Lateness::MoreThan(us)) => Value::MoreThanMs(ms(us)),
        None => Value::Unknown,
    };
    let percentiles = [
        ("p50_ms", 50.0),
        ("p90_ms", 90.0),
        ("p99_ms", 99.0),
        ("p99.9_ms", 99.9),
    ];
    let mut stats = vec![Stat {
        name: "samples",
        value: Value::Count(samples.len() as u64),
    }];
    stats.extend(percentiles.map(|(name, percent)| Stat {
        name,
        value: value(samples.percentile(percent)),
    }));
    stats.push(Stat {
        name: "max_ms",
        value: value(samples.max()),
    });
    stats
}

/// CPU, memory, statements and commands.
fn costs(results: &Results) -> Vec<Stat> {
    let costs = &results.costs;
    let (from, to) = costs.span_us;
    let tasks = results.started_between(from, to);
    let per_task = |count: Option<u64>| {
        let count = count.filter(|_| tasks > 0);
        Value::measured(count.map(|count| count as f64 / tasks as f64), 3)
    };
    let cpu = |cost: Option<Cost>| Value::measured(cost.map(|cost| cost.cpu_percent), 1);
    let rss =
        |cost: Option<Cost>| Value::measured(cost.map(|cost| megabytes(cost.resident_max)), 1);
    let peak = Value::measured(costs.daemon_peak.map(megabytes), 1);
    let stat = |name, value| Stat { name, value };
    vec![
        stat("daemon_cpu_percent", cpu(costs.daemon)),
        stat("redis_cpu_percent", cpu(costs.redis)),
        stat("database_cpu_percent", cpu(costs.database)),
        stat("daemon_rss_mb", rss(costs.daemon)),
        stat("daemon_rss_peak_mb", peak),
        stat(
            "recorder_mb",
            Value::Measured(megabytes(results.recorder_bytes()), 1),
        ),
        stat("redis_rss_mb", rss(costs.redis)),
        stat("database_rss_mb", rss(costs.database)),
        stat("sql_per_task", per_task(Some(costs.counts.sql))),
        stat("redis_per_task", per_task(costs.counts.redis)),
    ]
}

/// Megabytes: a million bytes, as in the documentation.
pub fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
