//! What the judge remembers of tasks that have a rate.

use lapsed_core::ledger::row::Row;
use lapsed_core::task::{Rate, UnixMs};

use crate::plan::{Plan, RATED};

/// How much closer together starts may come than they were granted.
const JITTER_MS: i64 = 1_000;

/// The starts of the tasks that have a rate.
#[derive(Debug, Default)]
pub struct Rates {
    pub rate: Option<Rate>,
    daemons: u32,
    pub starts: Vec<UnixMs>,
    /// When something was wrong, and whether that may let more tasks start.
    pub disturbed: Vec<(UnixMs, UnixMs, bool)>,
}

impl Rates {
    pub fn new(plan: &Plan) -> Self {
        Self {
            rate: plan.rate,
            daemons: u32::try_from(plan.daemons).expect("a few"),
            ..Self::default()
        }
    }

    /// True if the starts of this task are limited.
    pub fn has(&self, row: &Row) -> bool {
        let (class, method) = RATED;
        let mut parts = row.key.as_str().split('@');
        self.rate.is_some() && (parts.next(), parts.next()) == (Some(class), Some(method))
    }

    /// The most starts from one moment to another. While daemons do not see the bucket or each other, each may start as
    /// much as the rate permits, and another burst for each time that something has gone wrong.
    pub fn most(&self, rate: Rate, from: UnixMs, to: UnixMs) -> f64 {
        let span_us = (to.0 - from.0 + JITTER_MS) as f64 * 1e3;
        let during = self.disturbed.iter();
        let during = during.filter(|(begin, end, _)| *begin <= to && *end >= from);
        let (mut bursts, mut processes) = (1, 1);
        if during.clone().any(|(_, _, may_exceed)| *may_exceed) {
            bursts += during.count();
            processes = self.daemons;
        }
        let burst = f64::from(rate.burst()) * bursts as f64;
        f64::from(processes) * (burst + span_us / rate.interval_us())
    }
}
