//! What follows when a run of a recurring task has ended. Pure.

use std::time::Duration;

use super::recurrence::CatchUp;
use super::{KEY_BYTES_MAX, Reason, Recurrence, RecurrenceError, TaskKey, UnixMs, Verdict};

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
    /// Where the series goes on behind the arming at `due`: behind the occurrence that this was, if somebody moved it.
    pub fn goes_on_behind(&self, due: UnixMs) -> UnixMs {
        self.moved_from().map_or(due, |from| from.max(due))
    }

    /// The first occurrence of a series that begins now lies behind this: behind now, or, if its start is an occurrence
    /// and has only just passed, before that. So a start of "now" is not over when it is written.
    pub fn begins_behind(&self, now: UnixMs) -> UnixMs {
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
        let after = self.goes_on_behind(after);
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
                let behind = self.recurrence.goes_on_behind(self.due);
                is_late()
                    && self.recurrence.at_most(behind, self.started) >= u64::from(max)
                    && count(self.recurrence, behind, self.started, max) == max
            }
        }
    }

    /// The next occurrence, seen from `now`; `None`: the series is over.
    pub fn following(&self, now: UnixMs) -> Option<UnixMs> {
        let recurrence = self.recurrence;
        let base = recurrence.goes_on_behind(self.due);
        let after = match recurrence.catches_up() {
            (CatchUp::Skip, _) => base.max(self.just_missed(now)),
            // Its run stood for all that had fallen due when it began.
            (CatchUp::Once, _) => base.max(self.started),
            (CatchUp::All, max) => self.latest(base, now, max),
        };
        recurrence.next(after)
    }

    /// What is done about this occurrence becomes what is done about the series. `ends` it: a task that kills its daemon
    /// is not to come again.
    pub fn go_on(&self, verdict: Verdict, ends: bool, now: UnixMs) -> Verdict {
        let next = |died: Option<(Reason, String)>, otherwise: Verdict| match self.following(now) {
            Some(next) => Verdict::GoOn { next, died },
            None => otherwise,
        };
        match verdict {
            Verdict::Complete => next(None, Verdict::Complete),
            Verdict::Bury { reason, error } if !ends => next(
                Some((reason, error.clone())),
                Verdict::Bury { reason, error },
            ),
            Verdict::RetryAt { at, error } if self.yields(at, now) => {
                let given_up = format!("gave up in favour of the next occurrence: {error}");
                next(
                    Some((Reason::Deadline, given_up)),
                    Verdict::RetryAt { at, error },
                )
            }
            Verdict::SnoozeUntil(at) if self.yields(at, now) => {
                next(None, Verdict::SnoozeUntil(at))
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
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000;

    fn every_minutes(minutes: i64) -> Recurrence {
        let period = Duration::from_millis((minutes * MINUTE) as u64);
        Recurrence::every(period).unwrap()
    }

    /// Due at that minute, begun so many milliseconds later.
    fn occurrence(recurrence: &Recurrence, due: i64, late_ms: i64) -> Occurrence<'_> {
        Occurrence {
            recurrence,
            due: UnixMs(due * MINUTE),
            ready: UnixMs(due * MINUTE),
            started: UnixMs(due * MINUTE + late_ms),
        }
    }

    fn next(occurrence: Occurrence<'_>, now_ms: i64) -> Option<f64> {
        let next = occurrence.following(UnixMs(now_ms));
        next.map(|next| next.0 as f64 / MINUTE as f64)
    }

    fn failed() -> Verdict {
        Verdict::Bury {
            reason: Reason::Exhausted,
            error: "no".into(),
        }
    }

    #[test]
    fn a_run_in_time_is_followed_by_the_next_occurrence_whatever_is_made_up_for() {
        for catch_up in [CatchUp::Skip, CatchUp::Once, CatchUp::All] {
            let rule = every_minutes(10).catch_up(catch_up);
            let run = occurrence(&rule, 10, 5);
            assert_eq!(next(run, 10 * MINUTE + 3_000), Some(20.0), "{catch_up:?}");
        }
    }

    #[test]
    fn what_is_late_by_more_than_half_its_period_or_a_minute_is_missed_where_that_is_skipped() {
        let (often, seldom) = (every_minutes(1), every_minutes(60));
        assert!(!occurrence(&often, 10, 30_000).is_missed());
        assert!(occurrence(&often, 10, 30_001).is_missed());
        assert!(!occurrence(&seldom, 60, 60_000).is_missed());
        assert!(occurrence(&seldom, 60, 60_001).is_missed());
        for catch_up in [CatchUp::Once, CatchUp::All] {
            let rule = every_minutes(1).catch_up(catch_up);
            assert!(!occurrence(&rule, 10, 59_000_000).is_missed());
        }
    }

    #[test]
    fn of_more_missed_occurrences_than_are_made_up_for_the_first_is_left_out_too() {
        let rule = every_minutes(10).catch_up(CatchUp::All).catch_up_max(3);
        assert!(
            !occurrence(&rule, 10, 29 * MINUTE).is_missed(),
            "10, 20, 30"
        );
        assert!(occurrence(&rule, 10, 30 * MINUTE).is_missed(), "20, 30, 40");
        let rule = rule.catch_up_max(1);
        assert!(
            !occurrence(&rule, 10, 9 * MINUTE).is_missed(),
            "nothing behind it"
        );
    }

    #[test]
    fn no_number_of_occurrences_to_make_up_for_is_too_large() {
        let rule = every_minutes(10).catch_up(CatchUp::All);
        let rule = rule.catch_up_max(u32::MAX);
        let run = occurrence(&rule, 10, 1_000_000 * MINUTE);
        assert!(run.is_missed());
        assert_eq!(next(run, 1_000_009 * MINUTE), Some(900_010.0));
    }

    #[test]
    fn how_late_an_occurrence_is_counts_from_when_it_could_begin() {
        let rule = every_minutes(60);
        let snoozed = |late_ms: i64| Occurrence {
            ready: UnixMs(90 * MINUTE),
            ..occurrence(&rule, 60, 30 * MINUTE + late_ms)
        };
        assert!(!snoozed(60_000).is_missed());
        assert!(snoozed(60_001).is_missed());
    }

    #[test]
    fn a_series_that_begins_now_has_an_occurrence_now() {
        let begins = |rule: &Recurrence, now_ms: i64| rule.next(rule.begins_behind(UnixMs(now_ms)));
        let rule = every_minutes(60).starting(UnixMs(7));
        assert_eq!(begins(&rule, 0), Some(UnixMs(7)));
        assert_eq!(begins(&rule, 7), Some(UnixMs(7)));
        assert_eq!(begins(&rule, 7 + MINUTE), Some(UnixMs(7)));
        assert_eq!(begins(&rule, 8 + MINUTE), Some(UnixMs(7 + 60 * MINUTE)));
        assert_eq!(
            begins(&every_minutes(60), MINUTE),
            Some(UnixMs(60 * MINUTE)),
            "no start was said"
        );
        let daily = Recurrence::cron("@daily").unwrap().starting(UnixMs(7));
        assert_eq!(
            begins(&daily, 7),
            Some(UnixMs(24 * 60 * MINUTE)),
            "its start is no occurrence"
        );
    }

    #[test]
    fn missed_occurrences_are_left_out() {
        let rule = every_minutes(10);
        let run = occurrence(&rule, 10, 0);
        assert_eq!(next(run, 45 * MINUTE), Some(50.0));
        assert_eq!(rule.between(run.due, UnixMs(50 * MINUTE)), 3, "20, 30, 40");
        // One that fell due only just now is not missed yet.
        assert_eq!(next(run, 40 * MINUTE + 59_000), Some(40.0));
        assert_eq!(next(run, 41 * MINUTE + 1), Some(50.0));
    }

    #[test]
    fn one_run_stands_for_all_that_fell_due_before_it_began() {
        let rule = every_minutes(10).catch_up(CatchUp::Once);
        let run = occurrence(&rule, 10, 35 * MINUTE);
        assert_eq!(next(run, 46 * MINUTE), Some(50.0));
        // What fell due while it ran is not among them.
        assert_eq!(next(run, 75 * MINUTE), Some(50.0));
    }

    #[test]
    fn each_missed_occurrence_follows_and_no_more_than_the_latest_few() {
        let rule = every_minutes(10).catch_up(CatchUp::All);
        let run = occurrence(&rule, 10, 0);
        assert_eq!(next(run, 1_000 * MINUTE), Some(20.0));
        let few = rule.catch_up_max(3);
        let run = occurrence(&few, 10, 0);
        assert_eq!(next(run, 45 * MINUTE), Some(20.0), "20, 30, 40 are three");
        assert_eq!(next(run, 1_005 * MINUTE), Some(980.0), "980, 990, 1000");
    }

    #[test]
    fn many_occurrences_missed_by_a_cron_are_passed_over_in_bounded_time() {
        let rule = Recurrence::cron("* * * * * *").unwrap();
        let rule = rule.catch_up(CatchUp::All).catch_up_max(10);
        let year_ms = 365 * 24 * 3_600_000;
        let run = occurrence(&rule, 0, 0);
        assert_eq!(
            run.following(UnixMs(year_ms)),
            Some(UnixMs(year_ms - 9_000))
        );
    }

    #[test]
    fn catching_up_looks_back_a_bounded_number_of_times_however_much_was_missed() {
        let day_ms = 24 * 3_600_000;
        // (expression, most to make up for, days missed): dense, with long pauses, and seldom.
        for (text, max, days) in [
            ("* * * * * *", 10_000, 90),
            ("* 9-16 * * MON-FRI", 10_000, 120),
            ("* * 1 1 *", 2_000, 700),
            ("0 0 * * *", 10, 700),
            ("30 2 * * *", 3, 700),
        ] {
            let rule = Recurrence::cron(text).unwrap();
            let rule = rule.in_zone("Europe/Berlin").unwrap();
            let rule = rule.catch_up(CatchUp::All).catch_up_max(max);
            let run = occurrence(&rule, 0, 0);
            let now = UnixMs(days * day_ms);
            let before = super::super::cron::steps();
            let next = run.following(now).unwrap();
            let steps = super::super::cron::steps() - before;
            assert_eq!(
                count(&rule, UnixMs(next.0 - 1), now, max + 1),
                max,
                "{text}"
            );
            let most = 8 * u64::from(max) + 100;
            assert!(
                steps <= most,
                "{text}: {steps} steps, expected at most {most}"
            );
        }
    }

    #[test]
    fn what_is_behind_by_less_than_may_be_made_up_for_takes_no_search() {
        let rule = Recurrence::cron("* * * * *").unwrap();
        let rule = rule.catch_up(CatchUp::All).catch_up_max(10_000);
        let run = occurrence(&rule, 0, 0);
        let before = super::super::cron::steps();
        assert_eq!(next(run, 9_000 * MINUTE), Some(1.0));
        assert!(!run.is_missed());
        assert!(super::super::cron::steps() - before <= 4);
    }

    #[test]
    fn a_moved_occurrence_is_followed_by_the_one_behind_its_own_time() {
        let rule = every_minutes(60).moved(UnixMs(60 * MINUTE));
        // Moved from minute 60 to minute 50, or to 70.
        assert_eq!(next(occurrence(&rule, 50, 0), 50 * MINUTE + 9), Some(120.0));
        assert_eq!(next(occurrence(&rule, 70, 0), 70 * MINUTE + 9), Some(120.0));
    }

    #[test]
    fn a_dead_occurrence_is_followed_and_poison_is_not() {
        let rule = every_minutes(10);
        let run = occurrence(&rule, 10, 0);
        let now = UnixMs(11 * MINUTE);
        let goes_on = Verdict::GoOn {
            next: UnixMs(20 * MINUTE),
            died: Some((Reason::Exhausted, "no".into())),
        };
        assert_eq!(run.go_on(failed(), false, now), goes_on);
        assert_eq!(run.go_on(failed(), true, now), failed());
    }

    #[test]
    fn the_last_occurrence_ends_the_series_as_it_ended_itself() {
        let rule = every_minutes(10).until(UnixMs(10 * MINUTE));
        let run = occurrence(&rule, 10, 0);
        let now = UnixMs(11 * MINUTE);
        for verdict in [Verdict::Complete, failed()] {
            assert_eq!(run.go_on(verdict.clone(), false, now), verdict);
        }
    }

    #[test]
    fn a_retry_gives_way_to_the_next_occurrence_unless_each_counts() {
        let retry = |at: i64| Verdict::RetryAt {
            at: UnixMs(at * MINUTE),
            error: "no".into(),
        };
        let rule = every_minutes(10);
        let run = occurrence(&rule, 10, 0);
        let now = UnixMs(11 * MINUTE);
        assert_eq!(run.go_on(retry(19), false, now), retry(19));
        assert_eq!(
            run.go_on(retry(20), false, now),
            Verdict::GoOn {
                next: UnixMs(20 * MINUTE),
                died: Some((
                    Reason::Deadline,
                    "gave up in favour of the next occurrence: no".into()
                ))
            }
        );
        let all = every_minutes(10).catch_up(CatchUp::All);
        assert_eq!(
            occurrence(&all, 10, 0).go_on(retry(25), false, now),
            retry(25)
        );
    }

    #[test]
    fn a_released_run_is_not_an_occurrence_that_is_over() {
        let rule = every_minutes(10);
        let run = occurrence(&rule, 10, 0);
        let now = UnixMs(11 * MINUTE);
        assert_eq!(run.go_on(Verdict::Release, false, now), Verdict::Release);
    }
}
