//! Pages that explain errors have a row for each reason of a dead task, and for each cause that `lapsed why` says.

use std::collections::BTreeSet;
use std::path::Path;

use lapsed::task::Reason;
use regex::Regex;

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The words in backticks in the first column of the first table below a heading.
fn first_column(page: &str, heading: &str) -> BTreeSet<String> {
    let text = read(page);
    let (_, below) = text.split_once(&format!("\n## {heading}\n")).unwrap();
    let rows = below
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let words = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    words.map(str::to_owned).collect()
}

#[test]
fn each_reason_of_a_dead_task_is_explained() {
    let reasons = Reason::ALL.map(|reason| reason.as_str().to_owned());
    let explained = first_column("docs/retries-and-dead-letters.md", "Dead letters");
    assert_eq!(explained, BTreeSet::from(reasons));
}

#[test]
fn each_cause_of_why_is_explained() {
    let source = read("src/diagnosis/why/words.rs");
    let causes = Regex::new(r#"=> (?:\{\s*)?\("([a-z_]+)", (?:true|false),"#).unwrap();
    let causes = causes
        .captures_iter(&source)
        .map(|cause| cause[1].to_owned());
    let explained = first_column("docs/troubleshooting.md", "`why` says");
    assert_eq!(explained, causes.collect());
}
