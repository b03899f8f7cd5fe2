use std::fmt;

use serde::Serialize;

use lapsed::diagnosis::{Finding, Severity};

/// Report of all findings. Its `Display` is the output of `lapsed doctor`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// In the order of the checks.
    pub findings: Vec<Finding>,
}

impl Report {
    /// The worst severity of all findings.
    pub fn worst(&self) -> Severity {
        let severities = self.findings.iter().map(|finding| finding.severity);
        severities.max().unwrap_or(Severity::Ok)
    }
}

impl FromIterator<Finding> for Report {
    fn from_iter<I: IntoIterator<Item = Finding>>(findings: I) -> Self {
        Self {
            findings: findings.into_iter().collect(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checks = self.findings.iter().map(|finding| finding.check.len());
        let width = checks.max().unwrap_or(0);
        for Finding {
            check,
            severity,
            found,
            remedy,
        } in &self.findings
        {
            writeln!(f, "{:7}  {check:width$}  {found}", severity.as_str())?;
            if let Some(remedy) = remedy {
                writeln!(f, "{:7}  {:width$}  -> {remedy}", "", "")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_in_columns_and_is_as_bad_as_its_worst_finding() {
        let report: Report = [
            Finding::ok("redis.role", "master"),
            Finding::error("ledger.table", "table `t` does not exist")
                .remedy("run `lapsed migrate`"),
            Finding::warning("clocks", "apart"),
        ]
        .into_iter()
        .collect();
        assert_eq!(report.worst(), Severity::Error);
        assert_eq!(
            report.to_string(),
            "ok       redis.role    master\n\
             ERROR    ledger.table  table `t` does not exist\n                       -> run `lapsed migrate`\n\
             warning  clocks        apart\n"
        );
        assert_eq!(Report::default().worst(), Severity::Ok);
        assert_eq!(
            serde_json::to_value(&report.findings[0]).unwrap(),
            serde_json::json!({"check": "redis.role", "severity": "ok", "found": "master", "remedy": null})
        );
    }
}
