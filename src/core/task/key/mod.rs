//! The key grammar: `Class@method[@arg]*`.

mod error;
mod name;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

pub(super) use self::error::Part;
pub use self::error::{ArgProblem, KeyError};
pub use self::name::{Foreign, KeyName, SENTINEL_PREFIX};

/// Longest key in bytes of UTF-8. The `key` column of the ledger holds at least as many characters.
pub const KEY_BYTES_MAX: usize = 255;

/// The name of a task: `Class@method`, then any number of `@argument`.
///
/// A valid key:
///
/// - UTF-8, at most [`KEY_BYTES_MAX`] bytes;
/// - class and method match `[A-Za-z_][A-Za-z0-9_.:\\-]*`;
/// - an argument has no `@` and no control character, and does not end in a space (SQL compares
///   `'a'` and `'a '` as equal);
/// - `C@m` has no argument, `C@m@` has one empty argument;
/// - a last argument of `~` and 13 to 26 characters `[0-9a-z]` is a [suffix](Self::suffix). It distinguishes otherwise
///   equal tasks, and is not an argument.
///
/// Clones share the text.
///
/// ```
/// use lapsed::task::TaskKey;
///
/// let key = TaskKey::build("Order", "close", ["42", "unpaid"])?;
/// assert_eq!(key.as_str(), "Order@close@42@unpaid");
/// assert_eq!(key.args().collect::<Vec<_>>(), ["42", "unpaid"]);
/// assert_eq!(TaskKey::parse("Order@close@42@unpaid")?, key);
/// # Ok::<(), lapsed::task::KeyError>(())
/// ```
#[derive(Clone)]
pub struct TaskKey {
    text: Arc<str>,
    // Each fits, because a key has at most 255 bytes.
    class_len: u8,
    method_end: u8,
    args_end: u8,
}

/// Stands for what is not shown of a task. Valid as an argument of a key.
pub const HIDDEN: &str = "hidden";

impl TaskKey {
    /// Parses a key.
    ///
    /// # Errors
    /// Returns a [`KeyError`] that names the invalid part.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        if text.len() > KEY_BYTES_MAX {
            return Err(KeyError::TooLong { bytes: text.len() });
        }
        let (class, rest) = text.split_once('@').ok_or(KeyError::NoMethod)?;
        let (method, args) = match rest.split_once('@') {
            Some((method, args)) => (method, Some(args)),
            None => (rest, None),
        };
        check_name(Part::Class, class)?;
        check_name(Part::Method, method)?;
        for (index, arg) in args
            .into_iter()
            .flat_map(|args| args.split('@'))
            .enumerate()
        {
            check_arg(index, arg)?;
        }
        Ok(Self {
            text: Arc::from(text),
            class_len: class.len() as u8,
            method_end: (class.len() + 1 + method.len()) as u8,
            args_end: match text.rsplit_once('@') {
                Some((head, last)) if args.is_some() && is_suffix(last) => head.len(),
                _ => text.len(),
            } as u8,
        })
    }

    /// Builds a key from its parts. The inverse of [`class`](Self::class), [`method`](Self::method) and
    /// [`args`](Self::args), unless the last argument looks like a suffix.
    ///
    /// # Errors
    /// Returns a [`KeyError`] that names the invalid part.
    pub fn build<A>(class: &str, method: &str, args: A) -> Result<Self, KeyError>
    where
        A: IntoIterator,
        A::Item: AsRef<str>,
    {
        let mut text = format!("{class}@{method}");
        for (index, arg) in args.into_iter().enumerate() {
            let arg = arg.as_ref();
            if arg.contains('@') {
                return Err(KeyError::Arg {
                    index,
                    problem: ArgProblem::At,
                });
            }
            text.push('@');
            text.push_str(arg);
        }
        // A class such as `A@b` would parse into other parts.
        check_name(Part::Class, class)?;
        check_name(Part::Method, method)?;
        Self::parse(&text)
    }

    /// Returns the key with [`HIDDEN`] instead of its arguments; without any if that does not fit.
    pub fn without_arguments(&self) -> Self {
        let hidden = Self::build(self.class(), self.method(), [HIDDEN]);
        // A key of the maximum length may have an argument that is shorter.
        let none = || Self::build(self.class(), self.method(), Vec::<&str>::new());
        hidden
            .or_else(|_| none())
            .expect("the beginning of a key is a key")
    }

    /// Returns the whole key.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the part before the first `@`.
    pub fn class(&self) -> &str {
        &self.text[..usize::from(self.class_len)]
    }

    /// Returns the part between the first and the second `@`.
    pub fn method(&self) -> &str {
        &self.text[usize::from(self.class_len) + 1..usize::from(self.method_end)]
    }

    /// Returns `Class@method`, without the arguments.
    pub fn class_method(&self) -> &str {
        &self.text[..usize::from(self.method_end)]
    }

    /// Returns the arguments, in order, without a [`suffix`](Self::suffix). `C@m` has none, `C@m@` has one empty
    /// argument.
    pub fn args(&self) -> impl Iterator<Item = &str> {
        self.text
            .get(usize::from(self.method_end) + 1..usize::from(self.args_end))
            .into_iter()
            .flat_map(|args| args.split('@'))
    }

    /// Returns the suffix that distinguishes tasks with the same arguments: `~` and 13 to 26 characters `0-9a-z`.
    pub fn suffix(&self) -> Option<&str> {
        self.text.get(usize::from(self.args_end) + 1..)
    }

    /// Returns the key without its suffix. For an occurrence of a series, that is the key of the series.
    pub fn without_suffix(&self) -> &str {
        &self.text[..usize::from(self.args_end)]
    }

    /// Replaces or adds the suffix, 13 to 26 characters `0-9a-z`.
    ///
    /// # Errors
    /// Returns [`KeyError::TooLong`] if the key becomes too long.
    pub fn with_suffix(&self, suffix: &str) -> Result<Self, KeyError> {
        Self::parse(&format!("{}@~{suffix}", self.without_suffix()))
    }
}

impl fmt::Display for TaskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for TaskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskKey({})", self.text)
    }
}

impl PartialEq for TaskKey {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for TaskKey {}

impl PartialOrd for TaskKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TaskKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.text.cmp(&other.text)
    }
}

impl Hash for TaskKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl std::str::FromStr for TaskKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::parse(text)
    }
}

fn is_suffix(arg: &str) -> bool {
    arg.strip_prefix('~').is_some_and(|suffix| {
        (13..=26).contains(&suffix.len())
            && suffix
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase())
    })
}

pub(super) fn check_name(part: Part, text: &str) -> Result<(), KeyError> {
    let mut bytes = text.bytes();
    let starts = bytes
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    let goes_on = bytes.all(|b| b.is_ascii_alphanumeric() || b"_.:\\-".contains(&b));
    if starts && goes_on {
        return Ok(());
    }
    Err(KeyError::Name {
        part,
        text: text.to_owned(),
    })
}

fn check_arg(index: usize, arg: &str) -> Result<(), KeyError> {
    let problem = if arg.chars().any(char::is_control) {
        ArgProblem::Control
    } else if arg.ends_with(' ') {
        ArgProblem::EndsInSpace
    } else {
        return Ok(());
    };
    Err(KeyError::Arg { index, problem })
}

#[cfg(test)]
mod tests;
