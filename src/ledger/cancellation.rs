//! Cancelling tasks by key, or by filter a page at a time.

use super::LedgerError;
use crate::task::{State, TaskKey};

/// Result of [`Producer::cancel`](super::Producer::cancel) for one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelAnswer {
    /// It will not start.
    Cancelled,
    /// It is being run; no further attempt will start.
    Running,
    /// It had finished, in this state.
    Finished(State),
    /// There is no such task.
    Unknown,
}

/// Which tasks to call off; everything that is set must fit, and something must be.
///
/// ```
/// use lapsed::ledger::CancelFilter;
/// use lapsed::TaskKey;
///
/// let filter = CancelFilter::class("Order").method("close");
/// assert!(filter.fits_key(&TaskKey::parse("Order@close@42").unwrap()));
/// assert!(!filter.fits_key(&TaskKey::parse("Order@closed@42").unwrap()));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CancelFilter {
    /// With this tag.
    pub tag: Option<String>,
    /// Whose key begins with this.
    pub prefix: Option<String>,
    /// Of this class.
    pub class: Option<String>,
    /// Of this method of that class.
    pub method: Option<String>,
}

impl CancelFilter {
    /// Tasks with this tag.
    pub fn tag(tag: impl Into<String>) -> Self {
        Self {
            tag: Some(tag.into()),
            ..Self::default()
        }
    }

    /// Tasks whose key begins with this.
    pub fn prefix(prefix: impl Into<String>) -> Self {
        Self {
            prefix: Some(prefix.into()),
            ..Self::default()
        }
    }

    /// Tasks of this class.
    pub fn class(class: impl Into<String>) -> Self {
        Self {
            class: Some(class.into()),
            ..Self::default()
        }
    }

    /// And of this method.
    #[must_use]
    pub fn method(self, method: impl Into<String>) -> Self {
        Self {
            method: Some(method.into()),
            ..self
        }
    }

    /// Whether it says what is to be called off: not everything, by mistake.
    ///
    /// # Errors
    /// [`LedgerError::Invalid`] says what is missing.
    pub fn check(&self) -> Result<(), LedgerError> {
        let refuse = |what: &str| Err(LedgerError::Invalid(what.to_owned()));
        let Self {
            tag,
            prefix,
            class,
            method,
        } = self;
        let texts = [tag, prefix, class, method];
        match () {
            () if texts.into_iter().flatten().any(String::is_empty) => {
                refuse("an empty tag, prefix, class or method fits everything, expected some text")
            }
            () if method.is_some() && class.is_none() => {
                refuse("a method is of a class, expected that too")
            }
            () if tag.is_none() && prefix.is_none() && class.is_none() => {
                refuse("nothing says which tasks, expected a tag, a prefix or a class")
            }
            () => Ok(()),
        }
    }

    /// Whether the key fits; about the tag it says nothing.
    pub fn fits_key(&self, key: &TaskKey) -> bool {
        let Self {
            tag: _,
            prefix,
            class,
            method,
        } = self;
        let begins = |prefix: &String| key.as_str().starts_with(prefix.as_str());
        prefix.as_ref().is_none_or(begins)
            && class.as_ref().is_none_or(|class| key.class() == class)
            && method.as_ref().is_none_or(|method| key.method() == method)
    }

    /// The tag, if nothing else is asked.
    pub(super) fn only_tag(&self) -> Option<&str> {
        match self {
            Self {
                tag: Some(tag),
                prefix: None,
                class: None,
                method: None,
            } => Some(tag),
            _ => None,
        }
    }

    /// What every key begins with that fits.
    pub(super) fn common_prefix(&self) -> String {
        let of_class = match (&self.class, &self.method) {
            (Some(class), Some(method)) => format!("{class}@{method}"),
            (Some(class), None) => format!("{class}@"),
            (None, _) => String::new(),
        };
        let prefix = self.prefix.clone().unwrap_or_default();
        // Where both are given and neither continues the other, nothing fits.
        std::cmp::max_by_key(of_class, prefix, String::len)
    }
}

/// The least text behind all that begin with `prefix`, by code points: with it, a prefix is a range of an index.
pub(super) fn end_of_prefix(prefix: &str) -> String {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        // Not every number is a character.
        if let Some(next) = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32) {
            text.push(next);
            return text;
        }
    }
    // No key begins with it.
    char::MAX.to_string()
}

/// How far a cancellation of many has come: from the end of its index backwards, so that it does not chase those that
/// are created meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CancelCursor {
    /// Rows before this one are left.
    Row(u64),
    /// Keys before this one are left.
    Key(String),
}

/// What became of a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CancelPage {
    /// They will not start any more.
    pub cancelled: Vec<TaskKey>,
    /// So many rows that were cancelled, too, have a key that is no task key.
    pub malformed: usize,
    /// These are being run; no further attempt will start.
    pub running: Vec<TaskKey>,
    /// So many are locked by another session, for longer than was waited for: they are as they were.
    pub locked: usize,
    /// Give this for the next page; `None` at the end.
    pub next: Option<CancelCursor>,
}

impl CancelPage {
    /// One more is cancelled.
    pub(super) fn count(&mut self, key: Option<TaskKey>) {
        match key {
            Some(key) => self.cancelled.push(key),
            None => self.malformed += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_text_that_does_not_begin_with_it() {
        for (prefix, end) in [
            ("Order@", "OrderA"),
            ("C@m@z", "C@m@{"),
            ("C@\u{d7ff}", "C@\u{e000}"),
            ("C\u{10ffff}\u{10ffff}", "D"),
            ("\u{10ffff}", "\u{10ffff}"),
        ] {
            assert_eq!(end_of_prefix(prefix), end, "{prefix:?}");
        }
    }

    #[test]
    fn what_fits_everything_is_refused() {
        let refused = |filter: CancelFilter| filter.check().unwrap_err().to_string();
        assert_eq!(
            refused(CancelFilter::default()),
            "nothing says which tasks, expected a tag, a prefix or a class"
        );
        assert_eq!(
            refused(CancelFilter::default().method("m")),
            "a method is of a class, expected that too"
        );
        assert!(refused(CancelFilter::prefix("")).starts_with("an empty tag"));
        assert!(CancelFilter::class("C").method("m").check().is_ok());
    }
}
