use serde::Serialize;

/// What one check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check: what it is about and, behind the dot, what of it.
    pub check: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What is the case, in one line.
    pub found: String,
    /// What a person can do about it, in one line.
    pub remedy: Option<String>,
}

/// How bad a finding is, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Worth knowing, or could not be checked.
    Note,
    /// Works, but badly, or not for ever.
    Warning,
    /// Does not work.
    Error,
}

impl Finding {
    pub(super) fn new(check: &'static str, severity: Severity, found: impl AsRef<str>) -> Self {
        Self {
            check,
            severity,
            found: one_line(found.as_ref()),
            remedy: None,
        }
    }

    pub(super) fn ok(check: &'static str, found: impl AsRef<str>) -> Self {
        Self::new(check, Severity::Ok, found)
    }

    pub(super) fn note(check: &'static str, found: impl AsRef<str>) -> Self {
        Self::new(check, Severity::Note, found)
    }

    pub(super) fn warning(check: &'static str, found: impl AsRef<str>) -> Self {
        Self::new(check, Severity::Warning, found)
    }

    pub(super) fn error(check: &'static str, found: impl AsRef<str>) -> Self {
        Self::new(check, Severity::Error, found)
    }

    pub(super) fn unknown(check: &'static str, why: impl AsRef<str>) -> Self {
        Self::note(check, format!("could not be checked: {}", why.as_ref()))
    }

    pub(super) fn remedy(mut self, remedy: impl AsRef<str>) -> Self {
        self.remedy = Some(one_line(remedy.as_ref()));
        self
    }
}

impl Severity {
    /// The word for it, as people read it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "ERROR",
        }
    }
}

/// Servers put line breaks and full stops into what they say; a terminal must not obey what is in it.
fn one_line(text: &str) -> String {
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    text.trim().trim_end_matches('.').to_owned()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Whoever finds something bad says what to do about it.
    #[track_caller]
    pub(in crate::doctor) fn assert_is(finding: &Finding, severity: Severity, part: &str) {
        assert_eq!(finding.severity, severity, "{finding:?}");
        assert!(finding.found.contains(part), "{finding:?}");
        let bad = severity >= Severity::Warning;
        assert!(!bad || finding.remedy.is_some(), "{finding:?}");
    }

    #[test]
    fn what_a_server_says_becomes_one_line_that_commands_no_terminal() {
        let finding = Finding::ok("x", " refused:\r\n\u{1b}[2Jgo away. ").remedy("do\nit.");
        assert_eq!(finding.found, "refused:   [2Jgo away");
        assert_eq!(finding.remedy.as_deref(), Some("do it"));
    }
}
