//! Pauses and holds: which tasks do not start for now.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::key::{KeyError, Part, check_name};
use super::{TaskKey, UnixMs, quoted};

/// A set of tasks: all, those of a class, or those of a class and method.
///
/// Names are exact: `Order` is the class `Order`, not `Orders`.
///
/// ```
/// use lapsed::task::{Scope, TaskKey};
///
/// let scope: Scope = "Order@close".parse()?;
/// assert!(scope.covers(&TaskKey::parse("Order@close@42").unwrap()));
/// assert!(!scope.covers(&TaskKey::parse("Order@closed").unwrap()));
/// assert!("Order@close@42".parse::<Scope>().is_err(), "single tasks are not paused");
/// # Ok::<(), lapsed::task::ScopeError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    /// `None` is every class.
    class: Option<String>,
    /// `None` is every method. Requires a class.
    method: Option<String>,
}

impl Scope {
    /// All tasks.
    pub const EVERYTHING: Self = Self {
        class: None,
        method: None,
    };

    /// All tasks of a class.
    ///
    /// # Errors
    /// Returns [`ScopeError`] if the name is invalid.
    pub fn class(class: &str) -> Result<Self, ScopeError> {
        check_name(Part::Class, class)?;
        Ok(Self {
            class: Some(class.to_owned()),
            method: None,
        })
    }

    /// All tasks of a class and method.
    ///
    /// # Errors
    /// Returns [`ScopeError`] if a name is invalid.
    pub fn method(class: &str, method: &str) -> Result<Self, ScopeError> {
        check_name(Part::Method, method)?;
        Ok(Self {
            method: Some(method.to_owned()),
            ..Self::class(class)?
        })
    }

    /// Returns the class, unless the scope covers all tasks.
    pub fn class_name(&self) -> Option<&str> {
        self.class.as_deref()
    }

    /// Returns the method, if the scope has one.
    pub fn method_name(&self) -> Option<&str> {
        self.method.as_deref()
    }

    /// True if the scope covers all tasks.
    pub fn is_everything(&self) -> bool {
        self.class.is_none()
    }

    /// True if the scope covers the task.
    pub fn covers(&self, key: &TaskKey) -> bool {
        self.class.as_ref().is_none_or(|class| key.class() == class)
            && self
                .method
                .as_ref()
                .is_none_or(|method| key.method() == method)
    }

    /// True if the scope covers all tasks of `other`.
    pub fn includes(&self, other: &Self) -> bool {
        (self.class.is_none() || self.class == other.class)
            && (self.method.is_none() || self.method == other.method)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.class, &self.method) {
            (None, _) => f.write_str("everything"),
            (Some(class), None) => f.write_str(class),
            (Some(class), Some(method)) => write!(f, "{class}@{method}"),
        }
    }
}

impl FromStr for Scope {
    type Err = ScopeError;

    /// Parses `Class` or `Class@method`.
    fn from_str(text: &str) -> Result<Self, ScopeError> {
        match text.split_once('@') {
            None => Self::class(text),
            Some((_, method)) if method.contains('@') => Err(ScopeError::Arguments {
                text: text.to_owned(),
            }),
            Some((class, method)) => Self::method(class, method),
        }
    }
}

/// The error for an invalid [`Scope`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScopeError {
    /// The class or the method is not a valid name.
    #[error(transparent)]
    Name(#[from] KeyError),
    /// It has arguments, and so names a single task.
    #[error("`{}` has arguments, expected `Class` or `Class@method`: single tasks are cancelled or rescheduled", quoted(.text))]
    Arguments {
        /// The text found.
        text: String,
    },
}

/// What a [`Pause`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseKind {
    /// Its tasks do not start.
    Pause,
    /// Tasks that were due before a given time do not start; they wait for review. At most one hold exists.
    Hold,
    /// Its tasks are exempt from the hold.
    Release,
}

impl PauseKind {
    /// Name in the ledger and in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Hold => "hold",
            Self::Release => "release",
        }
    }
}

/// An active pause, hold or release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// What it does.
    pub kind: PauseKind,
    /// The tasks that it covers.
    pub scope: Scope,
    /// When it began, on the ledger's clock.
    pub since: UnixMs,
    /// For a hold: tasks with an earlier due time (`end_time`) are held.
    pub due_before: Option<UnixMs>,
    /// For a pause: when it ends by itself, on the ledger's clock. `None`: when it is resumed.
    pub until: Option<UnixMs>,
    /// Name of the person or program that set it.
    pub by: String,
    /// The reason given.
    pub reason: String,
}

impl Pause {
    /// True if it has ended by itself at `now`, the ledger's time.
    pub fn is_over(&self, now: UnixMs) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// Describes since when, until when, by whom and why it is active. `time` shows a time.
    pub fn origin(&self, time: impl Fn(UnixMs) -> String) -> String {
        let mut text = format!("since {}", time(self.since));
        if let Some(until) = self.until {
            text = format!("{text} until {}", time(until));
        }
        if !self.by.is_empty() {
            text = format!("{text} by {}", self.by);
        }
        if !self.reason.is_empty() {
            text = format!("{text}: {}", self.reason);
        }
        text
    }
}

impl Serialize for Pause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            kind,
            scope,
            since,
            due_before,
            until,
            by,
            reason,
        } = self;
        let mut fields = serializer.serialize_struct("Pause", 8)?;
        fields.serialize_field("kind", kind)?;
        fields.serialize_field("class", &scope.class)?;
        fields.serialize_field("method", &scope.method)?;
        fields.serialize_field("since", &since.to_string())?;
        fields.serialize_field("due_before", &due_before.map(|due| due.to_string()))?;
        fields.serialize_field("until", &until.map(|until| until.to_string()))?;
        fields.serialize_field("by", by)?;
        fields.serialize_field("reason", reason)?;
        fields.end()
    }
}

/// All active pauses and holds. Decides about a task without I/O.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Paused {
    everything: bool,
    /// Paused `Class` and `Class@method`. A class has no `@`, so the two differ.
    names: HashSet<String>,
    /// Earlier due times are held, ...
    held_before: Option<UnixMs>,
    /// ... except those of these names.
    released: HashSet<String>,
}

/// Why a task may not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockedBy {
    /// Its class, its method or everything is paused.
    Paused,
    /// It was due before the time of the hold.
    Held,
}

impl BlockedBy {
    /// Name in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Held => "held",
        }
    }
}

impl Paused {
    /// Combines pauses, holds and releases.
    pub fn of(pauses: &[Pause]) -> Self {
        let mut this = Self::default();
        for pause in pauses {
            let name = pause.scope.to_string();
            match pause.kind {
                PauseKind::Pause if pause.scope.is_everything() => this.everything = true,
                PauseKind::Pause => drop(this.names.insert(name)),
                PauseKind::Hold => this.held_before = pause.due_before,
                PauseKind::Release => drop(this.released.insert(name)),
            }
        }
        this
    }

    /// True if nothing is paused or held.
    pub fn is_empty(&self) -> bool {
        !self.everything && self.names.is_empty() && self.held_before.is_none()
    }

    /// True if everything is paused.
    pub fn is_everything(&self) -> bool {
        self.everything
    }

    /// Returns why a task may not start, if so. `due` is its `end_time`, which identifies the arming also for a retry.
    pub fn blocks(&self, key: &TaskKey, due: UnixMs) -> Option<BlockedBy> {
        if self.everything || among(&self.names, key) {
            return Some(BlockedBy::Paused);
        }
        let held = self.held_before_of(key).is_some_and(|before| due < before);
        held.then_some(BlockedBy::Held)
    }

    /// Returns the due time before which this task is held.
    pub fn held_before_of(&self, key: &TaskKey) -> Option<UnixMs> {
        self.held_before.filter(|_| !among(&self.released, key))
    }

    /// Returns the due time before which tasks are held.
    pub fn held_before(&self) -> Option<UnixMs> {
        self.held_before
    }

    /// Returns the paused classes and `Class@method`s.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Returns the classes and `Class@method`s that are exempt from the hold.
    pub fn released(&self) -> impl Iterator<Item = &str> {
        self.released.iter().map(String::as_str)
    }

    /// True if a task that `before` blocked may start now.
    pub fn unblocks(&self, before: &Self) -> bool {
        (before.everything && !self.everything)
            || !before.names.is_subset(&self.names)
            || (before.held_before > self.held_before)
            || !self.released.is_subset(&before.released)
    }
}

fn among(names: &HashSet<String>, key: &TaskKey) -> bool {
    !names.is_empty() && (names.contains(key.class()) || names.contains(key.class_method()))
}

#[cfg(test)]
mod tests;
