//! Secrets: texts that redact themselves, such as tokens and URLs with passwords.

use std::fmt;
use std::path::Path;

/// A text that is redacted wherever it is shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Reads the secrets of a file, one per line; empty lines are skipped.
    pub fn lines_of(file: &Path) -> std::io::Result<Vec<String>> {
        let text = std::fs::read_to_string(file)?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        Ok(lines.map(str::to_owned).collect())
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<&String> for Secret {
    fn from(text: &String) -> Self {
        Self(text.clone())
    }
}

impl From<&Secret> for Secret {
    fn from(secret: &Secret) -> Self {
        secret.clone()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Secret {
    /// Shows a URL without its password, and nothing of any other text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((scheme, rest)) = self.0.split_once("://") else {
            return f.write_str("[redacted]");
        };
        match rest.rsplit_once('@') {
            Some((user_info, host)) => {
                let user = user_info.split(':').next().unwrap_or_default();
                write!(f, "{scheme}://{user}:[redacted]@{}", without_password(host))
            }
            None => write!(f, "{scheme}://{}", without_password(rest)),
        }
    }
}

/// A Unix socket URL has its password in the query: `unix:///path?pass=x`.
fn without_password(rest: &str) -> String {
    match rest.split_once('?') {
        Some((path, query)) if query.contains("pass") => format!("{path}?[redacted]"),
        _ => rest.to_owned(),
    }
}
