//! Many tasks that fall due in the same millisecond.

use std::time::Duration;

use super::figures::{Figure, Row, Value};
use super::measure::{Arrivals, Plan};
use super::options::Burst;
use super::report::{Report, figures};
use super::site::Site;

/// How long all of it may take.
const PATIENCE: Duration = Duration::from_secs(300);

impl Burst {
    pub async fn run(&self, site: &mut Site) -> anyhow::Result<Report> {
        let mut report = Report::default();
        for run in 1..=self.common.runs {
            let measured = Plan {
                label: format!("{} at once", self.tasks),
                count: self.tasks,
                arrivals: Arrivals::AtOnce,
                backlog: 0,
                warm_up: Duration::ZERO,
                window: Duration::from_secs(1),
                patience: PATIENCE,
                daemons: 1,
                settings: &[],
                beside: None,
                deaf: false,
                redis_down: false,
            }
            .run(site)
            .await?;
            let lateness = measured.lateness(u64::MAX);
            let since_due = |moment: Option<u64>| {
                let us = moment.map(|moment| moment.saturating_sub(measured.first_due_us));
                Value::measured(us.map(|us| us as f64 / 1000.0), 0)
            };
            let last = measured.all_starts().max().filter(|_| measured.lost() == 0);
            let per_s = last.map_or(0.0, |last| {
                let us = last.saturating_sub(measured.first_due_us).max(1);
                f64::from(self.tasks) / (us as f64 / 1e6)
            });
            let figure = |name, value| Figure { name, value };
            let mut row = vec![
                figure("all_started_ms", since_due(last)),
                figure("all_settled_ms", since_due(measured.all_settled_us())),
            ];
            row.extend(figures(&measured, &lateness, per_s));
            report.rows.push(Row {
                label: measured.label.clone(),
                run: Some(run),
                figures: row,
            });
            report
                .curves
                .push((format!("{} #{run}", measured.label), lateness));
        }
        Ok(report)
    }
}
