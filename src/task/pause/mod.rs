//! Pauses: which tasks do not start for now, because somebody said so.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::key::{KeyError, Part, check_name};
use super::{TaskKey, UnixMs};

/// Tasks by class and method.
///
/// Names are exact: `Order` is the class `Order`, and not `Orders`.
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
    /// `None`: every class.
    class: Option<String>,
    /// `None`: every method. Never without a class.
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
    /// [`ScopeError`]: it is not the name of one.
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
    /// [`ScopeError`]: these are not names of such.
    pub fn method(class: &str, method: &str) -> Result<Self, ScopeError> {
        check_name(Part::Method, method)?;
        Ok(Self {
            method: Some(method.to_owned()),
            ..Self::class(class)?
        })
    }

    /// The class, if it is about one.
    pub fn class_name(&self) -> Option<&str> {
        self.class.as_deref()
    }

    /// The method, if it is about one.
    pub fn method_name(&self) -> Option<&str> {
        self.method.as_deref()
    }

    /// Whether it is about all tasks.
    pub fn is_everything(&self) -> bool {
        self.class.is_none()
    }

    /// Whether a task is one of these.
    pub fn covers(&self, key: &TaskKey) -> bool {
        self.class.as_ref().is_none_or(|class| key.class() == class)
            && self
                .method
                .as_ref()
                .is_none_or(|method| key.method() == method)
    }

    /// Whether all tasks of `other` are among these.
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

    /// Reads `Class` or `Class@method`.
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

/// Why a text names no [`Scope`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScopeError {
    /// The class or the method is not a name.
    #[error(transparent)]
    Name(#[from] KeyError),
    /// It names a single task.
    #[error("`{}` has arguments, expected `Class` or `Class@method`: single tasks are cancelled or rescheduled", .text.escape_debug())]
    Arguments {
        /// What was found.
        text: String,
    },
}

/// What a [`Pause`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseKind {
    /// None of its tasks starts.
    Pause,
    /// None of the tasks starts that were due before a moment: they wait for review. There is one hold at most.
    Hold,
    /// Its tasks are let go of that hold.
    Release,
}

impl PauseKind {
    /// The word for it, in the ledger too.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Hold => "hold",
            Self::Release => "release",
        }
    }
}

/// What keeps tasks from starting, since when, and who says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// What it does.
    pub kind: PauseKind,
    /// To which tasks.
    pub scope: Scope,
    /// Since when, on the ledger's clock.
    pub since: UnixMs,
    /// Of a hold: tasks with an earlier due time (`end_time`) are held.
    pub due_before: Option<UnixMs>,
    /// Who set it, for people.
    pub by: String,
    /// Why, for people.
    pub reason: String,
}

impl Pause {
    /// Since when, by whom and why, in half a sentence.
    pub fn origin(&self) -> String {
        let mut text = format!("since {}", self.since);
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
            by,
            reason,
        } = self;
        let mut fields = serializer.serialize_struct("Pause", 7)?;
        fields.serialize_field("kind", kind)?;
        fields.serialize_field("class", &scope.class)?;
        fields.serialize_field("method", &scope.method)?;
        fields.serialize_field("since", &since.to_string())?;
        fields.serialize_field("due_before", &due_before.map(|due| due.to_string()))?;
        fields.serialize_field("by", by)?;
        fields.serialize_field("reason", reason)?;
        fields.end()
    }
}

/// What is paused and held at one time: answers for a task without asking anybody.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Paused {
    everything: bool,
    /// `Class` and `Class@method`: a class has no `@`, so the two are not taken for each other.
    names: HashSet<String>,
    /// Due times before this are held..
    held_before: Option<UnixMs>,
    /// ..but not of these.
    released: HashSet<String>,
}

/// What keeps a task from starting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Hindrance {
    /// Its class, its method or everything is paused.
    Paused,
    /// It was due before the moment of the hold.
    Held,
}

impl Hindrance {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Held => "held",
        }
    }
}

impl Paused {
    /// What these come to.
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

    /// Whether nothing is paused or held.
    pub fn is_empty(&self) -> bool {
        !self.everything && self.names.is_empty() && self.held_before.is_none()
    }

    /// Whether everything is paused.
    pub fn is_everything(&self) -> bool {
        self.everything
    }

    /// What keeps a task from starting, given its due time (`end_time`, which identifies the arming: a retry goes with
    /// the arming that it belongs to).
    pub fn hinders(&self, key: &TaskKey, due: UnixMs) -> Option<Hindrance> {
        if self.everything || among(&self.names, key) {
            return Some(Hindrance::Paused);
        }
        let held = self.held_before_of(key).is_some_and(|before| due < before);
        held.then_some(Hindrance::Held)
    }

    /// Before which due time this task is held, if it is at all.
    pub fn held_before_of(&self, key: &TaskKey) -> Option<UnixMs> {
        self.held_before.filter(|_| !among(&self.released, key))
    }

    /// Due times before this are held.
    pub fn held_before(&self) -> Option<UnixMs> {
        self.held_before
    }

    /// The paused ones among classes and `Class@method`s.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// The classes and `Class@method`s that were let go of the hold.
    pub fn released(&self) -> impl Iterator<Item = &str> {
        self.released.iter().map(String::as_str)
    }

    /// Whether a task that `before` kept from starting may start now.
    pub fn lets_go_of(&self, before: &Self) -> bool {
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
