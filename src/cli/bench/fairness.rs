//! Many tasks of a slow class due at once, beside another class that goes on at a steady rate.

use std::time::Duration;

use super::figures::{Figure, Row, Value};
use super::measure::{Arrivals, Beside, Plan};
use super::options::{Fairness, arriving};
use super::report::{Report, figures};
use super::site::Site;

/// How long after the window is waited for what has not started.
const PATIENCE: Duration = Duration::from_secs(120);

impl Fairness {
    pub async fn run(&self, site: &mut Site) -> anyhow::Result<Report> {
        let mut report = Report::default();
        for run in 1..=self.common.runs {
            let measured = Plan {
                label: format!("{}/s beside {} slow", self.rate, self.tasks),
                count: u32::try_from(arriving(self.rate, self.warm_up + self.duration))?,
                arrivals: Arrivals::Evenly(self.rate),
                backlog: 0,
                warm_up: self.warm_up,
                window: self.duration,
                patience: PATIENCE,
                daemons: 1,
                settings: &[],
                beside: Some(Beside {
                    tasks: self.tasks,
                    takes: self.takes,
                }),
                deaf: false,
                redis_down: false,
            }
            .run(site)
            .await?;
            let lateness = measured.lateness(u64::MAX);
            let per_s = measured.started_in_window() as f64 / self.duration.as_secs_f64();
            let mut row = vec![Figure {
                name: "slow_done",
                value: Value::Count(measured.beside_done),
            }];
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
