//! The key grammar: `Class@method[@arg]*`.

mod error;
mod name;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

pub(super) use self::error::Part;
pub use self::error::{ArgProblem, KeyError};
pub use self::name::{Foreign, KeyName, SENTINEL_PREFIX};

/// Longest key, in bytes of UTF-8: the width of the ledger's `key` column in characters is never less.
pub const KEY_BYTES_MAX: usize = 255;

/// The name of a task: `Class@method`, then any number of `@argument`.
///
/// Holds only what the grammar allows, so whoever has one need not check again:
///
/// - UTF-8, at most [`KEY_BYTES_MAX`] bytes;
/// - class and method match `[A-Za-z_][A-Za-z0-9_.:\\-]*`;
/// - an argument has no `@` and no control character, and does not end in a space (SQL compares
///   `'a'` and `'a '` as equal);
/// - `C@m` has no argument, `C@m@` has one empty argument;
/// - a last argument of `~` and 13 to 26 characters `[0-9a-z]` is a [suffix](Self::suffix): it tells apart tasks that
///   are otherwise the same, and is no argument.
///
/// Cloning is cheap: the text is shared.
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
    // All fit: a key has at most 255 bytes.
    class_len: u8,
    method_end: u8,
    args_end: u8,
}

impl TaskKey {
    /// Reads a key.
    ///
    /// # Errors
    /// [`KeyError`] names the part that does not fit the grammar.
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

    /// Puts a key together; the exact inverse of [`class`](Self::class), [`method`](Self::method)
    /// and [`args`](Self::args), unless the last argument looks like a suffix.
    ///
    /// # Errors
    /// [`KeyError`] names the part that does not fit the grammar.
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
        // A class such as `A@b` would parse, but not into the parts that were given.
        check_name(Part::Class, class)?;
        check_name(Part::Method, method)?;
        Self::parse(&text)
    }

    /// The whole key.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The part before the first `@`.
    pub fn class(&self) -> &str {
        &self.text[..usize::from(self.class_len)]
    }

    /// The part between the first and the second `@`.
    pub fn method(&self) -> &str {
        &self.text[usize::from(self.class_len) + 1..usize::from(self.method_end)]
    }

    /// `Class@method`, without the arguments.
    pub fn class_method(&self) -> &str {
        &self.text[..usize::from(self.method_end)]
    }

    /// The arguments, in order. `C@m` has none, `C@m@` one empty one. A [`suffix`](Self::suffix) is not among them.
    pub fn args(&self) -> impl Iterator<Item = &str> {
        self.text
            .get(usize::from(self.method_end) + 1..usize::from(self.args_end))
            .into_iter()
            .flat_map(|args| args.split('@'))
    }

    /// What makes this key another one than that of a task with the same arguments: a last `~` and 13 to 26 of `0-9a-z`.
    pub fn suffix(&self) -> Option<&str> {
        self.text.get(usize::from(self.args_end) + 1..)
    }

    /// The name without its suffix: that of a series, for one of its occurrences.
    pub fn without_suffix(&self) -> &str {
        &self.text[..usize::from(self.args_end)]
    }

    /// This key with a suffix of 13 to 26 of `0-9a-z`, in place of its own.
    ///
    /// # Errors
    /// [`KeyError::TooLong`] if there is no room for it.
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
