//! Each measurement besides that of lateness, and refused usage.

use serde_json::Value;

use super::{is_exact, measure, measure_on, number, rows};
use crate::support::program::{lapsed, said};

#[test]
fn a_private_file_is_measured_without_servers() {
    let burst = measure_on("--embedded", "burst --pending 100 --tasks 500");
    let [row] = rows(&burst).as_slice() else {
        panic!("{burst}");
    };
    assert_eq!(row["samples"], 500);
    assert!(is_exact(row), "{row}");
    assert!(number(row, "daemon_rss_mb") > 0.0, "{row}");
    for unknown in [
        "database_rss_mb",
        "sql_per_task",
        "redis_per_task",
        "syncs_per_task",
    ] {
        assert_eq!(row[unknown], Value::Null, "{row}");
    }
    let killed = measure_on("--embedded", "kill --pending 0 --tasks 200 --takes 50ms");
    assert_eq!(rows(&killed)[0]["undone"], 0, "{killed}");
    let refused = lapsed().args(["bench", "adopt", "--embedded"]).output();
    let (code, _, errors) = said(refused.unwrap());
    assert_eq!(code, 2, "{errors}");
    assert!(errors.contains("without Redis"), "{errors}");
}

#[test]
fn pull_workers_get_each_task_once_while_others_wait() {
    let arguments = "pull --pending 100 --rate 50 --warm-up 1s --duration 1s --tasks 200 --workers 4 --waiting 20 --idle 10";
    let document = measure_on("--embedded", arguments);
    let [waiting, steady, burst] = rows(&document).as_slice() else {
        panic!("{document}");
    };
    assert_eq!(waiting["waiting_workers"], 20);
    assert_eq!(waiting["idle_connections"], 10);
    assert!(number(waiting, "daemon_rss_mb") > 0.0, "{waiting}");
    for (row, samples) in [(steady, 50), (burst, 200)] {
        assert_eq!(row["samples"], samples, "{row}");
        assert!(is_exact(row), "{row}");
    }
    assert!(number(burst, "tasks_per_s") > 0.0, "{burst}");
}

#[test]
fn http_is_measured_request_by_request_and_page_by_page() {
    let arguments = "http --pending 300 --dead 40 --rate 50 --duration 1s --connections 4 --loads 2 --followers 5 --tasks 300 --pairs 1";
    let document = measure_on("--embedded", arguments);
    let [reading, creating, pages @ .., alone, followed] = rows(&document).as_slice() else {
        panic!("{document}");
    };
    assert_eq!(reading["samples"], 50);
    assert!(number(creating, "created_per_s") > 0.0, "{creating}");
    for page in pages {
        assert_eq!(page["failed_panels"], 0, "{page}");
        assert!(
            number(page, "html_kb") > number(page, "html_gzip_kb"),
            "{page}"
        );
        let with_assets = number(page, "with_assets_gzip_kb");
        assert!(with_assets > number(page, "html_gzip_kb"), "{page}");
    }
    let labels: Vec<&str> = pages
        .iter()
        .filter_map(|page| page["label"].as_str())
        .collect();
    assert!(labels.contains(&"/dead"), "{labels:?}");
    for (row, followers) in [(alone, 0), (followed, 5)] {
        assert_eq!(row["followers"], followers, "{row}");
        assert_eq!((&row["lost"], &row["duplicates"]), (&0.into(), &0.into()));
    }
    assert_eq!(alone["hint_bytes"], 0);
    assert!(number(followed, "hint_bytes") > 0.0, "{followed}");
}

#[test]
fn every_bare_key_runs_and_is_counted() {
    let document = measure("adopt --rate 500 --duration 2s --ttl 1s");
    let row = &rows(&document)[0];
    assert_eq!(
        (&row["written"], &row["lost"], &row["duplicates"]),
        (&1_000.into(), &0.into(), &0.into()),
        "{row}"
    );
    assert_eq!(row["samples"], 1_000);
}

#[test]
fn throughput_reports_whether_the_rate_was_sustained() {
    let document = measure(
        "throughput --pending 0 --rate 200 --warm-up 500ms --duration 1s --daemons 2 --runs 2",
    );
    assert_eq!(rows(&document).len(), 2);
    let median = &document["medians"][0];
    assert!(is_exact(median), "{median}");
    assert_eq!(median["offered_per_s"], 200.0);
    // Held in all runs, if none was a second behind.
    let behind = rows(&document)
        .iter()
        .any(|row| number(row, "backlog_s") >= 1.0);
    assert_eq!(median["held"], !behind, "{document}");
}

#[test]
fn burst_reports_when_all_tasks_have_started_and_when_all_are_settled() {
    let document = measure("burst --pending 0 --tasks 500");
    let row = &rows(&document)[0];
    assert!(is_exact(row), "{row}");
    assert_eq!(row["samples"], 500);
    let started = number(row, "all_started_ms");
    assert!((number(row, "max_ms") - started).abs() <= 1.0, "{row}");
    // The time of the statement that settled the last of them, by a clock of milliseconds.
    assert!(number(row, "all_settled_ms") >= started - 1.0, "{row}");
}

#[test]
fn fairness_measures_one_class_while_another_runs() {
    let document = measure("fairness --tasks 300 --takes 50ms --warm-up 500ms --duration 2s");
    let row = &rows(&document)[0];
    assert!(is_exact(row), "{row}");
    assert_eq!(
        (&row["samples"], &row["slow_done"]),
        (&400.into(), &300.into())
    );
}

#[test]
fn pending_tasks_are_written_before_the_measurement() {
    let steady = "fairness --tasks 0 --blocked 300 --warm-up 500ms --duration 1s";
    let measured = measure_on("--embedded", steady);
    let row = &rows(&measured)[0];
    assert!(is_exact(row), "{row}");
    assert_eq!(row["samples"], 200, "{row}");
    let overdue = "recovery --tasks 200 --duration 5s --blocked 300 --blocked-by no-route";
    let measured = measure_on("--embedded", overdue);
    let row = &rows(&measured)[0];
    assert!(is_exact(row), "{row}");
    assert_eq!(row["drained"], 200, "{row}");
    let after = number(row, "drained_after_s");
    assert!(after >= number(row, "drained_in_s"), "{row}");
}

#[test]
fn enqueue_reports_the_rates_of_three_methods() {
    let document = measure("enqueue --pending 0 --no-daemon --duration 500ms --creators 4");
    let rows = rows(&document);
    let labels: Vec<&str> = rows
        .iter()
        .filter_map(|row| row["label"].as_str())
        .collect();
    assert_eq!(labels, ["one by one", "concurrent", "bulk"]);
    for row in rows {
        assert!(number(row, "rows_per_s") > 0.0, "{row}");
        assert_eq!(
            row["rows_per_s"], row["keys_per_s"],
            "each row has its key: {row}"
        );
    }
}

#[test]
fn cancel_by_tag_cancels_every_task() {
    let document = measure("cancel --pending 2000 --tasks 3000 --rest 0s");
    let row = &rows(&document)[0];
    assert_eq!(row["cancelled"], 3_000, "{row}");
    assert!(number(row, "cancelled_per_s") > 0.0, "{row}");
}

#[test]
fn recovery_completes_every_task_of_a_killed_daemon() {
    let document = measure("kill --tasks 1000 --takes 50ms");
    let row = &rows(&document)[0];
    assert_eq!(row["undone"], 0, "{row}");
    assert!(number(row, "leased_at_death") > 0.0, "{row}");
    assert!(number(row, "done_before") >= 500.0, "{row}");
}

#[test]
fn recovery_reports_the_backlog_apart_from_tasks_that_fall_due_later() {
    let document = measure("recovery --tasks 20000 --rate 50 --duration 90s");
    let row = &rows(&document)[0];
    assert!(is_exact(row), "{row}");
    assert_eq!(
        (&row["drained"], &row["undrained"]),
        (&20_000.into(), &0.into())
    );
    assert!(number(row, "drained_per_s") > 0.0, "{row}");
    let beside = number(row, "samples");
    assert!(beside > 0.0 && beside < 4_500.0, "{row}");
}

#[test]
fn one_daemon_and_several_take_turns() {
    let document = measure("daemons --pending 0 --tasks 300 --pairs 2");
    let rows = rows(&document);
    let labels: Vec<&str> = rows
        .iter()
        .filter_map(|row| row["label"].as_str())
        .collect();
    assert_eq!(labels, ["1 of 2", "2 of 2", "2 of 2", "1 of 2"]);
    assert!(rows.iter().all(is_exact), "{document}");
    for ratio in [
        "tasks_per_s",
        "cpu_per_task",
        "sql_per_task",
        "events_per_task",
    ] {
        let name = format!("{ratio}_ratio_median");
        assert!(number(&document["summary"], &name) > 0.0, "{name}");
    }
    // Armed and expired.
    let events = rows.iter().map(|row| number(row, "redis_events_per_task"));
    assert!(events.clone().all(|events| events > 1.9), "{document}");
}

#[test]
fn wrong_usage_is_refused_with_its_reason() {
    let wrong = [
        ("lateness --rate 0", "expected tasks per second"),
        ("lateness --redis-down", "--private"),
        ("lateness --nets sweep", "`--nets nudge` and `--nets sweep`"),
        (
            "lateness --nets all,none",
            "[possible values: event, nudge, sweep, all]",
        ),
        ("lateness --duration 60", "a duration with a unit"),
        ("throughput --duration 2h", "at most 1h"),
        (
            "throughput --rate 1000000 --duration 1h",
            "more than 3000000000 tasks",
        ),
        ("burst --tasks 0", "0 is not in 1..="),
        ("idle --tcp", "--private"),
    ];
    for (arguments, reason) in wrong {
        let mut words = vec!["bench"];
        words.extend(arguments.split(' '));
        let (code, _, errors) = said(lapsed().args(words).output().unwrap());
        assert_eq!(code, 2, "{arguments}: {errors}");
        assert!(errors.contains(reason), "{arguments}: {errors}");
    }
}

#[test]
fn a_comparison_has_a_row_for_each_timer_and_loses_nothing() {
    let document = measure(
        "compare --timers sorted_set,ledger_poll --pending 500 --rate 20 --duration 1s --burst 100",
    );
    let [set, poll] = rows(&document).as_slice() else {
        panic!("{document}");
    };
    assert_eq!(
        (&set["label"], &poll["label"]),
        (&"sorted_set".into(), &"ledger_poll".into())
    );
    for row in [set, poll] {
        for name in [
            "early",
            "lost",
            "duplicates",
            "burst_lost",
            "burst_duplicates",
        ] {
            assert_eq!(row[name], 0, "{row}");
        }
        for name in [
            "p99_ms",
            "due_now_p99_ms",
            "burst_settled_ms",
            "sql_per_task",
        ] {
            assert!(number(row, name) > 0.0, "{row}");
        }
    }
    assert!(number(set, "redis_bytes_per_task") > 0.0, "{set}");
    assert_eq!(poll["redis_bytes_per_task"], Value::Null, "{poll}");
}
