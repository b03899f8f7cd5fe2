//! What a run came to, as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::history::Ms;
use crate::judge::{Anomaly, Verdict};
use crate::options::Ledger;
use crate::plot::{minutes, percentile, svg};
use crate::samples::{Growth, Sample, csv, growths};

/// Lines of each anomaly that are shown.
const EXAMPLES: usize = 5;

/// What a run came to.
pub struct Outcome {
    pub(crate) ledger: Ledger,
    pub(crate) verdict: Verdict,
    /// How often each fault happened.
    pub(crate) faults: BTreeMap<String, u64>,
    /// Faults that waited for something that did not come.
    pub(crate) missed: u64,
    pub(crate) time: Duration,
    /// Empty, if nothing was measured.
    pub(crate) samples: Vec<Sample>,
}

impl Outcome {
    /// Whether no promise was broken, and nothing grew.
    pub fn is_well(&self) -> bool {
        self.verdict.anomalies.is_empty() && growths(&self.samples).iter().all(Growth::is_flat)
    }

    /// Writes the samples, and lateness by the minute, as a table and as a picture.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write_to(&self, directory: &Path) -> std::io::Result<()> {
        let name = |name: &str| directory.join(format!("{name}-{:?}", self.ledger).to_lowercase());
        let minutes = minutes(&self.verdict.late_ms);
        let mut table = "minute,starts,p50_ms,p99_ms,max_ms\n".to_owned();
        for minute in &minutes {
            let [p50, p99, most] = minute.late_ms;
            let _ = writeln!(
                table,
                "{},{},{p50},{p99},{most}",
                minute.number, minute.count
            );
        }
        let title = format!("Lateness by the minute, {:?}", self.ledger);
        std::fs::create_dir_all(directory)?;
        std::fs::write(name("samples").with_extension("csv"), csv(&self.samples))?;
        std::fs::write(name("lateness").with_extension("csv"), table)?;
        std::fs::write(
            name("lateness").with_extension("svg"),
            svg(&minutes, &title),
        )
    }

    /// What was broken, without what is measured in milliseconds: a busy machine is late.
    pub fn broken(&self) -> Vec<&str> {
        let anomalies = self.verdict.anomalies.iter();
        let lasting = anomalies.filter(|(it, _)| *it != Anomaly::Late);
        lasting.map(|(_, line)| line.as_str()).collect()
    }

    /// The number of tasks that were acknowledged.
    pub fn armings(&self) -> u64 {
        self.verdict.counts.armings
    }

    /// The number of faults that happened, and of those that did not find what they wait for.
    pub fn faults(&self) -> (u64, u64) {
        (self.faults.values().sum(), self.missed)
    }

    /// The whole report.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let counts = &self.verdict.counts;
        let _ = writeln!(
            text,
            "{:?}: {:.0?}; {} armings acknowledged, {} replaced, {} cancelled, {} without an answer; {} runs, {} retries, \
             {} again after a fault; {} bare keys that nobody promised; {} dead after three crashes",
            self.ledger,
            self.time,
            counts.armings,
            counts.replaced,
            counts.cancelled,
            counts.unknown,
            counts.runs,
            counts.retries,
            counts.repeated,
            counts.unpromised,
            counts.poison
        );
        let mut late: Vec<Ms> = self.verdict.late_ms.iter().map(|(_, late)| *late).collect();
        late.sort_unstable();
        let _ = writeln!(
            text,
            "  lateness of {} first runs that no fault excuses, in ms: p50 {}, p99 {}, p99.9 {}, most {}",
            late.len(),
            percentile(&late, 500),
            percentile(&late, 990),
            percentile(&late, 999),
            percentile(&late, 1_000)
        );
        for (name, count) in &self.faults {
            let _ = writeln!(text, "  {count:>6}  {name}");
        }
        let _ = writeln!(
            text,
            "  {:>6}  faults in all; {} more did not find what they wait for",
            self.faults.values().sum::<u64>(),
            self.missed
        );
        for growth in growths(&self.samples)
            .iter()
            .filter(|_| !self.samples.is_empty())
        {
            let Growth {
                name,
                mean,
                growth: grown,
                allowed,
            } = growth;
            let verdict = if growth.is_flat() { "flat" } else { "GROWS" };
            let _ = writeln!(
                text,
                "  {verdict:>6}  {name}: mean {mean:.0}, growth {grown:.0}, allowed {allowed:.0}"
            );
        }
        for anomaly in Anomaly::ALL {
            let _ = writeln!(text, "  {:>6}  {anomaly:?}", self.verdict.count(anomaly));
            let of_it = self
                .verdict
                .anomalies
                .iter()
                .filter(|(it, _)| *it == anomaly);
            for (_, line) in of_it.take(EXAMPLES) {
                let _ = writeln!(text, "          {line}");
            }
        }
        text
    }
}
