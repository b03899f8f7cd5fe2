//! Tests of rules by `promtool`, written from the metrics that a daemon served before and during a fault.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The rules that users get.
pub fn rules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/prometheus/rules.yml")
}

/// Minutes from the start of a test to the fault.
const FAULT_AT: usize = 30;

/// Minutes that the fault lasts.
const LASTS: usize = 90;

/// What a daemon served before and during a fault.
pub struct Fault {
    pub before: String,
    pub during: String,
    /// True if the daemon can still be scraped.
    pub is_up: bool,
    /// Alerts that may or may not fire, too.
    pub ignored: &'static str,
}

impl Fault {
    pub fn new(before: String, during: String) -> Self {
        Self {
            before,
            during,
            is_up: true,
            ignored: "",
        }
    }

    /// Before the fault no alert fires; these fire when it has lasted for some minutes, and no others.
    pub fn fires(&self, alerts: &[&str], after_min: usize) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("test.yml");
        std::fs::write(&file, self.rule_test(alerts, after_min)).unwrap();
        assert_holds(&file);
    }

    fn rule_test(&self, alerts: &[&str], after_min: usize) -> String {
        let (before, mut during) = (samples(&self.before), samples(&self.during));
        if !self.is_up {
            during.clear();
        }
        let names: BTreeSet<&String> = before.keys().chain(during.keys()).collect();
        let mut text = format!(
            "rule_files: ['{}']\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n",
            rules().display()
        );
        let mut series = |name: &str, before: Option<&f64>, during: Option<&f64>| {
            let last = FAULT_AT - 1;
            let before = before.map_or(format!("_x{FAULT_AT}"), |v| format!("{v}+0x{last}"));
            let during = during.map_or("stale".to_owned(), |v| format!("{v}+0x{LASTS}"));
            let name = name.replace('\'', "''");
            writeln!(
                text,
                "  - {{ series: '{name}', values: '{before} {during}' }}"
            )
            .unwrap();
        };
        let up = [1.0, f64::from(u8::from(self.is_up))];
        series(&labelled("up"), Some(&up[0]), Some(&up[1]));
        for name in names {
            series(&labelled(name), before.get(name), during.get(name));
        }
        let firing = format!(
            "group by (alertname) (ALERTS{{alertstate=\"firing\",alertname!~\"{}\"}})",
            self.ignored
        );
        let expected: String = alerts
            .iter()
            .map(|name| format!("\n    - {{ labels: '{{alertname=\"{name}\"}}', value: 1 }}"))
            .collect();
        let (well, ill) = (FAULT_AT - 1, FAULT_AT + after_min);
        writeln!(
            text,
            "  promql_expr_test:\n  - expr: '{firing}'\n    eval_time: {well}m\n    exp_samples: []\n  \
             - expr: '{firing}'\n    eval_time: {ill}m\n    exp_samples:{expected}"
        )
        .unwrap();
        text
    }
}

/// Runs a test of the rules.
pub fn assert_holds(file: &Path) {
    let mut command = Command::new("promtool");
    let run = command.args(["test", "rules"]).arg(file).output();
    let run = run.expect("`promtool` runs; scripts/install-servers --tests installs it");
    let said = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
}

/// Values by series.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    lines.map(sample).collect()
}

/// The series of a target of the job `lapsed`.
fn labelled(series: &str) -> String {
    let target = "job=\"lapsed\",instance=\"a:8787\"";
    match series.split_once('{') {
        Some((name, labels)) => format!("{name}{{{target},{labels}"),
        None => format!("{series}{{{target}}}"),
    }
}
