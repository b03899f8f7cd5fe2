//! What the unit tests of the checks assert.

use lapsed::diagnosis::{Finding, Severity};

/// Asserts severity and text, and that every bad finding has a remedy.
#[track_caller]
pub fn assert_is(finding: &Finding, severity: Severity, part: &str) {
    assert_eq!(finding.severity, severity, "{finding:?}");
    assert!(finding.found.contains(part), "{finding:?}");
    let bad = severity >= Severity::Warning;
    assert!(!bad || finding.remedy.is_some(), "{finding:?}");
}
