//! Report: a table or one JSON document on stdout, and the plot.

use std::path::Path;

use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value as Json, json};

use super::by_size;
use super::plot;
use super::results::Results;
use super::samples::{Lateness, Samples};
use super::stats::{Row, Stat, Value, medians, megabytes};
use crate::output::{Output, say};

/// Maximum number of value columns: more do not fit a terminal.
const COLUMNS: usize = 6;

/// Results of a scenario.
#[derive(Default)]
pub struct Report {
    pub rows: Vec<Row>,
    /// Curves of the plot, if lateness was measured.
    pub curves: Vec<(String, Samples)>,
    /// Costs by the size of the table, if they were measured: they are printed and plotted instead of the rows.
    pub by_size: Vec<by_size::Curve>,
    /// What could not be measured.
    pub failures: Vec<String>,
    /// Statistics over all rows.
    pub summary: Vec<Stat>,
}

/// What a scenario reports of a run.
pub struct Columns {
    /// Statistics of the scenario, which come first.
    pub own: Vec<Stat>,
    pub tasks_per_s: f64,
    /// Name of the curve in the plot.
    pub curve: String,
    pub lateness: Samples,
}

/// Description of the benchmark.
pub struct Heading {
    pub scenario: &'static str,
    pub options: Json,
    /// Notes on the clock and other conditions of the results.
    pub notes: Vec<String>,
}

impl Report {
    /// Statistics of the first run.
    pub fn first(&self) -> &[Stat] {
        self.rows.first().map_or(&[], |row| &row.stats)
    }

    /// Adds statistics of a run.
    pub fn row(&mut self, label: impl Into<String>, run: u32, stats: Vec<Stat>) {
        self.rows.push(Row {
            label: label.into(),
            run: Some(run),
            stats,
        });
    }

    /// Adds a run: statistics of its scenario, common statistics, and the lateness of its tasks.
    pub fn add(&mut self, run: u32, results: &Results, columns: Columns) {
        let Columns {
            mut own,
            tasks_per_s,
            curve,
            lateness,
        } = columns;
        own.extend(stats(results, &lateness, tasks_per_s));
        self.row(results.label.clone(), run, own);
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
            let svg = match self.by_size.is_empty() {
                true => plot::svg(heading.scenario, &self.curves),
                false => by_size::svg(heading.scenario, &self.by_size),
            };
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
        let mut columns: Vec<&Row> = match self.by_size.is_empty() {
            true => self.rows.iter().collect(),
            false => {
                say(&by_size::table(&self.by_size))?;
                Vec::new()
            }
        };
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
    stats.extend([
        Stat::count("early", results.early()),
        Stat::count("lost", results.lost()),
        Stat::count("duplicates", results.duplicates()),
        Stat::count("unsettled", results.unsettled()),
        Stat::measured("tasks_per_s", tasks_per_s, 0),
    ]);
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
    let mut stats = vec![Stat::count("samples", samples.len() as u64)];
    stats.extend(
        percentiles.map(|(name, percent)| Stat::new(name, value(samples.percentile(percent)))),
    );
    stats.push(Stat::new("max_ms", value(samples.max())));
    stats
}

/// CPU, memory, statements and commands.
fn costs(results: &Results) -> Vec<Stat> {
    let costs = &results.costs;
    let (from, to) = costs.span_us;
    let tasks = results.started_between(from, to);
    let per_task = |count| Value::ratio(count, tasks as f64, 3);
    let peak = Value::measured(costs.daemon_peak.map(megabytes), 1);
    vec![
        Stat::new("daemon_cpu_percent", Value::cpu(costs.daemon, 1)),
        Stat::new("redis_cpu_percent", Value::cpu(costs.redis, 1)),
        Stat::new("database_cpu_percent", Value::cpu(costs.database, 1)),
        Stat::new("daemon_rss_mb", Value::rss(costs.daemon)),
        Stat::new("daemon_rss_peak_mb", peak),
        Stat::measured("recorder_mb", megabytes(results.recorder_bytes()), 1),
        Stat::new("redis_rss_mb", Value::rss(costs.redis)),
        Stat::new("database_rss_mb", Value::rss(costs.database)),
        Stat::new("sql_per_task", per_task(costs.counts.sql)),
        Stat::new("redis_per_task", per_task(costs.counts.redis)),
        Stat::new("syncs_per_task", per_task(costs.counts.syncs)),
        Stat::new("log_bytes_per_task", per_task(costs.counts.log_bytes)),
    ]
}
