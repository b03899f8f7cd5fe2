//! The promises in milliseconds of `docs/benchmark.md`, measured by `lapsed bench` on private servers. `make soak` runs
//! this in a release build; nothing else may run beside it.

use serde_json::Value;

use crate::bench::{measure, number};

/// A limit to one field of the report.
enum Bar {
    AtMost(&'static str, f64),
    AtLeast(&'static str, f64),
}

use Bar::{AtLeast, AtMost};

/// The scenarios and their bars: what `docs/benchmark.md` says was measured, with room for another day on such a machine:
/// twice the median, three times the last percentiles, half of a rate.
const PROMISES: [(&str, &[Bar]); 9] = [
    (
        "lateness --rate 200",
        &[AtMost("p50_ms", 2.2), AtMost("p99_ms", 12.0)],
    ),
    (
        "lateness --rate 10000 --duration 30s",
        &[AtMost("p50_ms", 2.4), AtMost("p99_ms", 36.0)],
    ),
    (
        "throughput --rate 20000",
        &[AtMost("backlog_s", 1.0), AtMost("p99_ms", 225.0)],
    ),
    ("burst", &[AtMost("all_started_ms", 7_000.0)]),
    (
        "recovery",
        &[AtLeast("drained_per_s", 10_000.0), AtMost("p99_ms", 171.0)],
    ),
    (
        "adopt --rate 20000 --duration 10s --ttl 4s",
        &[AtMost("p50_ms", 34.0), AtMost("p99_ms", 300.0)],
    ),
    ("fairness", &[AtMost("p50_ms", 2.6), AtMost("p99_ms", 84.0)]),
    (
        "lateness --rate 200 --redis-down",
        &[AtMost("p50_ms", 2.6), AtMost("p99_ms", 54.0)],
    ),
    // A restart on the same machine takes a few seconds, says `docs/guarantees.md`.
    (
        "kill --concurrency 1000",
        &[AtMost("all_done_after_s", 3.0), AtMost("undone", 0.0)],
    ),
];

/// What must be 0 wherever it is counted.
const NEVER: [&str; 4] = ["early", "lost", "duplicates", "unsettled"];

impl Bar {
    /// A line of the report, and true if the bar is missed.
    fn compare(&self, row: &Value) -> (String, bool) {
        let (name, limit, bar, is_most) = match *self {
            AtMost(name, bar) => (name, "at most", bar, true),
            AtLeast(name, bar) => (name, "at least", bar, false),
        };
        let found = number(row, name);
        let is_missed = if is_most { found > bar } else { found < bar };
        let verdict = if is_missed { "MISSED" } else { "ok" };
        let line = format!("  {verdict:<6}  {name:<16} {found:>10.2}  {limit} {bar}");
        (line, is_missed)
    }
}

#[test]
#[ignore = "takes half an hour and the whole machine; `make soak` runs it"]
fn every_promise_in_milliseconds_is_kept() {
    let mut missed = Vec::new();
    for (arguments, bars) in PROMISES {
        println!("lapsed bench {arguments} --private");
        let document = measure(arguments);
        let row = &document["rows"][0];
        let zeros = NEVER.iter().filter(|name| !row[**name].is_null());
        let zeros = zeros.map(|name| AtMost(name, 0.0));
        for bar in bars.iter().chain(&zeros.collect::<Vec<_>>()) {
            let (line, is_missed) = bar.compare(row);
            println!("{line}");
            if is_missed {
                missed.push(format!("{arguments}:{line}"));
            }
        }
    }
    assert!(
        missed.is_empty(),
        "bars were missed:\n{}",
        missed.join("\n")
    );
}
