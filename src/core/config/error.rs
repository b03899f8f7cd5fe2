//! Configuration errors: all problems of a configuration in one value.

use std::fmt;
use std::path::Path;

/// One problem of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Path of the key, or name of the environment variable; empty for the file as a whole.
    pub path: String,
    /// What was found and what was expected.
    pub message: String,
}

/// All problems of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// At least one.
    pub problems: Vec<Problem>,
}

impl ConfigError {
    /// One problem at this path.
    pub fn one(path: &str, message: String) -> Self {
        Self {
            problems: vec![Problem {
                path: path.to_owned(),
                message,
            }],
        }
    }
}

impl ConfigError {
    /// Adds the file name to problems of the file as a whole.
    pub(super) fn in_file(mut self, file: &Path) -> Self {
        for problem in &mut self.problems {
            if problem.path.is_empty() {
                problem.message = format!("`{}`: {}", file.display(), problem.message);
            }
        }
        self
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Problem { path, message }) in self.problems.iter().enumerate() {
            let line_break = if index == 0 { "" } else { "\n" };
            match path.as_str() {
                "" => write!(f, "{line_break}{message}")?,
                path => write!(f, "{line_break}`{path}`: {message}")?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
