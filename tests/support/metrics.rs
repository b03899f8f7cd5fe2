//! Reads values from the text that a daemon serves as `/metrics`.

/// The names, labels and types of all metrics.
const SNAPSHOT: &str = include_str!("../snapshots/metrics.txt");

/// Labels with a closed set of values, and the sources that name them: metric, label, sources.
const CLOSED: [(&str, &str, &[&str]); 13] = [
    ("lapsed_signals_total", "source", &[TIMER]),
    ("lapsed_starts_total", "source", &[TIMER]),
    ("lapsed_audits_total", "reason", &[TIMER]),
    (
        "lapsed_signals_dropped_total",
        "reason",
        &[include_str!("../../src/core/telemetry/drop_reason.rs")],
    ),
    (
        "lapsed_claims_total",
        "result",
        &[include_str!("../../src/engine/claim.rs")],
    ),
    (
        "lapsed_runs_total",
        "outcome",
        &[include_str!("../../src/core/task/lifecycle/mod.rs")],
    ),
    (
        "lapsed_dead_total",
        "reason",
        &[include_str!("../../src/core/task/history.rs")],
    ),
    (
        "lapsed_adopted_total",
        "reason",
        &[include_str!(
            "../../src/engine/background/adoption/comparing.rs"
        )],
    ),
    (
        "lapsed_sweep_recovered_total",
        "reason",
        &[include_str!("../../src/engine/queue/mod.rs")],
    ),
    ("lapsed_tasks", "state", &[STATE, STATS]),
    ("lapsed_tasks_at_least", "state", &[STATE, STATS]),
    ("lapsed_pruned_total", "state", &[STATE]),
    ("lapsed_prune_behind", "state", &[STATE]),
];

const TIMER: &str = include_str!("../../src/core/timer/mod.rs");
const STATE: &str = include_str!("../../src/core/task/state.rs");
const STATS: &str = include_str!("../../src/core/ledger/stats.rs");

/// The value of a counter or gauge, named with its labels in their order; 0 if it was never touched.
///
/// # Panics
/// There is no such metric, it has other labels, or a label never has this value: its 0 would say nothing.
#[track_caller]
pub fn value(text: &str, name: &str) -> f64 {
    assert_exists(name);
    let values = text.lines().filter_map(|line| line.rsplit_once(' '));
    values
        .filter(|(found, _)| *found == name)
        .filter_map(|(_, value)| value.parse::<f64>().ok())
        .sum()
}

/// A metric of this name may have these labels.
#[track_caller]
pub fn assert_exists(name: &str) {
    let (metric, labels) = name.split_once('{').unwrap_or((name, ""));
    let labels = labels.strip_suffix("\"}").unwrap_or(labels);
    let pairs = labels
        .split("\",")
        .filter_map(|pair| pair.split_once("=\""));
    let pairs: Vec<(&str, &str)> = pairs.collect();
    assert!(
        labels.is_empty() || !pairs.is_empty(),
        "`{name}` is malformed"
    );
    let names: Vec<&str> = pairs.iter().map(|(label, _)| *label).collect();
    let head = format!("{metric}{{{}}} ", names.join(","));
    assert!(
        SNAPSHOT.lines().any(|line| line.starts_with(&head)),
        "there is no metric `{head}`"
    );
    for (label, value) in pairs {
        let closed = CLOSED
            .iter()
            .find(|(of, named, _)| (*of, *named) == (metric, label));
        let Some((_, _, sources)) = closed else {
            continue;
        };
        let literal = format!("\"{value}\"");
        let is_named = sources.iter().any(|source| source.contains(&literal));
        assert!(is_named, "`{metric}` never has the {label} `{value}`");
    }
}
