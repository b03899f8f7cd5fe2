//! Recurring tasks of the configuration.

use std::fmt;
use std::time::Duration;

use lapsed_core::task::{CatchUp, Overlap, Recurrence, UnixMs};

use super::{Action, FAULTS, Op, PROBES, Plan, Verb};
use crate::random::Rng;

/// An entry of `[[recurring]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    pub key: String,
    pub rule: Rule,
}

/// When the occurrences of a series are, and what becomes of those that are missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    pub every: Duration,
    pub catch_up: CatchUp,
    pub overlap: Overlap,
}

impl Rule {
    fn draw(rng: &mut Rng) -> Self {
        let every = Duration::from_secs(*rng.pick(&[2, 5, 10, 20]));
        // Those that are not left out must not come faster than they are run.
        let is_slow = every >= Duration::from_secs(10);
        Self {
            every,
            catch_up: match rng.below(3) {
                0 if is_slow => CatchUp::All,
                1 => CatchUp::Once,
                _ => CatchUp::Skip,
            },
            overlap: match is_slow && rng.percent(30) {
                true => Overlap::Allow,
                false => Overlap::Skip,
            },
        }
    }

    fn every_ms(self) -> i64 {
        self.every.as_millis() as i64
    }

    /// The first time of this rule after another.
    pub fn next(self, after: UnixMs) -> UnixMs {
        UnixMs((after.0.div_euclid(self.every_ms()) + 1) * self.every_ms())
    }

    pub fn has(self, time: UnixMs) -> bool {
        time.0 % self.every_ms() == 0
    }

    /// True if a run may start that late that the occurrence is left out instead.
    pub fn is_missed(self, due: UnixMs, now: UnixMs) -> bool {
        let grace = (self.next(due).0 - due.0) / 2;
        self.catch_up == CatchUp::Skip && now.0 > due.0 + grace.min(60_000)
    }

    pub fn recurrence(self) -> Recurrence {
        let every = Recurrence::every(self.every).expect("at least a second");
        every.catch_up(self.catch_up).overlap(self.overlap)
    }
}

impl fmt::Display for Series {
    /// Writes it as an inline table of the configuration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, rule } = self;
        write!(
            f,
            "{{ key = '{key}', every = '{}s', catch_up = '{}', overlap = '{}' }}",
            rule.every.as_secs(),
            format!("{:?}", rule.catch_up).to_lowercase(),
            format!("{:?}", rule.overlap).to_lowercase(),
        )
    }
}

impl Plan {
    /// One seed in three has recurring tasks.
    pub(super) fn draw_series(&mut self, rng: &mut Rng) {
        if !rng.percent(33) {
            return;
        }
        let time = |rng: &mut Rng| Duration::from_millis(rng.below(FAULTS.as_millis() as u64));
        for number in 0..rng.within(1, 3) {
            let method = rng.pick(&["ok", "slow", "flaky", "hopeless", "snooze"]);
            let class = rng.pick(&["Job", "Job", "Mail"]);
            self.series.push(Series {
                key: format!("{class}@{method}@series{number}"),
                rule: Rule::draw(rng),
            });
        }
        let first = self.keys.len() + PROBES;
        for _ in 0..rng.below(4) {
            let action = Action::Configure {
                series: rng.below(self.series.len() as u64) as usize,
                rule: Rule::draw(rng),
            };
            self.push(time(rng), action);
        }
        for _ in 0..rng.below(6) {
            let verb = match rng.below(8) {
                0 => Verb::Cancel,
                1..=3 => Verb::RunNow,
                _ => Verb::Reschedule {
                    delay: Duration::from_millis(rng.below(20_000)),
                },
            };
            let op = Op {
                producer: rng.below(self.producers as u64) as usize,
                key: first + rng.below(self.series.len() as u64) as usize,
                verb,
            };
            self.push(time(rng), Action::Op(op));
        }
    }
}
