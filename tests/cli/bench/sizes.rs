//! Costs by the size of the table: rows that the server reads.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{measure, number, rows};
use crate::support::program::{lapsed, said};

/// What reads a part of the table, up to a limit that these tables may not reach: of rows, of index entries or of time.
const LIMITED: [&str; 9] = [
    "counts of the dashboard",
    "gauges of the daemon",
    "list dead with an error",
    "list dead with an error that none has",
    "list running",
    "list waiting",
    "look-ahead, rows that are known",
    "stats of the command line",
    "tasks ahead, of the dashboard",
];

/// Rows that one page of a list or of a sweep reads more, if the smaller table had fewer tasks of that state.
const PAGE: f64 = 1_000.0;

/// What an operation read for a call.
#[derive(Debug, Clone, Copy)]
struct Read {
    rows: f64,
    /// At least one call ended at its limit of time.
    timed_out: bool,
}

/// What each operation read, the small table first.
fn reads(document: &Value) -> BTreeMap<String, Vec<Read>> {
    let mut read: BTreeMap<String, Vec<Read>> = BTreeMap::new();
    for row in rows(document) {
        let label = row["label"].as_str().expect("a label");
        if label.ends_with("extrapolated") || row["rows_read"].is_null() {
            continue;
        }
        let (operation, _) = label
            .rsplit_once(", ")
            .expect("an operation and a size in each label");
        let of_operation = read.entry(operation.to_owned()).or_default();
        of_operation.push(Read {
            rows: number(row, "rows_read"),
            timed_out: number(row, "timed_out") > 0.0,
        });
    }
    read
}

#[test]
fn what_is_read_does_not_grow_with_the_table() {
    let plot = tempfile::NamedTempFile::new().unwrap();
    let file = plot.path().to_str().unwrap();
    let document = measure(&format!(
        "sizes --sizes 60k,180k --calls 2 --rest 0s --plot {file}"
    ));
    let read = reads(&document);
    let both: Vec<(&str, Read, Read)> = read
        .iter()
        .filter_map(|(operation, read)| match read[..] {
            [small, large] => Some((operation.as_str(), small, large)),
            _ => None,
        })
        .collect();
    assert!(both.len() >= 45, "{both:?}");
    for (operation, small, large) in &both {
        let is_limited = large.timed_out || LIMITED.contains(operation);
        assert!(
            is_limited || large.rows <= small.rows * 1.2 + PAGE,
            "`{operation}` read {small:?} of the small table and {large:?} of the large one"
        );
    }
    // A search that no index has is seen in the figures. A slow machine ends it at its limit of time.
    let (_, small, large) = both
        .iter()
        .find(|(operation, ..)| *operation == "list waiting")
        .expect("`list waiting` in both sizes");
    assert!(large.rows > 10.0 * PAGE, "{large:?}");
    assert!(
        small.timed_out || small.rows > 30_000.0,
        "{small:?} {large:?}"
    );
    assert!(
        large.timed_out || large.rows > small.rows * 2.0,
        "{small:?} {large:?}"
    );

    let labels: Vec<&str> = rows(&document)
        .iter()
        .filter_map(|row| row["label"].as_str())
        .collect();
    assert!(labels.contains(&"list dead, 183,000 rows"), "{labels:?}");
    assert!(labels.contains(&"page /, 61,000 rows"), "{labels:?}");
    let far = "list dead, 100,000,000 rows, extrapolated";
    assert!(labels.contains(&far), "{labels:?}");
    let svg = std::fs::read_to_string(file).unwrap();
    assert!(svg.contains("stroke-dasharray"), "{svg}");
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}

#[test]
fn sizes_need_a_server_and_an_order() {
    for (arguments, problem) in [
        ("bench sizes --embedded", "loads a table on a server"),
        ("bench sizes --sizes 3k,2k", "not ascending"),
        ("bench sizes --sizes 7", "expected a number"),
    ] {
        let output = lapsed().args(arguments.split(' ')).output().unwrap();
        let (code, _, errors) = said(output);
        assert_eq!(code, 2, "{arguments}: {errors}");
        assert!(errors.contains(problem), "{arguments}: {errors}");
    }
}
