//! How late tasks start at a steady rate, with all nets under them or with one.

use std::time::Duration;

use super::measure::Plan;
use super::options::{Lateness, Nets};
use super::report::Report;
use super::site::Site;

/// How long after its end a run with all nets is watched: it ends as soon as everything has started.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long one with a single net is: much of it may never start.
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

    /// Settings that switch the others off.
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
    pub async fn run(&self, site: &mut Site) -> anyhow::Result<Report> {
        let mut report = Report::default();
        for run in 1..=self.common.runs {
            for nets in &self.nets {
                self.run_once(site, run, *nets, &mut report).await?;
            }
        }
        Ok(report)
    }

    async fn run_once(
        &self,
        site: &mut Site,
        run: u32,
        nets: Nets,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let label = match (nets, self.redis_down) {
            (nets, false) => nets.label().to_owned(),
            (nets, true) => format!("{}, redis down", nets.label()),
        };
        let plan = Plan {
            patience: match nets {
                Nets::All => PATIENCE,
                _ => PATIENCE_ALONE,
            },
            settings: nets.settings(),
            deaf: nets.is_deaf(),
            redis_down: self.redis_down,
            ..Plan::evenly(label, self.rate, self.warm_up, self.duration)?
        };
        let measured = plan.run(site).await?;
        let lateness = measured.lateness(u64::MAX);
        let per_s = measured.started_in_window() as f64 / self.duration.as_secs_f64();
        let curve = match self.common.runs {
            1 => measured.label.clone(),
            _ => measured.name_of(run),
        };
        report.add(run, &measured, Vec::new(), per_s, (curve, lateness));
        Ok(())
    }
}
