//! Configuration files.

use lapsed_core::config::{Config, ConfigError, Problem};

use crate::refusal;

/// Longest file that is tried: each problem of a file is one error.
const BYTES_MAX: usize = 16 * 1024;

pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    if text.len() > BYTES_MAX || names_a_file(text) {
        return;
    }
    let read = Config::from_toml(text);
    let again = Config::from_toml(&format!("# A comment changes nothing.\n{text}"));
    match (&read, &again) {
        (Ok(read), Ok(again)) => assert_eq!(format!("{read:?}"), format!("{again:?}")),
        (Err(read), Err(again)) => assert_eq!(paths(read), paths(again)),
        _ => panic!("the same file is read twice: {read:?}, {again:?}"),
    }
    let Err(error) = read else {
        return;
    };
    assert!(!error.problems.is_empty());
    for Problem { path, message } in &error.problems {
        assert!(!message.is_empty(), "`{path}`");
        refusal::check_length(message);
    }
}

fn paths(error: &ConfigError) -> Vec<&str> {
    let paths = error.problems.iter().map(|problem| problem.path.as_str());
    paths.collect()
}

/// Settings that name a file have the reader open it.
fn names_a_file(text: &str) -> bool {
    text.contains("_file") || text.contains("tls")
}
