//! Filters of tasks, and lists: order and cursor.

mod cursor;

pub use self::cursor::ListCursor;
use super::LedgerError;
use super::record::{MalformedRow, TaskRecord};
use crate::task::{ClassGlob, Reason, State, TaskKey, UnixMs};

/// Selects tasks, to list or to change them. A task must match every field that is set.
///
/// ```
/// use lapsed::ledger::ListFilter;
///
/// let filter = ListFilter::class("Order").method("close");
/// assert_eq!(filter.key_range(), ("Order@close".to_owned(), "Order@closf".to_owned()));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListFilter {
    /// Has one of these states; empty for all.
    pub states: Vec<StateFilter>,
    /// Has this class.
    pub class: Option<String>,
    /// Has this method, of any class.
    pub method: Option<String>,
    /// Has this tag.
    pub tag: Option<String>,
    /// Has a key that begins with this.
    pub prefix: Option<String>,
    /// Searches the archive of finished tasks instead of the ledger.
    pub archived: bool,
    /// Is recurring; false for any task.
    pub recurring: bool,
    /// May start at this time or later: `due_at`, so a retry counts.
    pub due_after: Option<UnixMs>,
    /// May start before this time.
    pub due_before: Option<UnixMs>,
    /// Is dead for this reason.
    pub reason: Option<Reason>,
    /// Has a latest error that contains this text, ignoring case.
    pub error: Option<String>,
    /// Has a latest error of this [kind](crate::task::error_kind).
    pub error_kind: Option<String>,
    /// Finished at this time or later.
    pub finished_after: Option<UnixMs>,
    /// Finished before this time.
    pub finished_before: Option<UnixMs>,
    /// Was created, or redriven, before this time.
    pub created_before: Option<UnixMs>,
    /// Is of one of these classes; empty for any.
    pub only: Vec<ClassGlob>,
    /// Is of none of these classes.
    pub except: Vec<ClassGlob>,
    /// True if the order of a list must not tell the order of its keys.
    pub hides_keys: bool,
    /// Begins with those that may start last, if all states are those of finished tasks and the order is by due time.
    pub newest: bool,
    /// Comes after this place: `next` of the previous page.
    pub cursor: Option<ListCursor>,
    /// Maximum number of tasks on a page.
    pub limit: u32,
    /// Leaves payloads and results out: they are not read.
    pub brief: bool,
}

impl ListFilter {
    /// Selects tasks with this tag.
    pub fn tag(tag: impl Into<String>) -> Self {
        Self {
            tag: Some(tag.into()),
            ..Self::default()
        }
    }

    /// Selects from this row on; the first task found is [that of the row](TaskRecord::row), if there is one. `None` for 0,
    /// which no row has.
    pub fn from_row(row: u64, archived: bool) -> Option<Self> {
        Some(Self {
            archived,
            cursor: Some(ListCursor::Row(row.checked_sub(1)?)),
            limit: 1,
            ..Self::default()
        })
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

    /// Restricts the filter to this method.
    #[must_use]
    pub fn method(self, method: impl Into<String>) -> Self {
        Self {
            method: Some(method.into()),
            ..self
        }
    }

    /// Returns the tag if no other field restricts the tasks.
    pub fn only_tag(&self) -> Option<&str> {
        let same_tag = Self {
            tag: self.tag.clone(),
            hides_keys: self.hides_keys,
            newest: self.newest,
            cursor: self.cursor.clone(),
            limit: self.limit,
            brief: self.brief,
            ..Self::default()
        };
        self.tag.as_deref().filter(|_| *self == same_tag)
    }

    /// Refuses a filter that would cancel every task by mistake, or finished tasks. A filter of nothing but states cancels
    /// all tasks in these states.
    ///
    /// # Errors
    /// [`LedgerError::Invalid`] says what is wrong.
    pub fn check_cancel(&self) -> Result<(), LedgerError> {
        self.check_live()?;
        let refuse = |what: &str| Err(LedgerError::Invalid(what.to_owned()));
        let texts = [
            &self.tag,
            &self.prefix,
            &self.class,
            &self.method,
            &self.error,
        ];
        let ended = [self.finished_after, self.finished_before];
        let is_finished =
            |state: &StateFilter| matches!(state, StateFilter::Is(state) if state.is_finished());
        match () {
            () if texts.into_iter().flatten().any(String::is_empty) => {
                refuse("an empty text matches every task, expected some text")
            }
            () if self.states.is_empty() && self.is_open() => refuse(
                "the filter is empty and matches every task, expected a tag, a prefix, a class or another restriction",
            ),
            () if self.states.iter().any(is_finished) => refuse(
                "finished tasks cannot be cancelled, expected the states `pending`, `waiting`, `running` or `overdue`",
            ),
            () if self.reason.is_some() || ended.iter().any(Option::is_some) => refuse(
                "a reason or an age selects finished tasks, which cannot be cancelled: expected neither",
            ),
            () => Ok(()),
        }
    }

    /// Refuses a filter of archived tasks.
    ///
    /// # Errors
    /// [`LedgerError::Invalid`]: archived tasks can only be read.
    pub fn check_live(&self) -> Result<(), LedgerError> {
        match self.archived {
            false => Ok(()),
            true => Err(LedgerError::Invalid(
                "archived tasks can only be read, expected tasks of the ledger".to_owned(),
            )),
        }
    }

    /// True if no field but the states and the globs of classes restricts the tasks. An empty text restricts nothing.
    pub fn is_open(&self) -> bool {
        let Self {
            states: _,
            class,
            method,
            tag,
            prefix,
            archived: _,
            recurring: false,
            due_after: None,
            due_before: None,
            reason: None,
            error,
            error_kind,
            finished_after: None,
            finished_before: None,
            created_before: None,
            only: _,
            except: _,
            hides_keys: _,
            newest: _,
            cursor: _,
            limit: _,
            brief: _,
        } = self
        else {
            return false;
        };
        let texts = [class, method, tag, prefix, error];
        error_kind.is_none() && texts.into_iter().flatten().all(String::is_empty)
    }

    /// True if the globs of classes allow this task.
    pub(super) fn allows(&self, key: &TaskKey) -> bool {
        let has = |glob: &ClassGlob| glob.has(key);
        (self.only.is_empty() || self.only.iter().any(has)) && !self.except.iter().any(has)
    }

    /// Returns the order of the pages.
    ///
    /// A tag has an index of its own, and so have recurring tasks. A prefix that names an argument matches few rows. The rows of a class may be many, so
    /// states with few rows take precedence over it, and so does a due time. If the order must not tell that of the keys, it is
    /// that of the due times.
    pub fn order(&self) -> ListOrder {
        let Self {
            states,
            class,
            tag,
            prefix,
            recurring,
            due_after,
            due_before,
            hides_keys,
            ..
        } = self;
        let names_an_argument = |prefix: &String| prefix.matches('@').count() >= 2;
        let of_a_class = class.is_some() || prefix.is_some();
        let is_of_few = !states.is_empty() && !states.contains(&StateFilter::Is(State::Done));
        match () {
            () if tag.is_some() => ListOrder::Row,
            () if prefix.as_ref().is_some_and(names_an_argument) && !hides_keys => ListOrder::Key,
            () if *recurring => ListOrder::Row,
            () if due_after.or(*due_before).is_some() || is_of_few => ListOrder::Due,
            () if of_a_class && !hides_keys => ListOrder::Key,
            () if self.is_open() && states.is_empty() => ListOrder::Row,
            () => ListOrder::Due,
        }
    }

    /// True if the pages begin with the tasks that may start last.
    pub fn is_newest_first(&self) -> bool {
        let is_finished =
            |state: &StateFilter| matches!(state, StateFilter::Is(state) if state.is_finished());
        let are_finished = !self.states.is_empty() && self.states.iter().all(is_finished);
        self.newest && are_finished && self.order() == ListOrder::Due
    }

    /// Refuses a cursor of another order.
    pub fn check_cursor(&self) -> Result<(), LedgerError> {
        let fits = match self.cursor {
            None => true,
            Some(ListCursor::Row(_)) => self.order() == ListOrder::Row,
            Some(ListCursor::Key(_)) => self.order() == ListOrder::Key && !self.archived,
            Some(ListCursor::Archived(..)) => self.order() == ListOrder::Key && self.archived,
            Some(ListCursor::Due { .. }) => self.order() == ListOrder::Due,
        };
        match fits {
            true => Ok(()),
            false => Err(LedgerError::Invalid(
                "the cursor belongs to a list with other filters, expected those of the previous page".to_owned(),
            )),
        }
    }

    /// Returns the range of keys that can match: from the first text on, before the second.
    pub fn key_range(&self) -> (String, String) {
        let of_class = match (&self.class, &self.method) {
            (Some(class), Some(method)) => format!("{class}@{method}"),
            (Some(class), None) => format!("{class}@"),
            (None, _) => String::new(),
        };
        let prefix = self.prefix.clone().unwrap_or_default();
        // If both are given and neither continues the other, no key matches.
        let begin = std::cmp::max_by_key(of_class, prefix, String::len);
        let end = end_of_prefix(&begin);
        (begin, end)
    }

    /// Returns the values of `status` and `sts` that can match, in the order of a list by due time.
    pub fn statuses(&self) -> Vec<(u8, bool)> {
        let is_finished = self.finished_after.or(self.finished_before).is_some();
        let fits = |status: u8, deleted: bool| {
            let of_state = |state: &StateFilter| match state {
                StateFilter::Overdue => (status, deleted) == (0, false),
                StateFilter::Is(State::Pending | State::Waiting) => (status, deleted) == (0, false),
                StateFilter::Is(State::Running) => status == 0,
                StateFilter::Is(State::Done) => status == 1,
                StateFilter::Is(State::Dead) => status == 2,
                StateFilter::Is(State::Cancelled) => status == 3 || (status, deleted) == (0, true),
            };
            let in_a_state = self.states.is_empty() || self.states.iter().any(of_state);
            let has_reason = self.reason.is_none() || status == 2;
            in_a_state && has_reason && (!is_finished || status > 0)
        };
        let all = (0..=3).flat_map(|status| [(status, false), (status, true)]);
        all.filter(|(status, deleted)| fits(*status, *deleted))
            .collect()
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

/// Order of a list: always that of an index, so that a page costs the same wherever it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListOrder {
    /// By id, the order of creation: for no filter, a tag, or recurring tasks.
    Row,
    /// By key: for a class, a method of a class, or the beginning of a key.
    Key,
    /// By status, then by due time.
    Due,
}

/// Ids of rows that match a filter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Picked {
    /// The ids, in order. May be empty before the end, since a search stops after some time.
    pub rows: Vec<u64>,
    /// `cursor` of the next page; `None` at the end.
    pub next: Option<ListCursor>,
}

/// A state, or the condition `overdue`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateFilter {
    /// In this state.
    Is(State),
    /// Pending or waiting, and past the time at which it may start.
    Overdue,
}

impl StateFilter {
    /// The states of unfinished tasks.
    pub const UNFINISHED: [Self; 3] = [
        Self::Is(State::Pending),
        Self::Is(State::Waiting),
        Self::Is(State::Running),
    ];
}

/// A page of tasks, in the [order](ListFilter::order) of the filter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListPage {
    /// The tasks.
    pub tasks: Vec<TaskRecord>,
    /// Rows that match but whose key is not a task key: nothing can run them.
    pub malformed: Vec<MalformedRow>,
    /// `cursor` of the next page; `None` at the end.
    pub next: Option<ListCursor>,
    /// If the search stopped before the page was full because it took too long: the least number of rows it has read.
    pub searched: Option<u64>,
}

#[cfg(test)]
mod tests;
