//! The rule for the name of the ledger's table.

use std::fmt;
use std::str::FromStr;

/// `<table>_duplicates` must fit into the 64 characters of an identifier.
const CHARS_MAX: usize = 55;

/// Name of the ledger's table, safe to write into a statement between backticks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TableName(String);

/// The error for an invalid table name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("table name `{name}` is not usable: expected 1 to 55 of the characters `A-Z a-z 0-9 _`")]
pub struct TableNameError {
    /// The refused name.
    pub name: String,
}

impl TableName {
    /// Checks a name.
    ///
    /// # Errors
    /// Returns [`TableNameError`] unless the name has 1 to 55 characters `A-Z a-z 0-9 _`.
    pub fn new(name: impl Into<String>) -> Result<Self, TableNameError> {
        let name = name.into();
        let is_word = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if is_word && (1..=CHARS_MAX).contains(&name.len()) {
            Ok(Self(name))
        } else {
            Err(TableNameError { name })
        }
    }

    /// Returns the name, without backticks.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Name of the table that holds the pauses.
    #[must_use]
    pub fn pauses(&self) -> String {
        format!("{}_pauses", self.0)
    }

    /// Name of the table that counts starts for rate limits.
    #[must_use]
    pub fn rates(&self) -> String {
        format!("{}_rates", self.0)
    }

    /// Name of the table that holds documents.
    #[must_use]
    pub fn documents(&self) -> String {
        format!("{}_documents", self.0)
    }

    /// Name of the table that holds archived tasks.
    #[must_use]
    pub fn archive(&self) -> Self {
        Self(format!("{}_archive", self.0))
    }

    /// Name of the table that keeps the surplus rows of duplicated keys.
    #[must_use]
    pub fn duplicates(&self) -> String {
        format!("{}_duplicates", self.0)
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for TableName {
    type Err = TableNameError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::new(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_name_is_a_short_word() {
        for good in ["t", "tb_time_limit_task", "A1", &"x".repeat(55)] {
            assert!(TableName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "a-b", "a`b", "a.b", "任務", &"x".repeat(56)] {
            assert_eq!(
                TableName::new(bad).expect_err(bad).to_string(),
                format!(
                    "table name `{bad}` is not usable: expected 1 to 55 of the characters `A-Z a-z 0-9 _`"
                )
            );
        }
    }

    #[test]
    fn tables_beside_it_have_its_name_first() {
        let table = TableName::new("t").unwrap();
        let beside = [
            table.pauses(),
            table.rates(),
            table.documents(),
            table.archive().to_string(),
            table.duplicates(),
        ];
        let expected = ["pauses", "rates", "documents", "archive", "duplicates"];
        assert_eq!(beside, expected.map(|name| format!("t_{name}")));
    }
}
