//! One daemon against two, in turns: the same work, the same minute of the machine's day.

use std::time::Duration;

use super::figures::{Figure, Value};
use super::measure::{Arrivals, Plan};
use super::measured::Measured;
use super::options::Daemons;
use super::report::Report;
use super::site::Site;

/// How long a turn may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// The work of one turn falls due within this.
const WINDOW: Duration = Duration::from_secs(1);

impl Daemons {
    pub async fn run(&self, site: &mut Site) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let (mut ratios, mut duplicates) = (Vec::new(), 0);
        for repetition in 0..self.common.runs {
            for pair in 1..=self.pairs {
                let number = repetition * self.pairs + pair;
                // Whoever comes second finds warmer caches: they take turns at that too.
                let order = if number.is_multiple_of(2) {
                    [2, 1]
                } else {
                    [1, 2]
                };
                let mut rates = [0.0; 3];
                for daemons in order {
                    let measured = self.drain(site, daemons).await?;
                    let per_s = self.per_second(&measured);
                    let lateness = measured.lateness(u64::MAX);
                    duplicates += measured.duplicates();
                    rates[daemons] = per_s;
                    let curve = (measured.name_of(number), lateness);
                    report.add(number, &measured, Vec::new(), per_s, curve);
                }
                ratios.push(rates[2] / rates[1]);
            }
        }
        ratios.sort_by(f64::total_cmp);
        let middle = ratios.len() / 2;
        let median = match ratios.len() % 2 {
            1 => ratios[middle],
            _ => (ratios[middle - 1] + ratios[middle]) / 2.0,
        };
        let figure = |name, value| Figure { name, value };
        report.summary = vec![
            figure("two_to_one_median", Value::Measured(median, 3)),
            figure("two_to_one_min", Value::Measured(ratios[0], 3)),
            figure(
                "two_to_one_max",
                Value::Measured(ratios[ratios.len() - 1], 3),
            ),
            figure("duplicates_in_all", Value::Count(duplicates)),
        ];
        Ok(report)
    }

    async fn drain(&self, site: &mut Site, daemons: usize) -> anyhow::Result<Measured> {
        let label = match daemons {
            1 => "one".to_owned(),
            _ => "two".to_owned(),
        };
        let arrivals = Arrivals::Within(WINDOW, self.tasks);
        Plan {
            patience: PATIENCE,
            daemons,
            ..Plan::new(label, self.tasks, arrivals, WINDOW)
        }
        .run(site)
        .await
    }

    /// From the first due time to the last start.
    fn per_second(&self, measured: &Measured) -> f64 {
        let last = measured.all_starts().max().unwrap_or(u64::MAX);
        let us = last.saturating_sub(measured.first_due_us).max(1);
        measured.all_starts().count() as f64 / (us as f64 / 1e6)
    }
}
