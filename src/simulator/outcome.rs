//! What a run has shown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::judge::{Looked, Violation};
use crate::plan::FaultKind;

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    pub violations: Vec<Violation>,
    pub struck: BTreeMap<FaultKind, u64>,
    /// Guards of the product that were taken: the counters of its daemons that are not zero.
    pub guards: BTreeSet<String>,
    pub claims: u64,
    pub writes: u64,
    /// How often the judge looked at what only some runs have, by name.
    pub looked: Looked,
    /// Virtual time, of all daemons together.
    pub daemon_time: Duration,
    pub lines: u64,
    pub digest: u64,
}

impl fmt::Display for Outcome {
    /// Writes it for [`Shown`](crate::batch::Shown).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for violation in &self.violations {
            writeln!(f, "violation {violation}")?;
        }
        for (kind, count) in &self.struck {
            writeln!(f, "struck {} {count}", kind.name())?;
        }
        for guard in &self.guards {
            writeln!(f, "guard {guard}")?;
        }
        let time = self.daemon_time.as_millis();
        writeln!(f, "numbers {} {} {time}", self.claims, self.writes)?;
        for (name, count) in self.looked.counts() {
            writeln!(f, "looked {name} {count}")?;
        }
        writeln!(f, "digest {} {:016x}", self.lines, self.digest)
    }
}
