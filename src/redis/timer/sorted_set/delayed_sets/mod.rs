//! The delayed queues of frameworks, beside any other timer.
//!
//! A job is mirrored as a row, and its signal is raised from memory. Unlike the entries of lapsed's own sets, a job stays as
//! the framework has written it, because the framework's own poller reads the set, too. What was seen is noted in a
//! register beside the set.

mod beside;
mod reader;
mod sets;

pub use self::beside::WithDelayedSets;
