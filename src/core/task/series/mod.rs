//! Occurrences of a recurring task: missed ones, the next one, and the verdict on the series. Pure.

use super::recurrence::CatchUp;
use super::{Death, OccurrenceEnd, Outcome, Reason, Recurrence, TaskKey, UnixMs, Verdict};

/// One occurrence of a series, as it was run.
#[derive(Debug, Clone, Copy)]
pub struct Occurrence<'a> {
    /// The recurrence of the series.
    pub recurrence: &'a Recurrence,
    /// Its due time, `end_time`.
    pub due: UnixMs,
    /// When it could start: its due time, the end of its latest retry or snooze, or its redrive.
    pub ready: UnixMs,
    /// When its latest run was claimed.
    pub started: UnixMs,
}

/// Returns the key of the occurrence at `due` if each is a separate task: the key of the series with the 13 digits of
/// the due time as suffix. `None` if it is too long.
pub fn instance_key(series: &TaskKey, due: UnixMs) -> Option<TaskKey> {
    series.with_suffix(&format!("{:013}", due.0)).ok()
}

impl Occurrence<'_> {
    /// True if it was missed and is not run: it starts too late, and the recurrence skips missed occurrences, or enough
    /// later ones exist for its `catch_up_max`.
    pub fn is_missed(&self) -> bool {
        let is_late = || self.started.since(self.ready) > self.recurrence.grace(self.due);
        match self.recurrence.catches_up() {
            (CatchUp::Skip, _) => is_late(),
            (CatchUp::Once, _) => false,
            (CatchUp::All, max) => {
                let behind = self.recurrence.continues_after(self.due);
                is_late()
                    && self.recurrence.at_most(behind, self.started) >= u64::from(max)
                    && self.recurrence.count(behind, self.started, max) == max
            }
        }
    }

    /// Returns the next occurrence as of `now`, or `None` if the series has ended.
    pub fn following(&self, now: UnixMs) -> Option<UnixMs> {
        let recurrence = self.recurrence;
        let base = recurrence.continues_after(self.due);
        let after = match recurrence.catches_up() {
            (CatchUp::Skip, _) => base.max(self.just_missed(now)),
            // Its run replaced all occurrences that were due when it started.
            (CatchUp::Once, _) => base.max(self.started),
            (CatchUp::All, max) => self.latest(base, now, max),
        };
        recurrence.next(after)
    }

    /// Turns the verdict on this occurrence into the verdict on the series. A task that kills its daemon must not recur:
    /// its burial ends the series.
    pub fn series_verdict(&self, verdict: Verdict, outcome: &Outcome, now: UnixMs) -> Verdict {
        let next = |end, result, otherwise: Verdict| match self.following(now) {
            Some(next) => Verdict::NextOccurrence { next, end, result },
            None => otherwise,
        };
        match verdict {
            Verdict::Complete => next(end_of(outcome), None, Verdict::Complete),
            Verdict::CompleteWith(result) => next(
                end_of(outcome),
                Some(result.clone()),
                Verdict::CompleteWith(result),
            ),
            Verdict::Bury(death) if *outcome != Outcome::Poisoned => {
                let end = OccurrenceEnd::Failed(death.clone());
                next(end, None, Verdict::Bury(death))
            }
            Verdict::RetryAt {
                at,
                error,
                attempt_error,
            } if self.yields(at, now) => {
                let death = Death {
                    reason: Reason::Deadline,
                    error: format!("gave up in favour of the next occurrence: {error}"),
                    attempt_error: attempt_error.clone(),
                };
                let retry = Verdict::RetryAt {
                    at,
                    error,
                    attempt_error,
                };
                next(OccurrenceEnd::Failed(death), None, retry)
            }
            Verdict::Snooze { at, attempt_error } if self.yields(at, now) => {
                let snooze = Verdict::Snooze { at, attempt_error };
                next(OccurrenceEnd::Skipped, None, snooze)
            }
            verdict => verdict,
        }
    }

    /// True if a retry at `at` gives way to the next occurrence. With [`CatchUp::All`] the next occurrence waits
    /// instead.
    fn yields(&self, at: UnixMs, now: UnixMs) -> bool {
        let (catch_up, _) = self.recurrence.catches_up();
        let keeps_waiting = || self.following(now).is_some_and(|next| at >= next);
        catch_up != CatchUp::All && keeps_waiting()
    }

    /// Occurrences up to the returned time were missed.
    fn just_missed(&self, now: UnixMs) -> UnixMs {
        let coming = self.recurrence.next(now).unwrap_or(now);
        UnixMs(
            now.0
                .saturating_sub(self.recurrence.grace(coming).as_millis() as i64 + 1),
        )
    }

    /// Returns the time after which at most `max` occurrences are due until `now`. Takes about `max` steps: it searches
    /// back from `now` in stretches of time, each of which is read once.
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

/// How an occurrence ended whose verdict is that it is complete.
fn end_of(outcome: &Outcome) -> OccurrenceEnd {
    match outcome {
        Outcome::Missed => OccurrenceEnd::Skipped,
        Outcome::HandedOn => OccurrenceEnd::HandedOn,
        _ => OccurrenceEnd::Succeeded,
    }
}

/// Returns the occurrences after `after` and up to `to`, the first `max` of them.
fn within(recurrence: &Recurrence, after: UnixMs, to: UnixMs, max: usize) -> Vec<UnixMs> {
    let next = |at: &UnixMs| recurrence.next(*at).filter(|next| *next <= to);
    std::iter::successors(next(&after), next)
        .take(max)
        .collect()
}

#[cfg(test)]
mod tests;
