//! The diagnosis: what may be wrong with an installation, and what to do. Pure.
//!
//! ```text
//! facts ── conditions, with the thresholds ──> what is wrong ──> overview, /readyz, alerts, rules for Prometheus
//! rows, pauses, daemons ── why ──> the cause ──> the overview, the page of a task, `lapsed why`, `lapsed doctor`
//! ```
//!
//! Each condition, each threshold and each sentence is here once. Who asks gathers the facts that it knows and renders what
//! is found; the dashboard translates by [`Phrase`]. `doctor` adds probes of the servers, with [`Finding`]s of their own.

mod conditions;
mod facts;
pub(crate) mod finding;
mod message;
mod phrase;
mod thresholds;
mod why;

#[doc(hidden)] // for the program and the tests
pub use self::conditions::{CONDITIONS, Condition, Found, Patience, diagnose, overdue_severity};
#[doc(hidden)] // for the program and the tests
pub use self::facts::{Blocked, Facts, LedgerState};
pub use self::finding::{Finding, Severity};
#[doc(hidden)] // for the program and the tests
pub use self::message::{Message, Value, fill, sentence};
#[doc(hidden)] // for the program and the tests
pub use self::phrase::Phrase;
#[doc(hidden)] // for the program and the tests
pub use self::thresholds::{
    CANCELLED_BY_KEY_MIN, DEAD, DOWN_FOR, LATE, OVERDUE, SENTINEL_INTERVALS, STARTING, SWEPT_MIN,
    SWEPT_PERCENT, Thresholds, WINDOW,
};
pub use self::why::{Daemons, RouteFacts, Unlisted, Why, WhyCause, WhyFacts};

#[cfg(test)]
mod tests;
