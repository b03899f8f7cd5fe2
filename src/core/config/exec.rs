//! Target `exec`: a program, its arguments, its directory and its environment.

use std::path::PathBuf;

/// `exec = [..]` and the keys beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecConfig {
    /// Program to start.
    pub program: String,
    /// Its arguments.
    pub args: Vec<ExecArg>,
    /// Whether an argument of a task may begin with `-`.
    pub allow_dash: bool,
    /// Whether its stdout is kept as the result of the task.
    pub keep_result: bool,
    /// Names of environment variables that it inherits.
    pub env: Vec<String>,
    /// The directory in which it starts, an absolute path. `None`: that of the daemon. A relative path of the program counts
    /// from here.
    pub cwd: Option<PathBuf>,
}

/// An argument of a program: a placeholder or plain text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecArg {
    /// `{key}`
    Key,
    /// `{class}`
    Class,
    /// `{method}`
    Method,
    /// `{args}`: one argument for each argument of the task.
    Args,
    /// `{id}`
    Id,
    /// Plain text.
    Text(String),
}

impl ExecArg {
    const PLACEHOLDERS: [(&str, Self); 5] = [
        ("{key}", Self::Key),
        ("{class}", Self::Class),
        ("{method}", Self::Method),
        ("{args}", Self::Args),
        ("{id}", Self::Id),
    ];

    /// Parses an argument. A placeholder is a whole argument: text around a value from a key could change its meaning.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if let Some((_, arg)) = Self::PLACEHOLDERS.iter().find(|(name, _)| *name == text) {
            return Ok(arg.clone());
        }
        if Self::PLACEHOLDERS
            .iter()
            .any(|(name, _)| text.contains(name))
        {
            return Err(format!(
                "`{text}` holds no whole placeholder, expected plain text or one of {{key}} {{class}} {{method}} {{args}} {{id}} as an argument of its own"
            ));
        }
        let word = text
            .strip_prefix('{')
            .and_then(|text| text.strip_suffix('}'));
        let is_word = |word: &str| {
            !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        if word.is_some_and(is_word) {
            return Err(format!(
                "`{text}` is no placeholder, expected one of {{key}} {{class}} {{method}} {{args}} {{id}}, or plain text"
            ));
        }
        Ok(Self::Text(text.to_owned()))
    }
}

/// Environment variables that a program inherits unless the route has its own list.
pub const EXEC_ENV: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];
