use std::time::Duration;

use super::*;
use crate::task::{AttemptError, How};

const MINUTE: i64 = 60_000;

fn every_minutes(minutes: i64) -> Recurrence {
    let period = Duration::from_millis((minutes * MINUTE) as u64);
    Recurrence::every(period).unwrap()
}

/// Due at that minute, and started `late_ms` later.
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

fn attempt_error() -> AttemptError {
    AttemptError {
        how: How::Failed,
        attempt: 1,
        started: None,
        at: UnixMs(11 * MINUTE),
        error: "no".into(),
        daemon: "here:1".into(),
        crashes: 0,
        snoozes: 0,
    }
}

fn death(reason: Reason, error: &str) -> Death {
    Death {
        reason,
        error: error.into(),
        attempt_error: attempt_error(),
    }
}

fn failed() -> Verdict {
    Verdict::Bury(death(Reason::Exhausted, "no"))
}

fn panicked() -> Outcome {
    Outcome::Panicked {
        message: "no".into(),
    }
}

#[test]
fn a_run_on_time_is_followed_by_the_next_occurrence_with_any_catch_up() {
    for catch_up in [CatchUp::Skip, CatchUp::Once, CatchUp::All] {
        let rule = every_minutes(10).catch_up(catch_up);
        let run = occurrence(&rule, 10, 5);
        assert_eq!(next(run, 10 * MINUTE + 3_000), Some(20.0), "{catch_up:?}");
    }
}

#[test]
fn an_occurrence_late_by_more_than_half_its_period_or_a_minute_is_missed() {
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
fn the_first_of_more_missed_occurrences_than_the_maximum_is_skipped() {
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
fn any_number_of_missed_occurrences_is_handled() {
    let rule = every_minutes(10).catch_up(CatchUp::All);
    let rule = rule.catch_up_max(u32::MAX);
    let run = occurrence(&rule, 10, 1_000_000 * MINUTE);
    assert!(run.is_missed());
    assert_eq!(next(run, 1_000_009 * MINUTE), Some(900_010.0));
}

#[test]
fn lateness_counts_from_when_the_occurrence_could_start() {
    let rule = every_minutes(60);
    let snoozed = |late_ms: i64| Occurrence {
        ready: UnixMs(90 * MINUTE),
        ..occurrence(&rule, 60, 30 * MINUTE + late_ms)
    };
    assert!(!snoozed(60_000).is_missed());
    assert!(snoozed(60_001).is_missed());
}

#[test]
fn a_series_that_starts_now_has_an_occurrence_now() {
    let begins = |rule: &Recurrence, now_ms: i64| rule.next(rule.starts_after(UnixMs(now_ms)));
    let rule = every_minutes(60).starting(UnixMs(7));
    assert_eq!(begins(&rule, 0), Some(UnixMs(7)));
    assert_eq!(begins(&rule, 7), Some(UnixMs(7)));
    assert_eq!(begins(&rule, 7 + MINUTE), Some(UnixMs(7)));
    assert_eq!(begins(&rule, 8 + MINUTE), Some(UnixMs(7 + 60 * MINUTE)));
    assert_eq!(
        begins(&every_minutes(60), MINUTE),
        Some(UnixMs(60 * MINUTE)),
        "no start is set"
    );
    let daily = Recurrence::cron("@daily").unwrap().starting(UnixMs(7));
    assert_eq!(
        begins(&daily, 7),
        Some(UnixMs(24 * 60 * MINUTE)),
        "its start is not an occurrence"
    );
}

#[test]
fn missed_occurrences_are_skipped() {
    let rule = every_minutes(10);
    let run = occurrence(&rule, 10, 0);
    assert_eq!(next(run, 45 * MINUTE), Some(50.0));
    assert_eq!(rule.between(run.due, UnixMs(50 * MINUTE)), 3, "20, 30, 40");
    // An occurrence that fell due just now is not missed.
    assert_eq!(next(run, 40 * MINUTE + 59_000), Some(40.0));
    assert_eq!(next(run, 41 * MINUTE + 1), Some(50.0));
}

#[test]
fn one_run_replaces_all_occurrences_due_before_it_started() {
    let rule = every_minutes(10).catch_up(CatchUp::Once);
    let run = occurrence(&rule, 10, 35 * MINUTE);
    assert_eq!(next(run, 46 * MINUTE), Some(50.0));
    // Occurrences due during the run are not among them.
    assert_eq!(next(run, 75 * MINUTE), Some(50.0));
}

#[test]
fn each_missed_occurrence_follows_up_to_the_maximum() {
    let rule = every_minutes(10).catch_up(CatchUp::All);
    let run = occurrence(&rule, 10, 0);
    assert_eq!(next(run, 1_000 * MINUTE), Some(20.0));
    let few = rule.catch_up_max(3);
    let run = occurrence(&few, 10, 0);
    assert_eq!(next(run, 45 * MINUTE), Some(20.0), "20, 30, 40 are three");
    assert_eq!(next(run, 1_005 * MINUTE), Some(980.0), "980, 990, 1000");
}

#[test]
fn many_missed_cron_occurrences_are_skipped_in_bounded_time() {
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
fn catching_up_takes_a_bounded_number_of_steps() {
    let day_ms = 24 * 3_600_000;
    // (expression, largest number to catch up, days missed): dense, with long pauses, and rare.
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
        let before = crate::task::recurrence::cron::steps();
        let next = run.following(now).unwrap();
        let steps = crate::task::recurrence::cron::steps() - before;
        assert_eq!(rule.count(UnixMs(next.0 - 1), now, max + 1), max, "{text}");
        let most = 8 * u64::from(max) + 100;
        assert!(
            steps <= most,
            "{text}: {steps} steps, expected at most {most}"
        );
    }
}

#[test]
fn the_latest_missed_occurrences_are_found_in_a_crowd_behind_a_long_pause() {
    // Every minute of the first hour of a day: a search that has passed the pause reads more than it may at once.
    let rule = Recurrence::cron("* 0 * * *").unwrap();
    let rule = rule.catch_up(CatchUp::All);
    let run = occurrence(&rule, 0, 0);
    let (base, day) = (UnixMs(0), 24 * 60);
    for minute in [5, 30, 59, 60, 61, 90, 700, day - 1] {
        let now = UnixMs((30 * day + minute) * MINUTE);
        let all = within(&rule, base, now, usize::MAX);
        for max in [1, 2, 3, 10, 25, 59, 60, 61, 200] {
            let expected = all[all.len() - 1 - max as usize];
            let found = run.latest(base, now, max);
            assert_eq!(found, expected, "{max} at {minute}");
        }
    }
}

#[test]
fn fewer_missed_occurrences_than_the_maximum_need_no_search() {
    let rule = Recurrence::cron("* * * * *").unwrap();
    let rule = rule.catch_up(CatchUp::All).catch_up_max(10_000);
    let run = occurrence(&rule, 0, 0);
    let before = crate::task::recurrence::cron::steps();
    assert_eq!(next(run, 9_000 * MINUTE), Some(1.0));
    assert!(!run.is_missed());
    assert!(crate::task::recurrence::cron::steps() - before <= 4);
}

#[test]
fn a_moved_occurrence_is_followed_by_the_one_after_its_original_time() {
    let rule = every_minutes(60).moved(UnixMs(60 * MINUTE));
    // Moved from minute 60 to minute 50, or to 70.
    assert_eq!(next(occurrence(&rule, 50, 0), 50 * MINUTE + 9), Some(120.0));
    assert_eq!(next(occurrence(&rule, 70, 0), 70 * MINUTE + 9), Some(120.0));
}

#[test]
fn a_dead_occurrence_has_a_successor_and_a_poisoned_one_has_none() {
    let rule = every_minutes(10);
    let run = occurrence(&rule, 10, 0);
    let now = UnixMs(11 * MINUTE);
    let goes_on = Verdict::NextOccurrence {
        next: UnixMs(20 * MINUTE),
        end: OccurrenceEnd::Failed(death(Reason::Exhausted, "no")),
        result: None,
    };
    assert_eq!(run.series_verdict(failed(), &panicked(), now), goes_on);
    let poisoned = run.series_verdict(failed(), &Outcome::Poisoned, now);
    assert_eq!(poisoned, failed());
}

#[test]
fn the_series_ends_with_the_state_of_its_last_occurrence() {
    let rule = every_minutes(10).until(UnixMs(10 * MINUTE));
    let run = occurrence(&rule, 10, 0);
    let now = UnixMs(11 * MINUTE);
    for (verdict, outcome) in [
        (Verdict::Complete, Outcome::Succeeded),
        (failed(), panicked()),
    ] {
        let ended = run.series_verdict(verdict.clone(), &outcome, now);
        assert_eq!(ended, verdict);
    }
}

#[test]
fn a_retry_gives_way_to_the_next_occurrence_unless_all_are_run() {
    let retry = |at: i64| Verdict::RetryAt {
        at: UnixMs(at * MINUTE),
        error: "no".into(),
        attempt_error: attempt_error(),
    };
    let rule = every_minutes(10);
    let run = occurrence(&rule, 10, 0);
    let now = UnixMs(11 * MINUTE);
    let verdict = |at| run.series_verdict(retry(at), &panicked(), now);
    assert_eq!(verdict(19), retry(19));
    assert_eq!(
        verdict(20),
        Verdict::NextOccurrence {
            next: UnixMs(20 * MINUTE),
            end: OccurrenceEnd::Failed(death(
                Reason::Deadline,
                "gave up in favour of the next occurrence: no"
            )),
            result: None,
        }
    );
    let all = every_minutes(10).catch_up(CatchUp::All);
    assert_eq!(
        occurrence(&all, 10, 0).series_verdict(retry(25), &panicked(), now),
        retry(25)
    );
}

#[test]
fn a_released_occurrence_is_not_over() {
    let rule = every_minutes(10);
    let run = occurrence(&rule, 10, 0);
    let now = UnixMs(11 * MINUTE);
    assert_eq!(
        run.series_verdict(Verdict::Release, &Outcome::Interrupted, now),
        Verdict::Release
    );
}

#[test]
fn an_occurrence_that_was_not_run_keeps_the_result_of_the_one_before() {
    let rule = every_minutes(10);
    let run = occurrence(&rule, 10, 0);
    let now = UnixMs(11 * MINUTE);
    let next = |end, result| Verdict::NextOccurrence {
        next: UnixMs(20 * MINUTE),
        end,
        result,
    };
    let missed = run.series_verdict(Verdict::Complete, &Outcome::Missed, now);
    assert_eq!(missed, next(OccurrenceEnd::Skipped, None));
    let handed_on = run.series_verdict(Verdict::Complete, &Outcome::HandedOn, now);
    assert_eq!(handed_on, next(OccurrenceEnd::HandedOn, None));
    let result = Verdict::CompleteWith("7".into());
    let succeeded = run.series_verdict(result, &Outcome::Succeeded, now);
    assert_eq!(succeeded, next(OccurrenceEnd::Succeeded, Some("7".into())));
}

#[test]
fn an_occurrence_that_could_not_start_before_is_not_missed_for_those_after_it() {
    let rule = every_minutes(1).catch_up(CatchUp::All).catch_up_max(3);
    let late = occurrence(&rule, 10, 20 * MINUTE);
    assert!(late.is_missed());
    // An older run of its key ended just now.
    let ready = UnixMs(30 * MINUTE);
    assert!(!Occurrence { ready, ..late }.is_missed());
}

#[test]
fn what_has_just_fallen_due_is_not_skipped() {
    // Each has half a minute to start.
    let rule = every_minutes(1);
    let run = occurrence(&rule, 10, 0);
    assert_eq!(
        next(occurrence(&rule, 10, 0), 20 * MINUTE + 30_000),
        Some(20.0)
    );
    assert_eq!(next(run, 20 * MINUTE + 30_001), Some(21.0));
}

#[test]
fn a_snooze_to_the_next_occurrence_gives_way_to_it() {
    let rule = every_minutes(10);
    let now = UnixMs(11 * MINUTE);
    for (at, expected) in [(20, Some(20)), (19, None)] {
        let snooze = Verdict::Snooze {
            at: UnixMs(at * MINUTE),
            attempt_error: attempt_error(),
        };
        let run = occurrence(&rule, 10, 0);
        let verdict = run.series_verdict(snooze.clone(), &Outcome::Completed, now);
        match expected {
            None => assert_eq!(verdict, snooze),
            Some(minute) => assert!(
                matches!(verdict, Verdict::NextOccurrence { next, end: OccurrenceEnd::Skipped, .. } if next == UnixMs(minute * MINUTE)),
                "{verdict:?}"
            ),
        }
    }
}
