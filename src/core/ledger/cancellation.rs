//! Filters and results of cancellation.

use super::LedgerError;
use crate::task::{State, TaskKey};

/// Result of [`Producer::cancel`](super::Producer::cancel) for one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelAnswer {
    /// The task will not start.
    Cancelled,
    /// The task is running. No further attempt will start.
    Running,
    /// The task had already finished, in this state.
    Finished(State),
    /// There is no such task.
    Unknown,
}

/// Selects tasks to cancel. A task must match every field that is set, and at least one must be.
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
    /// The tag of the task.
    pub tag: Option<String>,
    /// The beginning of its key.
    pub prefix: Option<String>,
    /// Its class.
    pub class: Option<String>,
    /// Its method; only together with a class.
    pub method: Option<String>,
}

impl CancelFilter {
    /// Selects tasks with this tag.
    pub fn tag(tag: impl Into<String>) -> Self {
        Self {
            tag: Some(tag.into()),
            ..Self::default()
        }
    }

    /// Selects tasks whose key begins with this.
    pub fn prefix(prefix: impl Into<String>) -> Self {
        Self {
            prefix: Some(prefix.into()),
            ..Self::default()
        }
    }

    /// Selects tasks of this class.
    pub fn class(class: impl Into<String>) -> Self {
        Self {
            class: Some(class.into()),
            ..Self::default()
        }
    }

    /// Restricts the filter to this method of the class.
    #[must_use]
    pub fn method(self, method: impl Into<String>) -> Self {
        Self {
            method: Some(method.into()),
            ..self
        }
    }

    /// Refuses a filter that would select every task by mistake.
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
            () if texts.into_iter().flatten().any(String::is_empty) => refuse(
                "an empty tag, prefix, class or method matches every task, expected some text",
            ),
            () if method.is_some() && class.is_none() => {
                refuse("a method needs its class, expected both")
            }
            () if tag.is_none() && prefix.is_none() && class.is_none() => {
                refuse("the filter is empty, expected a tag, a prefix or a class")
            }
            () => Ok(()),
        }
    }

    /// True if the key matches. Does not look at the tag.
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

    /// Returns the tag if no other field is set.
    pub fn only_tag(&self) -> Option<&str> {
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

    /// Returns the text that every matching key begins with.
    pub fn common_prefix(&self) -> String {
        let of_class = match (&self.class, &self.method) {
            (Some(class), Some(method)) => format!("{class}@{method}"),
            (Some(class), None) => format!("{class}@"),
            (None, _) => String::new(),
        };
        let prefix = self.prefix.clone().unwrap_or_default();
        // If both are given and neither continues the other, no key matches.
        std::cmp::max_by_key(of_class, prefix, String::len)
    }
}

/// Returns the least text, by code points, after every text that begins with `prefix`: the end of its range in an index.
pub fn end_of_prefix(prefix: &str) -> String {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        // Surrogates are not characters.
        if let Some(next) = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32) {
            text.push(next);
            return text;
        }
    }
    // No key begins with it.
    char::MAX.to_string()
}

/// Position of a cancellation by filter. It runs backwards from the end of its index, so that it does not follow tasks that
/// are created meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CancelCursor {
    /// Rows with a smaller id are left.
    Row(u64),
    /// Keys before this one are left.
    Key(String),
}

/// Result of [`Producer::cancel_page`](super::Producer::cancel_page).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CancelPage {
    /// Keys of cancelled tasks: they will not start.
    pub cancelled: Vec<TaskKey>,
    /// Number of cancelled rows whose key is not a task key.
    pub malformed: usize,
    /// Keys of running tasks: no further attempt will start.
    pub running: Vec<TaskKey>,
    /// Number of rows that another session kept locked. They are unchanged.
    pub locked: usize,
    /// `before` of the next page; `None` at the end.
    pub next: Option<CancelCursor>,
}

impl CancelPage {
    /// Adds a cancelled row.
    pub fn count(&mut self, key: Option<TaskKey>) {
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
            "the filter is empty, expected a tag, a prefix or a class"
        );
        assert_eq!(
            refused(CancelFilter::default().method("m")),
            "a method needs its class, expected both"
        );
        assert!(refused(CancelFilter::prefix("")).starts_with("an empty tag"));
        assert!(CancelFilter::class("C").method("m").check().is_ok());
    }
}
