//! What is found in a history.

use crate::history::Ms;

/// A promise that was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anomaly {
    /// Acknowledged and done, but never run.
    Lost,
    /// Begun before its due time.
    Early,
    /// Begun later than promised.
    Late,
    /// Begun again, though nothing had interrupted the run before.
    Doubled,
    /// Begun after its cancellation was acknowledged.
    RanAfterCancel,
    /// Begun for a due time that an acknowledged one had replaced.
    RanForOlderArming,
    /// Begun though nobody asked for it.
    Unrequested,
    /// Acknowledged, but not in the ledger.
    AcknowledgedBeforeDurable,
    /// The ledger has the result of a run that had lost its claim.
    FencedResultApplied,
    /// An answer contradicts what was acknowledged before.
    WrongAnswer,
    /// Not finished long after the last fault.
    Stuck,
}

impl Anomaly {
    pub const ALL: [Self; 11] = [
        Self::Lost,
        Self::Early,
        Self::Late,
        Self::Doubled,
        Self::RanAfterCancel,
        Self::RanForOlderArming,
        Self::Unrequested,
        Self::AcknowledgedBeforeDurable,
        Self::FencedResultApplied,
        Self::WrongAnswer,
        Self::Stuck,
    ];
}

/// What was found.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Each anomaly, with a line for people.
    pub anomalies: Vec<(Anomaly, String)>,
    pub counts: Counts,
    /// Of the first run of each arming that no fault excuses: when it could start, and its lateness, in ms.
    pub late_ms: Vec<(Ms, Ms)>,
}

/// What the history contains. All armings are acknowledged ones.
#[derive(Debug, Default)]
pub struct Counts {
    pub armings: u64,
    pub replaced: u64,
    pub cancelled: u64,
    pub runs: u64,
    pub retries: u64,
    /// Runs that a fault had interrupted, and that began again.
    pub repeated: u64,
    /// Operations whose answer did not come.
    pub unknown: u64,
    /// Keys of plain Redis that a fault took before a daemon was promised to have seen them.
    pub unpromised: u64,
    /// Tasks that are dead after three crashes.
    pub poison: u64,
}

impl Verdict {
    pub fn count(&self, anomaly: Anomaly) -> usize {
        let found = self.anomalies.iter().filter(|(it, _)| *it == anomaly);
        found.count()
    }

    pub fn add(&mut self, anomaly: Anomaly, line: String) {
        self.anomalies.push((anomaly, line));
    }
}
