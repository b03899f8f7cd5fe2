//! Options of a recurrence besides its rule.

use super::{CATCH_UP_LIMIT, CatchUp, Overlap, Recurrence, RecurrenceError, TIMES_MAX};
use crate::task::UnixMs;

/// Options of a recurrence besides `every` or `cron`; `None` means the default.
///
/// ```
/// use lapsed::task::{Recurrence, RecurrenceOptions};
///
/// let options = RecurrenceOptions { catch_up_max: Some(3), ..RecurrenceOptions::default() };
/// let refused = options.apply(Recurrence::cron("@daily")?).unwrap_err();
/// assert_eq!(refused.to_string(), "`catch_up_max` requires `catch_up` = `all`");
/// # Ok::<(), lapsed::task::RecurrenceError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecurrenceOptions {
    /// No occurrence before this moment.
    pub start: Option<UnixMs>,
    /// No occurrence after this moment.
    pub until: Option<UnixMs>,
    /// Number of occurrences.
    pub times: Option<u32>,
    /// How missed occurrences are treated.
    pub catch_up: Option<CatchUp>,
    /// Most missed occurrences that [`CatchUp::All`] runs.
    pub catch_up_max: Option<u32>,
    /// Whether an occurrence waits for the previous one.
    pub overlap: Option<Overlap>,
}

impl RecurrenceOptions {
    /// Checks all options, and their combination. Returns all problems.
    pub fn problems(&self) -> Vec<RecurrenceError> {
        let Self {
            start: _,
            until,
            times,
            catch_up,
            catch_up_max,
            overlap: _,
        } = self;
        let mut problems = Vec::new();
        if times.is_some_and(|times| !(1..=TIMES_MAX).contains(&times)) {
            problems.push(RecurrenceError::Times);
        }
        if times.is_some() && until.is_some() {
            problems.push(RecurrenceError::TimesAndUntil);
        }
        match catch_up_max {
            None => {}
            Some(max) if !(1..=CATCH_UP_LIMIT).contains(max) => {
                problems.push(RecurrenceError::CatchUpMax)
            }
            Some(_) if *catch_up == Some(CatchUp::All) => {}
            Some(_) => problems.push(RecurrenceError::CatchUpMaxOfAll),
        }
        problems
    }

    /// Applies the options to a recurrence.
    ///
    /// # Errors
    /// Returns the first of the [`problems`](Self::problems).
    pub fn apply(self, recurrence: Recurrence) -> Result<Recurrence, RecurrenceError> {
        if let Some(problem) = self.problems().into_iter().next() {
            return Err(problem);
        }
        let Self {
            start,
            until,
            times,
            catch_up,
            catch_up_max,
            overlap,
        } = self;
        let mut recurrence = recurrence
            .catch_up(catch_up.unwrap_or_default())
            .overlap(overlap.unwrap_or_default());
        if let Some(start) = start {
            recurrence = recurrence.starting(start);
        }
        if let Some(until) = until {
            recurrence = recurrence.until(until);
        }
        if let Some(times) = times {
            recurrence = recurrence.times(times)?;
        }
        if let Some(occurrences) = catch_up_max {
            recurrence = recurrence.catch_up_max(occurrences);
        }
        Ok(recurrence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_problems_are_returned() {
        let options = RecurrenceOptions {
            until: Some(UnixMs(1)),
            times: Some(0),
            catch_up: Some(CatchUp::Once),
            catch_up_max: Some(2),
            ..RecurrenceOptions::default()
        };
        assert_eq!(
            options.problems(),
            [
                RecurrenceError::Times,
                RecurrenceError::TimesAndUntil,
                RecurrenceError::CatchUpMaxOfAll
            ]
        );
        for max in [0, CATCH_UP_LIMIT + 1, u32::MAX] {
            let all = RecurrenceOptions {
                catch_up: Some(CatchUp::All),
                catch_up_max: Some(max),
                ..RecurrenceOptions::default()
            };
            assert_eq!(all.problems(), [RecurrenceError::CatchUpMax]);
        }
    }

    #[test]
    fn options_are_applied() {
        let daily = || Recurrence::cron("@daily").unwrap();
        assert_eq!(
            RecurrenceOptions::default().apply(daily()).unwrap(),
            daily()
        );
        let options = RecurrenceOptions {
            start: Some(UnixMs(1_000)),
            until: Some(UnixMs(9_000)),
            times: None,
            catch_up: Some(CatchUp::All),
            catch_up_max: Some(7),
            overlap: Some(Overlap::Allow),
        };
        let expected = daily()
            .starting(UnixMs(1_000))
            .until(UnixMs(9_000))
            .catch_up(CatchUp::All)
            .catch_up_max(7)
            .overlap(Overlap::Allow);
        assert_eq!(options.apply(daily()).unwrap(), expected);
    }
}
