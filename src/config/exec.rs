//! `exec`: a program, and what it is given.

/// `exec = [..]` and the keys beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecConfig {
    /// What is started.
    pub program: String,
    /// Its arguments.
    pub args: Vec<ExecArg>,
    /// Whether an argument of a task may begin with `-`.
    pub allow_dash: bool,
    /// Whether what it writes to stdout is kept as the task's result.
    pub keep_result: bool,
    /// Names of environment variables that are handed on.
    pub env: Vec<String>,
}

/// An argument of a program: a placeholder, or itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecArg {
    /// `{key}`
    Key,
    /// `{class}`
    Class,
    /// `{method}`
    Method,
    /// `{args}`: an argument for each of the task's.
    Args,
    /// `{id}`
    Id,
    /// As it is.
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

    /// A placeholder stands alone: text glued to what comes from a key could change its meaning.
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

/// Environment variables that `exec` hands on unless the route has its own list.
pub const EXEC_ENV: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];
