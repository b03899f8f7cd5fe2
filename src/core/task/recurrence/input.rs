//! Input of a recurrence rule: `every` or `cron` as text.

use std::time::Duration;

use super::{Recurrence, RecurrenceError};
use crate::task::parse_length;

/// A recurrence rule as text, from a file or the command line.
#[derive(Debug, Clone, Copy)]
pub struct RecurrenceInput<'a> {
    /// A duration such as `15m`.
    pub every: Option<&'a str>,
    /// A cron expression.
    pub cron: Option<&'a str>,
    /// An IANA time zone, for the cron expression.
    pub tz: Option<&'a str>,
}

impl RecurrenceInput<'_> {
    /// Parses the rule. Options have their defaults.
    ///
    /// # Errors
    /// Returns a [`RecurrenceError`] that says what was expected.
    pub fn rule(self) -> Result<Recurrence, RecurrenceError> {
        let recurrence = match (self.every, self.cron) {
            (Some(every), None) => Recurrence::every(period(every)?)?,
            (None, Some(cron)) => Recurrence::cron(cron)?,
            _ => return Err(RecurrenceError::EveryOrCron),
        };
        match self.tz {
            Some(zone) => recurrence.in_zone(zone),
            None => Ok(recurrence),
        }
    }
}

fn period(text: &str) -> Result<Duration, RecurrenceError> {
    parse_length(text).map_err(|_| RecurrenceError::Every)
}
