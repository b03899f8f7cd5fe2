//! A finding: what a check or a condition says.

use serde::Serialize;

/// What one check has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Id of the check: the subject and, after the dot, the aspect.
    pub check: &'static str,
    /// Severity.
    pub severity: Severity,
    /// What was found, in one line.
    pub found: String,
    /// Remedy, in one line.
    pub remedy: Option<String>,
}

/// How much a finding or a condition matters, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// No problem.
    Ok,
    /// For information, or the check was not possible.
    Note,
    /// Something is not as it should be, or will not stay so: look at it today.
    Warning,
    /// Tasks do not start, or start very late: act now.
    Error,
}

impl Finding {
    /// Creates a finding without a remedy. Text of several lines becomes one line.
    pub fn new(check: &'static str, severity: Severity, found: impl AsRef<str>) -> Self {
        Self {
            check,
            severity,
            found: one_line(found.as_ref()),
            remedy: None,
        }
    }

    /// Creates a finding of [`Severity::Ok`].
    pub fn ok(check: &'static str, found: impl AsRef<str>) -> Self {
        Self::new(check, Severity::Ok, found)
    }

    /// Creates a finding of [`Severity::Note`].
    pub fn note(check: &'static str, found: impl AsRef<str>) -> Self {
        Self::new(check, Severity::Note, found)
    }

    /// Creates a finding of [`Severity::Warning`].
    pub fn warning(check: &'static str, found: impl AsRef<str>) -> Self {
        Self::new(check, Severity::Warning, found)
    }

    /// Creates a finding of [`Severity::Error`].
    pub fn error(check: &'static str, found: impl AsRef<str>) -> Self {
        Self::new(check, Severity::Error, found)
    }

    /// Creates a note that the check was not possible, and why.
    pub fn unknown(check: &'static str, why: impl AsRef<str>) -> Self {
        Self::note(check, format!("could not be checked: {}", why.as_ref()))
    }

    /// Adds a remedy.
    #[must_use]
    pub fn remedy(mut self, remedy: impl AsRef<str>) -> Self {
        self.remedy = Some(one_line(remedy.as_ref()));
        self
    }
}

impl Severity {
    /// Its name in the report.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "ERROR",
        }
    }
}

/// Makes one line of a server's text, without control characters that a terminal would execute.
fn one_line(text: &str) -> String {
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    text.trim().trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_text_becomes_one_line_without_control_characters() {
        let finding = Finding::ok("x", " refused:\r\n\u{1b}[2Jgo away. ").remedy("do\nit.");
        assert_eq!(finding.found, "refused:   [2Jgo away");
        assert_eq!(finding.remedy.as_deref(), Some("do it"));
    }
}
