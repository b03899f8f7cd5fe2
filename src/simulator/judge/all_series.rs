//! What the judge remembers of recurring tasks.

use std::collections::{BTreeMap, BTreeSet};

use lapsed_core::ledger::row::{Row, StoredRecurrence};
use lapsed_core::task::UnixMs;

use crate::plan::Rule;
use crate::record::Actor;

/// What the judge knows of the series.
#[derive(Debug, Clone, Default)]
pub struct AllSeries {
    /// The rules that the configuration has had for each key, the latest last.
    pub rules: BTreeMap<String, Vec<Rule>>,
    /// The latest time of its rule that each row has been at.
    pub reached: BTreeMap<u64, UnixMs>,
    /// The armings whose program was called.
    pub called: BTreeSet<(u64, UnixMs)>,
    /// The occurrences that have succeeded.
    pub succeeded: BTreeSet<(u64, UnixMs)>,
    /// The processes that may misread the ledger's clock.
    pub misread: BTreeSet<Actor>,
    /// The series are cancelled.
    pub are_over: bool,
}

impl AllSeries {
    /// The ledger is as it was then: what it had reached since counts no more, and will run again. What was called since may
    /// still run.
    pub fn restored(&mut self, then: Self) {
        (self.reached, self.succeeded) = (then.reached, then.succeeded);
    }

    /// An operation has moved a row: what ran at this time before may run again.
    pub fn moved(&mut self, row: &Row) {
        self.succeeded.remove(&(row.id, row.end_time));
        self.called.remove(&(row.id, row.end_time));
    }

    pub fn has_succeeded(&self, row: &Row) -> bool {
        self.succeeded.contains(&(row.id, row.end_time))
    }

    /// The rule by which a row recurs.
    pub fn rule_of(&self, row: &Row) -> Option<Rule> {
        let Some(StoredRecurrence::Known(stored)) = &row.recurrence else {
            return None;
        };
        let rules = self.rules.get(row.key.as_str())?;
        let mut rules = rules.iter().rev().copied();
        rules.find(|rule| rule.recurrence().is_same_as(stored))
    }
}
