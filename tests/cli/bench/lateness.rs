//! Measurements of lateness.

use serde_json::Value;

use super::{is_exact, measure, number, rows};

#[test]
fn a_lateness_run_has_a_sample_for_each_task_that_fell_due() {
    let document = measure("lateness --pending 200 --rate 50 --warm-up 1s --duration 2s");
    let [row] = rows(&document).as_slice() else {
        panic!("{document}");
    };
    assert_eq!(row["samples"], 100);
    assert!(is_exact(row), "{row}");
    let percentiles = ["p50_ms", "p90_ms", "p99_ms", "p99.9_ms", "max_ms"];
    let percentiles = percentiles.map(|name| number(row, name));
    assert!(percentiles.is_sorted() && percentiles[0] > 0.0, "{row}");
    for cost in [
        "daemon_rss_mb",
        "redis_rss_mb",
        "database_rss_mb",
        "sql_per_task",
        "syncs_per_task",
        "log_bytes_per_task",
    ] {
        assert!(number(row, cost) > 0.0, "{row}");
    }
    // One `PTTL` for each task is what punctuality costs.
    assert!(number(row, "redis_per_task") >= 0.9, "{row}");
    assert_eq!(document["options"]["rate"], 50);
}

#[test]
fn lateness_reports_each_signal_source_and_counts_tasks_that_did_not_start() {
    let plot = tempfile::NamedTempFile::new().unwrap();
    let file = plot.path().to_str().unwrap();
    let document = measure(&format!(
        "lateness --pending 20000 --rate 60 --warm-up 1s --duration 2s --nets event,nudge,sweep,all --plot {file}"
    ));
    let rows = rows(&document);
    let labels: Vec<&str> = rows
        .iter()
        .filter_map(|row| row["label"].as_str())
        .collect();
    assert_eq!(labels, ["event", "nudge", "sweep", "all"]);
    let [event, nudge, sweep, all] = rows.as_slice() else {
        panic!("{document}");
    };
    for row in [nudge, sweep, all] {
        assert!(is_exact(row), "{row}");
    }
    // Redis alone gets round to 20,000 keys in a minute or so, the sweep to what is half a second overdue.
    assert!(number(event, "lost") > 0.0, "{event}");
    assert_eq!(event["max_ms"], Value::Null);
    assert!(number(sweep, "p50_ms") > 400.0, "{sweep}");
    // A nudge asks Redis for each key.
    let asked = |row| number(row, "redis_per_task");
    assert!(asked(nudge) >= 0.9 && asked(all) >= 0.9, "{document}");
    assert_well_formed(&std::fs::read_to_string(file).unwrap(), 4);
}

#[test]
fn the_sweep_alone_does_not_ask_redis_for_each_key() {
    // The audit of the start asks for each pending key, maybe within the measurement. What the daemon asks each second is
    // little beside so many tasks.
    let document =
        measure("lateness --pending 10 --rate 300 --warm-up 1s --duration 2s --nets sweep");
    let row = &rows(&document)[0];
    assert!(is_exact(row), "{row}");
    assert!(number(row, "redis_per_task") < 0.5, "{row}");
}

/// Every element that is opened is closed in its turn, and this is the number of curves.
fn assert_well_formed(svg: &str, curves: usize) {
    let mut open = Vec::new();
    for element in svg.split('<').skip(1) {
        let (tag, _) = element.split_once('>').expect("every tag ends");
        let name = tag.split_whitespace().next().expect("every tag has a name");
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "{svg}"),
            None if tag.ends_with('/') => assert_eq!(tag.matches('"').count() % 2, 0, "{tag}"),
            None => open.push(name),
        }
    }
    assert_eq!(open, [""; 0], "{svg}");
    assert_eq!(svg.matches("<polyline").count(), curves, "{svg}");
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}

#[test]
fn tasks_start_while_redis_is_down() {
    let document =
        measure("lateness --pending 100 --rate 20 --warm-up 1s --duration 2s --redis-down");
    let row = &rows(&document)[0];
    assert!(is_exact(row), "{row}");
    assert_eq!(row["samples"], 40);
    assert_eq!(row["redis_per_task"], Value::Null);
}

#[test]
fn lateness_reports_an_audit_that_runs_at_the_same_time() {
    let document =
        measure("lateness --audit --pending 20000 --rate 50 --warm-up 100ms --duration 60s");
    let row = &rows(&document)[0];
    assert!(is_exact(row), "{row}");
    assert!(number(row, "audit_s") > 0.0, "{row}");
    // Only what fell due before it was over.
    assert!(number(row, "samples") < 3_000.0, "{row}");
}
