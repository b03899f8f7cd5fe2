use std::fmt;
use std::str::FromStr;

use super::MigrateError;

/// `<table>_duplicates` must fit into the 64 characters of an identifier.
const LONGEST: usize = 55;

/// The name of the ledger's table: safe to write into a statement between backticks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Table(String);

impl Table {
    /// # Errors
    /// When the name is not 1 to 55 of the characters `A-Z a-z 0-9 _`.
    pub fn new(name: impl Into<String>) -> Result<Self, MigrateError> {
        let name = name.into();
        let is_word = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if is_word && (1..=LONGEST).contains(&name.len()) {
            Ok(Self(name))
        } else {
            Err(MigrateError::Name { name })
        }
    }

    /// The name, as it may stand between backticks.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Where it is kept what is paused.
    pub(super) fn pauses(&self) -> String {
        format!("{}_pauses", self.0)
    }

    /// Where it is kept how often tasks may start.
    pub(super) fn rates(&self) -> String {
        format!("{}_rates", self.0)
    }

    /// Where the surplus rows of duplicated keys are kept.
    pub(super) fn duplicates(&self) -> String {
        format!("{}_duplicates", self.0)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Table {
    type Err = MigrateError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::new(name)
    }
}
