//! Rates and retention of the configuration.

use std::time::Duration;

use lapsed_core::task::Rate;

use super::{Action, FAULTS, Op, Plan, Verb};
use crate::random::Rng;

/// The class and method whose starts are limited.
pub const RATED: (&str, &str) = ("Mail", "ok");

/// How many tasks of it fall due together.
const TOGETHER: usize = 16;

impl Plan {
    /// One seed in five has a rate, and more tasks than may start at once.
    pub(super) fn draw_rate(&mut self, rng: &mut Rng) {
        if !rng.percent(20) {
            return;
        }
        let rate: Rate = rng.pick(&["2/s", "5/s", "90/m"]).parse().expect("a rate");
        let burst = *rng.pick(&[1, 2, 5]);
        self.rate = Some(rate.with_burst(burst).expect("a burst"));
        let first = self.keys.len();
        let (class, method) = RATED;
        self.keys
            .extend((0..TOGETHER).map(|number| format!("{class}@{method}@rated{number}")));
        for _ in 0..rng.within(1, 4) {
            let op = Op {
                producer: rng.below(self.producers as u64) as usize,
                key: first,
                verb: Verb::CreateMany {
                    keys: (first..first + TOGETHER)
                        .filter(|_| rng.percent(80))
                        .collect(),
                    delay: Duration::from_millis(*rng.pick(&[0, 300, 4_000])),
                },
            };
            let at = Duration::from_millis(rng.below(FAULTS.as_millis() as u64));
            self.push(at, Action::Op(op));
        }
    }
}
