//! Scenario `lateness`: lateness at a steady rate, with all nets or a single one.

use std::time::Duration;

use super::environment::Environment;
use super::measure::Plan;
use super::options::{Lateness, Nets};
use super::report::Report;
use super::results::{Audit, Results};
use super::stats::{Stat, Value};

/// How long a run with all nets is watched after its end: it ends as soon as all tasks have started.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a run with a single net is watched: many of its tasks may never start.
const PATIENCE_ALONE: Duration = Duration::from_secs(2);

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

    fn is_deaf(self) -> bool {
        matches!(self, Self::Nudge | Self::Sweep)
    }
}

impl Lateness {
    pub async fn run(&self, environment: &mut Environment) -> anyhow::Result<Report> {
        let mut report = Report::default();
        for run in 1..=self.common.runs {
            for nets in &self.nets {
                self.run_once(environment, run, *nets, &mut report).await?;
            }
        }
        Ok(report)
    }

    async fn run_once(
        &self,
        environment: &mut Environment,
        run: u32,
        nets: Nets,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let label = match nets.label() {
            label if self.redis_down => format!("{label}, redis down"),
            label if self.audit => format!("{label}, audit"),
            label => label.to_owned(),
        };
        let plan = Plan {
            patience: match nets {
                Nets::All => PATIENCE,
                _ => PATIENCE_ALONE,
            },
            settings: nets.settings(),
            deaf: nets.is_deaf(),
            redis_down: self.redis_down,
            audit: self.audit,
            ..Plan::evenly(label, self.rate, self.warm_up, self.duration)?
        };
        let results = plan.run(environment).await?;
        let (audited_us, own) = audited(&results);
        let lateness = results.lateness(audited_us);
        let per_s = results.started_in_window() as f64 / self.duration.as_secs_f64();
        let curve = match self.common.runs {
            1 => results.label.clone(),
            _ => results.name_of(run),
        };
        report.add(run, &results, own, per_s, (curve, lateness));
        Ok(())
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
