//! Notes about what a test could not try on this machine.

use std::io::Write as _;

/// Says what a test could not try on this machine: on standard error, which is not captured, and in the file that
/// `make test` prints at its end.
pub fn not_tried(test: &str, what: &str) {
    let line = format!("NOT TRIED: {test}: {what}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("LAPSED_TEST_NOT_TRIED") {
        let notes = std::fs::OpenOptions::new().append(true).open(path);
        notes.unwrap().write_all(line.as_bytes()).unwrap();
    }
}
