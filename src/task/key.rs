//! The key grammar: `Class@method[@arg]*`, and the two other things a channel may name.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Longest key, in bytes of UTF-8: the width of the ledger's `key` column in characters is never less.
pub const KEY_BYTES_MAX: usize = 255;

/// What a sentinel's name begins with; a decimal number from 1 follows.
pub const SENTINEL_PREFIX: &str = "#SILCK`";

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

/// Everything a key name heard on a channel can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyName {
    /// A task's key.
    Task(TaskKey),
    /// The sentinel with this number, counted from 1.
    Sentinel(u16),
    /// Somebody else's key: counted, never logged raw, never sent to the database.
    Foreign(Foreign),
}

impl KeyName {
    /// Tells what a name is. Takes bytes, because Redis keys need not be text; never allocates for
    /// a name that is longer than a key may be.
    pub fn parse(name: &[u8]) -> Self {
        if name.len() > KEY_BYTES_MAX {
            return Self::Foreign(Foreign::TooLong);
        }
        let Ok(text) = std::str::from_utf8(name) else {
            return Self::Foreign(Foreign::NotUtf8);
        };
        if let Some(number) = text.strip_prefix(SENTINEL_PREFIX) {
            return match sentinel_number(number) {
                Some(number) => Self::Sentinel(number),
                None => Self::Foreign(Foreign::NotInGrammar),
            };
        }
        match TaskKey::parse(text) {
            Ok(key) => Self::Task(key),
            Err(_) => Self::Foreign(Foreign::NotInGrammar),
        }
    }
}

/// Why a name is nobody's task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreign {
    /// Longer than [`KEY_BYTES_MAX`].
    TooLong,
    /// Not text.
    NotUtf8,
    /// Text, but not a key.
    NotInGrammar,
}

/// `7` but not `07`, `+7`, `7.0` or `0`: a sentinel's name is matched exactly.
fn sentinel_number(digits: &str) -> Option<u16> {
    let exact = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
    exact.then(|| digits.parse().ok()).flatten()
}

/// Why a text is not a task key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// More than [`KEY_BYTES_MAX`] bytes.
    #[error("key has {bytes} bytes, expected at most {KEY_BYTES_MAX}")]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// There is no `@`.
    #[error("key has no `@`, expected `Class@method` and then any `@argument`")]
    NoMethod,
    /// The class or the method is not a name.
    #[error("{part} `{}` does not fit, expected a letter or `_`, then letters, digits or `_.:\\-`", .text.escape_debug())]
    Name {
        /// `class` or `method`.
        part: Part,
        /// What was found.
        text: String,
    },
    /// An argument cannot stand in a key.
    #[error("argument {} {problem}", .index + 1)]
    Arg {
        /// Which one, counted from 0.
        index: usize,
        /// What is wrong with it.
        problem: ArgProblem,
    },
}

/// A named part of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Before the first `@`.
    Class,
    /// After it.
    Method,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Class => "class",
            Self::Method => "method",
        })
    }
}

/// What is wrong with an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgProblem {
    /// `@` separates arguments.
    At,
    /// It would break logs and headers.
    Control,
    /// SQL ignores it when it compares.
    EndsInSpace,
}

impl fmt::Display for ArgProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::At => "contains `@`, which separates arguments",
            Self::Control => "contains a control character",
            Self::EndsInSpace => "ends in a space",
        })
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name() -> impl Strategy<Value = String> {
        "[A-Za-z_][A-Za-z0-9_.:\\\\-]{0,20}"
    }

    fn arg() -> impl Strategy<Value = String> {
        "[^@\\p{Cc}]{0,12}".prop_filter("an argument does not end in a space", |arg| {
            !arg.ends_with(' ')
        })
    }

    proptest! {
        #[test]
        fn building_and_parsing_are_inverse(class in name(), method in name(), args in prop::collection::vec(arg(), 0..4)) {
            let built = TaskKey::build(&class, &method, &args)?;
            prop_assert_eq!(built.class(), &class);
            prop_assert_eq!(built.method(), &method);
            prop_assert_eq!(built.args().collect::<Vec<_>>(), args.iter().map(String::as_str).collect::<Vec<_>>());
            prop_assert_eq!(TaskKey::parse(built.as_str())?, built);
        }

        #[test]
        fn what_parses_is_rebuilt_to_the_same_text(text in "[A-Za-z_@ .:\\-0-9]{0,40}") {
            if let Ok(key) = TaskKey::parse(&text) {
                let rebuilt = TaskKey::build(key.class(), key.method(), key.args())?;
                prop_assert_eq!(rebuilt.as_str(), text);
            }
        }

        #[test]
        fn any_bytes_are_some_name(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = KeyName::parse(&bytes);
        }
    }

    #[test]
    fn no_argument_and_one_empty_argument_differ() {
        assert_eq!(TaskKey::parse("C@m").unwrap().args().count(), 0);
        assert_eq!(
            TaskKey::parse("C@m@").unwrap().args().collect::<Vec<_>>(),
            [""]
        );
        assert_eq!(
            TaskKey::parse("C@m@@x").unwrap().args().collect::<Vec<_>>(),
            ["", "x"]
        );
    }

    #[test]
    fn a_suffix_tells_tasks_apart_and_is_no_argument() {
        let mark = "01jd7p0c8v9zq5k3m2n4t6w8xy";
        for (base, args) in [
            ("C@m", &[][..]),
            ("C@m@", &[""][..]),
            ("C@m@42@x", &["42", "x"][..]),
        ] {
            let key = TaskKey::parse(base).unwrap().with_suffix(mark).unwrap();
            assert_eq!(key.as_str(), format!("{base}@~{mark}"));
            assert_eq!(key.args().collect::<Vec<_>>(), args);
            assert_eq!(key.suffix(), Some("~01jd7p0c8v9zq5k3m2n4t6w8xy"));
            let other = key.with_suffix("0000000000001").unwrap();
            assert_eq!(other.as_str(), format!("{base}@~0000000000001"));
            assert_eq!(other.args().collect::<Vec<_>>(), args);
        }
        for argument in [
            "~",
            "~123456789012",
            "~123456789012345678901234567",
            "~12345678901X3",
            "1234567890123",
        ] {
            let key = TaskKey::build("C", "m", [argument]).unwrap();
            assert_eq!((key.args().next(), key.suffix()), (Some(argument), None));
        }
        assert_eq!(
            TaskKey::parse("C@m@~1234567890123@x").unwrap().suffix(),
            None
        );
        let long = TaskKey::build("C", "m", ["x".repeat(230)]).unwrap();
        assert_eq!(
            long.with_suffix(mark).unwrap_err(),
            KeyError::TooLong { bytes: 262 }
        );
    }

    #[test]
    fn a_suffix_is_no_argument() {
        let key = TaskKey::parse("C@m@x").unwrap();
        let suffixed = key.with_suffix("1763750000000").unwrap();
        assert_eq!(suffixed.as_str(), "C@m@x@~1763750000000");
        assert_eq!(suffixed.args().collect::<Vec<_>>(), ["x"]);
        assert_eq!(suffixed.suffix(), Some("~1763750000000"));
        let bare = TaskKey::parse("C@m@~1763750000000").unwrap();
        assert_eq!(
            (bare.args().count(), bare.suffix()),
            (0, Some("~1763750000000"))
        );
        for plain in [
            "C@m",
            "C@m@~",
            "C@m@~short",
            "C@m@~1763750000000@x",
            "C@m@~176375000000A",
        ] {
            assert_eq!(TaskKey::parse(plain).unwrap().suffix(), None, "{plain}");
        }
    }

    #[test]
    fn php_namespaces_are_classes() {
        let key = TaskKey::parse(r"App\Jobs\Order@close@1").unwrap();
        assert_eq!(key.class(), r"App\Jobs\Order");
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_reason() {
        let refused = [
            (
                "",
                "key has no `@`, expected `Class@method` and then any `@argument`",
            ),
            (
                "cache:user:1",
                "key has no `@`, expected `Class@method` and then any `@argument`",
            ),
            (
                "@m",
                "class `` does not fit, expected a letter or `_`, then letters, digits or `_.:\\-`",
            ),
            (
                "C@",
                "method `` does not fit, expected a letter or `_`, then letters, digits or `_.:\\-`",
            ),
            (
                "9C@m",
                "class `9C` does not fit, expected a letter or `_`, then letters, digits or `_.:\\-`",
            ),
            ("C@m@a\nb", "argument 1 contains a control character"),
            ("C@m@a@b ", "argument 2 ends in a space"),
        ];
        for (text, reason) in refused {
            assert_eq!(
                TaskKey::parse(text).unwrap_err().to_string(),
                reason,
                "{text:?}"
            );
        }
        let long = format!("C@m@{}", "x".repeat(252));
        assert_eq!(
            TaskKey::parse(&long).unwrap_err().to_string(),
            "key has 256 bytes, expected at most 255"
        );
    }

    #[test]
    fn a_builder_refuses_parts_that_would_shift() {
        assert!(TaskKey::build("A@b", "c", [""; 0]).is_err());
        assert_eq!(
            TaskKey::build("A", "b", ["x@y"]).unwrap_err().to_string(),
            "argument 1 contains `@`, which separates arguments"
        );
    }

    #[test]
    fn sentinels_are_matched_exactly() {
        assert_eq!(KeyName::parse(b"#SILCK`10"), KeyName::Sentinel(10));
        for not_one in [
            "#SILCK`",
            "#SILCK`0",
            "#SILCK`01",
            "#SILCK`+1",
            "#SILCK`1 ",
            "#SILCK`99999",
            "#SILCK`1@x",
        ] {
            assert_eq!(
                KeyName::parse(not_one.as_bytes()),
                KeyName::Foreign(Foreign::NotInGrammar),
                "{not_one}"
            );
        }
    }

    #[test]
    fn binary_and_huge_names_are_foreign() {
        assert_eq!(
            KeyName::parse(b"C@m@\xff"),
            KeyName::Foreign(Foreign::NotUtf8)
        );
        assert_eq!(
            KeyName::parse(&vec![b'x'; 1_000_000]),
            KeyName::Foreign(Foreign::TooLong)
        );
    }
}
