//! Refusals.

use super::scope::AccessScope;
use crate::task::ClassGlob;

/// Why a principal may not do something. Each server puts its own code before the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Denied {
    /// It lacks a scope.
    #[error("expected a caller with the scope `{}`", .0.as_str())]
    Scope(AccessScope),
    /// It may touch these classes only.
    #[error("this caller may touch tasks of {} only", quoted(.0))]
    Classes(Vec<ClassGlob>),
    /// It may touch some classes only, and the answer would be about all.
    #[error("this is about all classes: expected a caller without `classes`")]
    AllClasses,
    /// The table is so large that the tasks of some classes are not counted apart.
    #[error(
        "there are too many tasks to count those of some classes alone: expected a caller without `classes`"
    )]
    TooManyToCount,
}

fn quoted(classes: &[ClassGlob]) -> String {
    let quoted: Vec<String> = classes.iter().map(|glob| format!("`{glob}`")).collect();
    quoted.join(", ")
}
