//! Lists of tasks: filter, order and cursor.

use std::fmt;
use std::str::FromStr;

use super::LedgerError;
use super::cancellation::end_of_prefix;
use super::record::{MalformedRow, TaskRecord};
use crate::format::from_hex;
use crate::task::{ClassGlob, Reason, State, TaskKey, UnixMs};

/// Selects tasks to list. A task must match every field that is set.
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
    /// Comes after this place: `next` of the previous page.
    pub cursor: Option<ListCursor>,
    /// Maximum number of tasks on a page.
    pub limit: u32,
    /// Leaves payloads and results out: they are not read.
    pub brief: bool,
}

impl ListFilter {
    /// True if no field but the states and the globs of classes restricts the tasks. An empty text restricts nothing.
    pub fn is_open(&self) -> bool {
        let Self {
            states: _,
            class,
            method,
            tag,
            prefix,
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

    /// Refuses a cursor of another order.
    pub fn check_cursor(&self) -> Result<(), LedgerError> {
        let order = match self.cursor {
            None => return Ok(()),
            Some(ListCursor::Row(_)) => ListOrder::Row,
            Some(ListCursor::Key(_)) => ListOrder::Key,
            Some(ListCursor::Due { .. }) => ListOrder::Due,
        };
        match order == self.order() {
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

/// A place in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListCursor {
    /// After the row with this id.
    Row(u64),
    /// After this key.
    Key(String),
    /// After this entry of the index by status and due time.
    Due {
        /// The column `status`.
        status: u8,
        /// True if `sts` is 1.
        deleted: bool,
        /// When it may start.
        due_at: UnixMs,
        /// The id of the row.
        row: u64,
    },
}

/// The text form: `42`, `key.Order@close@7`, `due.0.0.1763750000000.42`.
impl fmt::Display for ListCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row(row) => write!(f, "{row}"),
            Self::Key(key) => {
                f.write_str("key.")?;
                key.bytes().try_for_each(|byte| match byte {
                    b'@' | b'_' | b'-' | b'.' | b':' => write!(f, "{}", char::from(byte)),
                    _ if byte.is_ascii_alphanumeric() => write!(f, "{}", char::from(byte)),
                    _ => write!(f, "%{byte:02x}"),
                })
            }
            Self::Due {
                status,
                deleted,
                due_at,
                row,
            } => write!(f, "due.{status}.{}.{}.{row}", u8::from(*deleted), due_at.0),
        }
    }
}

impl FromStr for ListCursor {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            if let Some(key) = text.strip_prefix("key.") {
                return Some(Self::Key(unescaped(key)?));
            }
            let Some(place) = text.strip_prefix("due.") else {
                return text.parse().ok().map(Self::Row);
            };
            let mut numbers = place.split('.');
            let place = Self::Due {
                status: numbers.next()?.parse().ok()?,
                deleted: numbers.next()?.parse::<u8>().ok()? == 1,
                due_at: UnixMs(numbers.next()?.parse().ok()?),
                row: numbers.next()?.parse().ok()?,
            };
            numbers.next().is_none().then_some(place)
        };
        read().ok_or("expected the value that the previous page printed after `--cursor`")
    }
}

fn unescaped(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'%' => {
                let [byte] = from_hex(&[bytes.next()?, bytes.next()?])?;
                byte
            }
            byte => byte,
        });
    }
    String::from_utf8(plain).ok()
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
