//! What people say about a series beside its rule, wherever they say it.

use super::{CATCH_UP_LIMIT, CatchUp, Overlap, Recurrence, RecurrenceError, TIMES_MAX, UnixMs};

/// What is said about a series beside `every` or `cron`; `None` where nothing is.
///
/// ```
/// use lapsed::task::{Recurrence, Terms};
///
/// let terms = Terms { catch_up_max: Some(3), ..Terms::default() };
/// let refused = terms.apply(Recurrence::cron("@daily")?).unwrap_err();
/// assert_eq!(refused.to_string(), "`catch_up_max` belongs to `catch_up` = `all`: nothing else makes up for more than one");
/// # Ok::<(), lapsed::task::RecurrenceError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Terms {
    /// No occurrence before this moment.
    pub start: Option<UnixMs>,
    /// No occurrence after this moment.
    pub until: Option<UnixMs>,
    /// So many occurrences.
    pub times: Option<u32>,
    /// What becomes of those that nobody ran in time.
    pub catch_up: Option<CatchUp>,
    /// How many of them [`CatchUp::All`] makes up for.
    pub catch_up_max: Option<u32>,
    /// Whether one waits for the one before.
    pub overlap: Option<Overlap>,
}

impl Terms {
    /// All that does not fit, or does not fit together.
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

    /// The recurrence with all this said about it.
    ///
    /// # Errors
    /// The first of the [`problems`](Self::problems).
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
    fn all_that_does_not_fit_is_said() {
        let terms = Terms {
            until: Some(UnixMs(1)),
            times: Some(0),
            catch_up: Some(CatchUp::Once),
            catch_up_max: Some(2),
            ..Terms::default()
        };
        assert_eq!(
            terms.problems(),
            [
                RecurrenceError::Times,
                RecurrenceError::TimesAndUntil,
                RecurrenceError::CatchUpMaxOfAll
            ]
        );
        for max in [0, CATCH_UP_LIMIT + 1, u32::MAX] {
            let all = Terms {
                catch_up: Some(CatchUp::All),
                catch_up_max: Some(max),
                ..Terms::default()
            };
            assert_eq!(all.problems(), [RecurrenceError::CatchUpMax]);
        }
    }

    #[test]
    fn what_is_said_is_what_it_becomes() {
        let daily = || Recurrence::cron("@daily").unwrap();
        assert_eq!(Terms::default().apply(daily()).unwrap(), daily());
        let terms = Terms {
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
        assert_eq!(terms.apply(daily()).unwrap(), expected);
    }
}
