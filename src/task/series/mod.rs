//! Occurrences of a recurring task: missed ones, the next one, and the verdict of the series. Pure.

use std::time::Duration;

use super::recurrence::CatchUp;
use super::{
    Death, KEY_BYTES_MAX, Outcome, Reason, Recurrence, RecurrenceError, TaskKey, UnixMs, Verdict,
};

/// An occurrence that is later than this, or than half its period, was missed.
pub const GRACE_MAX: Duration = Duration::from_secs(60);

/// Most missed occurrences that are counted.
const COUNTED_MAX: u32 = 1_000;

/// One occurrence of a series, as it was run.
#[derive(Debug, Clone, Copy)]
pub struct Occurrence<'a> {
    /// Of which series.
    pub recurrence: &'a Recurrence,
    /// When it was due: `end_time`.
    pub due: UnixMs,
    /// When it could begin: then, or when its latest retry or snooze was over, or when it was redriven.
    pub ready: UnixMs,
    /// When its latest run was claimed.
    pub started: UnixMs,
}

/// The key of the occurrence at `due`, where each is a task of its own: that of the series, and the 13 digits of its
/// due time. `None` if it would be too long.
pub fn instance_key(series: &TaskKey, due: UnixMs) -> Option<TaskKey> {
    series.with_suffix(&format!("{:013}", due.0)).ok()
}

impl Recurrence {
    /// The moment after which the series continues from the arming at `due`: the original time of an occurrence that was
    /// moved, if that is later.
    pub fn continues_after(&self, due: UnixMs) -> UnixMs {
        self.moved_from().map_or(due, |from| from.max(due))
    }

    /// The moment after which a new series has its first occurrence: `now`, or just before its start, if that is an
    /// occurrence and has only just passed. So a start of "now" is not missed by the time it is written.
    pub fn starts_after(&self, now: UnixMs) -> UnixMs {
        let is_young = |start: &UnixMs| *start <= now && now.since(*start) <= self.grace(*start);
        match self.start().filter(is_young) {
            Some(start) if self.has(start) => UnixMs(start.0 - 1),
            _ => now,
        }
    }

    /// How late an occurrence may begin: half the time until the next one, at most [`GRACE_MAX`].
    fn grace(&self, due: UnixMs) -> Duration {
        let next = self.next(due);
        next.map_or(GRACE_MAX, |next| (next.since(due) / 2).min(GRACE_MAX))
    }

    /// No more occurrences than this lie behind `after` and up to `to`. A change of the clocks may bring two closer
    /// together than they are else.
    fn at_most(&self, after: UnixMs, to: UnixMs) -> u64 {
        const SPARE: u64 = 3;
        let span = u64::try_from(to.0.saturating_sub(after.0)).unwrap_or(0);
        span / self.closest().as_millis().max(1) as u64 + SPARE
    }

    /// How many occurrences lie between these two, as far as they are counted: up to 1,000.
    pub fn between(&self, after: UnixMs, before: UnixMs) -> u32 {
        let after = self.continues_after(after);
        count(self, after, UnixMs(before.0.saturating_sub(1)), COUNTED_MAX)
    }

    /// Whether each occurrence of this key can be a task of its own, where that is wanted.
    ///
    /// # Errors
    /// [`RecurrenceError::KeyTooLong`], [`RecurrenceError::KeyHasSuffix`].
    pub fn check_room(&self, key: &TaskKey) -> Result<(), RecurrenceError> {
        const SUFFIX_BYTES: usize = "@~1763750000000".len();
        let bytes = key.as_str().len();
        if self.may_overlap()
            && let Some(suffix) = key.suffix()
        {
            return Err(RecurrenceError::KeyHasSuffix(suffix.to_owned()));
        }
        match self.may_overlap() && bytes + SUFFIX_BYTES > KEY_BYTES_MAX {
            true => Err(RecurrenceError::KeyTooLong {
                bytes,
                max: KEY_BYTES_MAX - SUFFIX_BYTES,
            }),
            false => Ok(()),
        }
    }
}

impl Occurrence<'_> {
    /// Whether it was missed: it is not run any more. Only where missed ones are left out, or those beyond a number and
    /// enough of them are behind this one.
    pub fn is_missed(&self) -> bool {
        let is_late = || self.started.since(self.ready) > self.recurrence.grace(self.due);
        match self.recurrence.catches_up() {
            (CatchUp::Skip, _) => is_late(),
            (CatchUp::Once, _) => false,
            (CatchUp::All, max) => {
                let behind = self.recurrence.continues_after(self.due);
                is_late()
                    && self.recurrence.at_most(behind, self.started) >= u64::from(max)
                    && count(self.recurrence, behind, self.started, max) == max
            }
        }
    }

    /// The next occurrence as of `now`; `None` if the series has ended.
    pub fn following(&self, now: UnixMs) -> Option<UnixMs> {
        let recurrence = self.recurrence;
        let base = recurrence.continues_after(self.due);
        let after = match recurrence.catches_up() {
            (CatchUp::Skip, _) => base.max(self.just_missed(now)),
            // Its run stood for all that had fallen due when it began.
            (CatchUp::Once, _) => base.max(self.started),
            (CatchUp::All, max) => self.latest(base, now, max),
        };
        recurrence.next(after)
    }

    /// Turns the verdict on this occurrence into the verdict on the series. A task that kills its daemon must not recur:
    /// its burial ends the series.
    pub fn series_verdict(&self, verdict: Verdict, outcome: &Outcome, now: UnixMs) -> Verdict {
        let next = |ran, died, result, otherwise: Verdict| match self.following(now) {
            Some(next) => Verdict::NextOccurrence {
                next,
                ran,
                died,
                result,
            },
            None => otherwise,
        };
        match verdict {
            Verdict::Complete => next(outcome.was_run(), None, None, Verdict::Complete),
            Verdict::CompleteWith(result) => next(
                outcome.was_run(),
                None,
                Some(result.clone()),
                Verdict::CompleteWith(result),
            ),
            Verdict::Bury(death) if *outcome != Outcome::Poisoned => {
                next(true, Some(death.clone()), None, Verdict::Bury(death))
            }
            Verdict::RetryAt { at, error, mishap } if self.yields(at, now) => {
                let death = Death {
                    reason: Reason::Deadline,
                    error: format!("gave up in favour of the next occurrence: {error}"),
                    mishap: mishap.clone(),
                };
                let retry = Verdict::RetryAt { at, error, mishap };
                next(true, Some(death), None, retry)
            }
            Verdict::Snooze { at, mishap } if self.yields(at, now) => {
                next(false, None, None, Verdict::Snooze { at, mishap })
            }
            verdict => verdict,
        }
    }

    /// Whether a retry at this time would keep the next occurrence waiting. Where every occurrence counts, it waits.
    fn yields(&self, at: UnixMs, now: UnixMs) -> bool {
        let (catch_up, _) = self.recurrence.catches_up();
        let keeps_waiting = || self.following(now).is_some_and(|next| at >= next);
        catch_up != CatchUp::All && keeps_waiting()
    }

    /// What fell due up to this moment was missed.
    fn just_missed(&self, now: UnixMs) -> UnixMs {
        let coming = self.recurrence.next(now).unwrap_or(now);
        UnixMs(
            now.0
                .saturating_sub(self.recurrence.grace(coming).as_millis() as i64 + 1),
        )
    }

    /// From when on there are no more than `max` until `now`. Takes about `max` steps however much was missed: it looks
    /// back from `now` through stretches of time, each of which is read once.
    fn latest(&self, base: UnixMs, now: UnixMs, max: u32) -> UnixMs {
        if self.recurrence.at_most(base, now) <= u64::from(max) {
            return base;
        }
        let closest = self.recurrence.closest().as_millis() as i64;
        let mut span = closest.saturating_mul(i64::from(max) + 1);
        let (mut left, mut to) = (max as usize, now);
        while to > base {
            let from = base.max(UnixMs(to.0.saturating_sub(span)));
            let cap = 2 * (max as usize + 1);
            let found = within(self.recurrence, from, to, cap);
            if found.len() >= cap && span > closest {
                span /= 2;
                continue;
            }
            if let Some(last) = found.len().checked_sub(left + 1) {
                return found[last];
            }
            left -= found.len();
            to = from;
            if found.len() < cap / 8 {
                span = span.saturating_mul(4);
            }
        }
        base
    }
}

/// The occurrences behind `after` and up to `to`, the first `max` of them.
fn within(recurrence: &Recurrence, after: UnixMs, to: UnixMs, max: usize) -> Vec<UnixMs> {
    let next = |at: &UnixMs| recurrence.next(*at).filter(|next| *next <= to);
    std::iter::successors(next(&after), next)
        .take(max)
        .collect()
}

/// How many lie behind `after` and up to `to`, at most `max`.
fn count(recurrence: &Recurrence, after: UnixMs, to: UnixMs, max: u32) -> u32 {
    let mut at = after;
    for counted in 0..max {
        match recurrence.next(at) {
            Some(next) if next <= to => at = next,
            _ => return counted,
        }
    }
    max
}

#[cfg(test)]
mod tests;
