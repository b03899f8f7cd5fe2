//! JSON form of a recurrence.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{
    CATCH_UP_MAX, CatchUp, Overlap, Recurrence, RecurrenceError, RecurrenceInput, Rule, UTC, span,
};
use crate::task::{Due, UnixMs, parser_message};

/// The JSON of a recurrence, in the ledger and in files.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    #[serde(skip_serializing_if = "Option::is_none")]
    every: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tz: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<u32>,
    #[serde(default, skip_serializing_if = "is_default")]
    catch_up: CatchUp,
    #[serde(skip_serializing_if = "Option::is_none")]
    catch_up_max: Option<u32>,
    #[serde(default, skip_serializing_if = "is_default")]
    overlap: Overlap,
    /// Milliseconds. Written by the statement that moves an occurrence.
    #[serde(skip_serializing_if = "Option::is_none")]
    moved_from: Option<i64>,
    /// Pruning statements search for this name.
    #[serde(rename = "standing", default, skip_serializing_if = "is_default")]
    configured: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl fmt::Display for Recurrence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (every, cron, tz) = match &self.rule {
            Rule::Every(period) => (Some(span(*period)), None, None),
            Rule::Cron(rule) => {
                let zone = rule.zone_name();
                let zone = (zone != UTC).then(|| zone.to_owned());
                (None, Some(rule.text().to_owned()), zone)
            }
        };
        let stored = Stored {
            every,
            cron,
            tz,
            start: self.start.map(|start| start.to_string()),
            until: self.until.map(|until| until.to_string()),
            times: self.times,
            catch_up: self.catch_up,
            catch_up_max: (self.catch_up_max != CATCH_UP_MAX).then_some(self.catch_up_max),
            overlap: self.overlap,
            moved_from: self.moved_from.map(|moment| moment.0),
            configured: self.configured,
        };
        f.write_str(&serde_json::to_string(&stored).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Recurrence {
    type Err = RecurrenceError;

    fn from_str(text: &str) -> Result<Self, RecurrenceError> {
        let Stored {
            every,
            cron,
            tz,
            start,
            until,
            times,
            catch_up,
            catch_up_max,
            overlap,
            moved_from,
            configured,
        } = serde_json::from_str(text)
            .map_err(|error| RecurrenceError::Json(parser_message(&error.to_string())))?;
        let input = RecurrenceInput {
            every: every.as_deref(),
            cron: cron.as_deref(),
            tz: tz.as_deref(),
        };
        let mut recurrence = input.rule()?;
        recurrence.start = start.as_deref().map(moment).transpose()?;
        recurrence.until = until.as_deref().map(moment).transpose()?;
        if let Some(times) = times {
            recurrence = recurrence.times(times)?;
        }
        if let Some(occurrences) = catch_up_max {
            recurrence = recurrence.catch_up_max(occurrences);
        }
        Ok(Self {
            moved_from: moved_from.map(UnixMs),
            configured,
            ..recurrence.catch_up(catch_up).overlap(overlap)
        })
    }
}

fn moment(text: &str) -> Result<UnixMs, RecurrenceError> {
    let due = Due::parse_moment(text).map_err(|error| RecurrenceError::Json(error.to_string()))?;
    Ok(due.resolve(UnixMs(0)))
}
