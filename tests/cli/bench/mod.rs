//! `lapsed bench`, as a program, on small numbers and real servers.

mod configured_servers;
mod lateness;
mod scenarios;
mod sizes;

use std::process::Output;

use serde_json::Value;

use crate::support::program::{lapsed, said};

/// The one JSON document on standard output.
fn document(output: Output) -> Value {
    let (code, data, errors) = said(output);
    assert_eq!(code, 0, "{errors}");
    assert_eq!(errors, "", "without a terminal nothing but data is said");
    serde_json::from_str(&data).expect("one JSON document")
}

pub fn measure(arguments: &str) -> Value {
    measure_on("--private", arguments)
}

fn measure_on(place: &str, arguments: &str) -> Value {
    let mut words = vec!["bench"];
    words.extend(arguments.split_whitespace());
    words.extend([place, "--json"]);
    document(lapsed().args(words).output().unwrap())
}

fn rows(document: &Value) -> &Vec<Value> {
    document["rows"].as_array().expect("rows")
}

/// Every task ran once, and none early.
fn is_exact(row: &Value) -> bool {
    ["early", "lost", "duplicates", "unsettled"]
        .iter()
        .all(|name| row[name] == 0)
}

pub fn number(row: &Value, name: &str) -> f64 {
    row[name]
        .as_f64()
        .unwrap_or_else(|| panic!("`{name}` is no number in {row}"))
}
