//! The pure core: keys, due times, states, and the verdict on each run.
//!
//! This module does no I/O, reads no clock and draws no random numbers: `now` and jitter are arguments. It knows no
//! ledger, Redis or handlers.

mod adoption;
mod after;
mod arming;
mod bucket;
mod causes;
mod class_glob;
mod contents;
mod envelope;
mod error_kind;
mod history;
mod json_text;
mod key;
mod lifecycle;
mod limits;
mod one_line;
mod pause;
mod rate;
mod recurrence;
mod retry;
mod schedule;
mod series;
mod signature;
mod size;
mod state;
mod table_name;
mod tag;
mod task_json;
mod task_name;
mod trace;

pub use adoption::{
    ADOPTION_CLOCK_ERROR_MAX, AdoptionDecision, Countdown, EVENT_DELAY_MAX, Origin,
    READ_TO_ROW_MAX, Removal, RowEvidence, decide_adoption, decide_requested, is_younger,
    may_be_replaced, row_due,
};
pub use after::{After, IfDead};
pub use arming::Arming;
pub use bucket::{KeyBucket, KeyBuckets};
pub use causes::with_causes;
pub use class_glob::ClassGlob;
pub use class_glob::matches;
pub use contents::Contents;
pub use envelope::Envelope;
pub use envelope::{RESERVED_MEMBER, has_reserved_member};
pub use error_kind::error_kind;
pub use error_kind::error_kind_pattern;
pub use history::prepend;
pub use history::{AttemptError, HISTORY_ERROR_BYTES_MAX, HISTORY_MAX, How, Reason, UnknownReason};
pub use json_text::JsonText;
pub use key::SENTINEL_PREFIX;
pub use key::{Foreign, HIDDEN, KEY_BYTES_MAX, KeyError, KeyName, TaskKey};
pub use lifecycle::{
    Attempt, Death, EndedOccurrence, EndedRun, Failure, NotAnOccurrence, OccurrenceEnd,
    OccurrenceOutcome, Outcome, POISON_CRASHES, RetryAdvice, SNOOZES_MAX, SUSPECT_CRASHES, Verdict,
    judge,
};
pub use limits::Limits;
pub use one_line::{is_invisible, on_one_line, parser_message, quoted};
pub use pause::{BlockedBy, Pause, PauseKind, Paused, Scope, ScopeError};
pub use rate::{Bucket, Grant, Rate, RateError};
pub use recurrence::{
    CATCH_UP_LIMIT, CATCH_UP_MAX, CatchUp, EVERY_MIN, GRACE_MAX, Overlap, Recurrence,
    RecurrenceError, RecurrenceInput, RecurrenceOptions, Repeats, TIMES_MAX,
};
pub use retry::{Backoff, RetryPolicy};
pub use schedule::parse_span;
pub use schedule::{DELAY_MAX, Due, ScheduleError, UnixMs, parse_length};
pub use series::Occurrence;
pub use series::instance_key;
pub use signature::is_authentic;
pub use signature::{SECRET_BYTES_MIN, sign};
pub use size::{
    ERROR_BYTES_MAX, PAYLOAD_BYTES_MAX, PAYLOAD_READ_MAX, RESULT_BYTES_MAX, TAG_CHARS_MAX,
};
pub use state::State;
pub use table_name::{TableName, TableNameError};
pub use task_json::JsonMember;
pub use task_json::TaskJson;
pub use task_name::is_name;
pub use task_name::{Takes, TaskName};
pub use trace::{Traceparent, TraceparentError};
