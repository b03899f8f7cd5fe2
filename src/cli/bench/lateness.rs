//! Scenario `lateness`: lateness at a steady rate, with all nets or a single one.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::environment::Environment;
use super::measure::{Plan, measure};
use super::options::{Common, positive_span, rate, seconds, span, tasks};
use super::report::{Columns, Report};
use super::results::{Audit, Results};
use super::stats::{Stat, Value};

/// How long a run with all nets is watched after its end: it ends as soon as all tasks have started.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a run with a single net is watched: many of its tasks may never start.
const PATIENCE_ALONE: Duration = Duration::from_secs(2);

/// A source of signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Nets {
    /// Only `expired` events of Redis
    Event,
    /// Only nudges by the daemon
    Nudge,
    /// Only the sweep
    Sweep,
    /// As configured
    All,
}

impl Nets {
    fn label(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Nudge => "nudge",
            Self::Sweep => "sweep",
            Self::All => "all",
        }
    }

    /// Settings that switch the other nets off.
    fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Event => &[("NUDGE__ENABLED", "false"), ("SWEEP__ENABLED", "false")],
            Self::Nudge => &[("NUDGE__ENABLED", "true"), ("SWEEP__ENABLED", "false")],
            Self::Sweep => &[("NUDGE__ENABLED", "false"), ("SWEEP__ENABLED", "true")],
            Self::All => &[],
        }
    }

    fn needs_events_off(self) -> bool {
        matches!(self, Self::Nudge | Self::Sweep)
    }
}

#[derive(Args, Serialize)]
pub struct Lateness {
    /// Pending tasks in the table, due in 1 to 24 days
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = tasks())]
    pub pending: u32,
    /// Tasks due per second
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = rate)]
    pub rate: u32,
    /// Warm-up before the measurement, not counted
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = span)]
    #[serde(serialize_with = "seconds")]
    pub warm_up: Duration,
    /// Duration of the measurement
    #[arg(long, value_name = "DUR", default_value = "60s", value_parser = positive_span)]
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    /// Signal sources to enable; one row for each
    #[arg(long, value_enum, value_delimiter = ',', default_value = "all")]
    pub nets: Vec<Nets>,
    /// Stop Redis after writing the tasks
    #[arg(long, requires = "private")]
    pub redis_down: bool,
    /// Start the daemon after writing the tasks, so that it audits all pending tasks during the measurement; counts
    /// tasks due until the audit ends
    #[arg(long, conflicts_with = "redis_down")]
    pub audit: bool,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

impl Lateness {
    pub async fn run(&self, environment: &mut Environment) -> anyhow::Result<Report> {
        let plans: anyhow::Result<Vec<Plan>> =
            self.nets.iter().map(|nets| self.plan(*nets)).collect();
        let columns = |run, results: &Results| self.columns(run, results);
        measure(environment, self.common.runs, &plans?, columns).await
    }

    fn plan(&self, nets: Nets) -> anyhow::Result<Plan<'static>> {
        let label = match nets.label() {
            label if self.redis_down => format!("{label}, redis down"),
            label if self.audit => format!("{label}, audit"),
            label => label.to_owned(),
        };
        Ok(Plan {
            patience: match nets {
                Nets::All => PATIENCE,
                _ => PATIENCE_ALONE,
            },
            settings: nets.settings(),
            events_off: nets.needs_events_off(),
            redis_down: self.redis_down,
            audit: self.audit,
            ..Plan::evenly(label, self.rate, self.warm_up, self.duration)?
        })
    }

    fn columns(&self, run: u32, results: &Results) -> Columns {
        let (audited_us, own) = audited(results);
        Columns {
            own,
            tasks_per_s: results.started_in_window() as f64 / self.duration.as_secs_f64(),
            curve: match self.common.runs {
                1 => results.label.clone(),
                _ => results.name_of(run),
            },
            lateness: results.lateness(audited_us),
        }
    }
}

/// End of the concurrent audit, and its statistics. Tasks due later did not overlap with it.
fn audited(results: &Results) -> (u64, Vec<Stat>) {
    let Some(Audit { from_us, until_us }) = results.audit else {
        return (u64::MAX, Vec::new());
    };
    let seconds = |until_us: u64| until_us.saturating_sub(from_us) as f64 / 1e6;
    let value = match until_us {
        Some(until_us) => Value::Measured(seconds(until_us), 1),
        None => Value::MoreThanMs(seconds(results.watched_until_us) * 1e3),
    };
    let stat = Stat::new("audit_s", value);
    (until_us.unwrap_or(u64::MAX), vec![stat])
}
