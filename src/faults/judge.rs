//! Compares a history with what is promised.

mod excuses;
mod found;
mod key;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use self::excuses::Faults;
pub use self::found::{Anomaly, Verdict};
use self::key::Case;
use crate::history::{History, Run};

/// Judges every key.
pub fn judge(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let mut runs: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
    for run in &history.runs {
        runs.entry(&run.key).or_default().push(run);
    }
    let faults = Faults::new(&history.windows, history.lease_ms);
    for (key, story) in &history.keys {
        let mut runs = runs.remove(key.as_str()).unwrap_or_default();
        runs.sort_by_key(|run| run.started);
        let row = history.rows.get(key);
        Case {
            key,
            story,
            row,
            runs,
            faults: &faults,
        }
        .judge(&mut verdict);
    }
    for (key, runs) in runs {
        let line = format!("{key}: {runs:?}, and no producer has named it");
        verdict.add(Anomaly::Unrequested, line);
    }
    verdict
}
