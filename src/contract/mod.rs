//! What a client may say, whatever it speaks: command line, bulk files, HTTP and RESP read the same task and the same filter, and refuse them with
//! the same words. [`TaskView`] is what they show of a task.

mod filter;
mod members;
mod spec;
mod view;

pub use self::members::{AtMost, duration_text};
use crate::client::ClientError;

pub use self::filter::TaskFilter;
pub use self::spec::{TaskRequest, TaskSpec, due};
pub use self::view::{TaskView, kept_back};

fn invalid(what: impl Into<String>) -> ClientError {
    ClientError::Invalid(what.into())
}
