//! How many tasks fall due when.

use std::time::Duration;

use crate::task::UnixMs;

/// Which tasks a [`Forecast`] counts: those that may start within `steps` steps from `from` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForecastRange {
    /// Start of the first step.
    pub from: UnixMs,
    /// Length of a step: a millisecond at least.
    pub step: Duration,
    /// Number of steps.
    pub steps: u32,
    /// Index entries that are counted at most, earliest first.
    pub entries: u32,
}

impl ForecastRange {
    /// Length of a step in milliseconds.
    pub fn step_ms(&self) -> i64 {
        i64::try_from(self.step.as_millis())
            .unwrap_or(i64::MAX)
            .max(1)
    }

    /// End of the last step.
    pub fn until(&self) -> UnixMs {
        let length = self.step_ms().saturating_mul(self.steps.into());
        UnixMs(self.from.0.saturating_add(length))
    }

    /// The step of a due time that is not before `from`.
    pub fn step_of(&self, due_at: UnixMs) -> u64 {
        let after = due_at.0.saturating_sub(self.from.0);
        u64::try_from(after / self.step_ms()).unwrap_or(0)
    }
}

/// The number of pending and waiting tasks by the time at which they may start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forecast {
    /// Start of the first step.
    pub from: UnixMs,
    /// Length of a step.
    pub step: Duration,
    /// Tasks of each step. If [`is_part`](Self::is_part), it ends with the last step that was counted whole; or it is the
    /// first step, of which there are more.
    pub counts: Vec<u64>,
    /// True if there are more tasks than were counted.
    pub is_part: bool,
}

impl Forecast {
    /// Puts together what was counted, as pairs of a step and its number of tasks. One entry more than `range.entries`
    /// says that there are more.
    pub fn of(range: &ForecastRange, counted: &[(u64, u64)]) -> Self {
        let all: u64 = counted.iter().map(|(_, tasks)| tasks).sum();
        let is_part = all > u64::from(range.entries);
        let last = counted.iter().map(|(step, _)| *step).max();
        let steps = match last.filter(|_| is_part) {
            // The last one was not counted whole.
            Some(last) => last.max(1),
            None => range.steps.into(),
        };
        let mut counts = vec![0; usize::try_from(steps).unwrap_or_default()];
        for (step, tasks) in counted {
            let step = usize::try_from(*step).ok();
            if let Some(count) = step.and_then(|step| counts.get_mut(step)) {
                *count += tasks;
            }
        }
        Self {
            from: range.from,
            step: range.step,
            counts,
            is_part,
        }
    }
}
