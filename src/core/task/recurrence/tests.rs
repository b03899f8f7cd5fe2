use super::*;
use crate::task::{KEY_BYTES_MAX, TaskKey};
use proptest::prelude::*;

fn every(text: &str) -> Recurrence {
    let input = RecurrenceInput {
        every: Some(text),
        cron: None,
        tz: None,
    };
    input.rule().unwrap()
}

fn cron(text: &str, zone: &str) -> Recurrence {
    Recurrence::cron(text).unwrap().in_zone(zone).unwrap()
}

/// Rules of all kinds, frequent enough to be searched millisecond by millisecond, or day by day.
fn rules() -> impl Strategy<Value = Recurrence> {
    let crons = prop::sample::select(vec![
        "* * * * *",
        "*/7 * * * *",
        "15,45 */3 * * *",
        "30 2 * * *",
        "0,30 1-3 * * *",
        "0 9 * * Mon-Fri",
        "0 0 1 * *",
        "0 0 L * *",
        "0 12 15W * *",
        "0 0 29 2 *",
        "0 0 13 * Fri",
        "0 18 * * Fri#2",
        "*/20 * 2 * * *",
    ]);
    let zones = prop::sample::select(vec![
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "Asia/Kathmandu",
        "Africa/Cairo",
    ]);
    let every = (1_000u64..100_000_000).prop_map(|ms| {
        let rule = Recurrence::every(Duration::from_millis(ms)).unwrap();
        rule.starting(UnixMs(1_700_000_000_000 + ms as i64 % 977))
    });
    prop_oneof![
        every,
        (crons, zones).prop_map(|(text, zone)| cron(text, zone))
    ]
}

/// From 2020 to 2040.
fn moments() -> impl Strategy<Value = UnixMs> {
    (1_577_836_800_000i64..2_208_988_800_000).prop_map(UnixMs)
}

proptest! {
    #[test]
    fn the_next_occurrence_is_strictly_later(rule in rules(), after in moments()) {
        let next = rule.next(after).unwrap();
        prop_assert!(next > after);
        prop_assert!(rule.has(next));
    }

    #[test]
    fn no_occurrence_is_skipped(rule in rules(), after in moments(), between in 0.0f64..1.0) {
        let next = rule.next(after).unwrap();
        let inside = UnixMs(after.0 + ((next.0 - after.0 - 1) as f64 * between) as i64);
        prop_assert_eq!(rule.next(inside), Some(next), "asked at {}", inside);
    }

    #[test]
    fn what_is_shown_is_read_again(
        rule in rules(),
        until in prop::option::of(moments()),
        catch_up in prop::sample::select(vec![CatchUp::Skip, CatchUp::Once, CatchUp::All]),
        overlap in prop::sample::select(vec![Overlap::Skip, Overlap::Allow]),
        max in 1u32..5_000,
        moved in prop::option::of(moments()),
    ) {
        let mut rule = rule.catch_up(catch_up).catch_up_max(max).overlap(overlap);
        if let Some(until) = until {
            rule = rule.until(until);
        }
        if let Some(moved) = moved {
            rule = rule.moved(moved);
        }
        prop_assert_eq!(rule.to_string().parse::<Recurrence>(), Ok(rule));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,60}", cron in "[0-9*,/LW#A-Z -]{0,30}") {
        let _ = text.parse::<Recurrence>();
        let _ = Recurrence::cron(&cron);
    }
}

/// Compares with a search of every second across clock changes.
#[test]
fn the_search_agrees_with_a_slow_search() {
    let changes = [
        ("Europe/Berlin", "2026-03-28T23:00:00Z"),
        ("Europe/Berlin", "2026-10-24T22:00:00Z"),
        ("Australia/Lord_Howe", "2026-04-04T13:00:00Z"),
        ("America/New_York", "2026-11-01T04:00:00Z"),
    ];
    for (name, from) in changes {
        let zone = jiff::tz::TimeZone::get(name).unwrap();
        let start: jiff::Timestamp = from.parse().unwrap();
        // Half-hourly occurrences follow elapsed time: what the clock shows at each second counts.
        let rule = cron("*/30 * * * *", name);
        let slow: Vec<i64> = (1..=6 * 3600)
            .map(|second| start + jiff::SignedDuration::from_secs(second))
            .filter(|at| {
                let wall = zone.to_datetime(*at);
                wall.minute() % 30 == 0 && wall.second() == 0
            })
            .map(|at| at.as_millisecond())
            .collect();
        let mut found = Vec::new();
        let mut at = UnixMs(start.as_millisecond());
        while let Some(next) = rule.next(at)
            && next.0 <= start.as_millisecond() + 6 * 3_600_000
        {
            found.push(next.0);
            at = next;
        }
        assert_eq!(found, slow, "{name} {from}");
    }
}

#[test]
fn periods_are_counted_from_the_start_and_never_drift() {
    let rule = every("15m").starting(UnixMs(1_000_007));
    assert_eq!(rule.next(UnixMs(0)), Some(UnixMs(1_000_007)));
    assert_eq!(rule.next(UnixMs(1_000_007)), Some(UnixMs(1_900_007)));
    assert_eq!(rule.next(UnixMs(100_000_000)), Some(UnixMs(100_000_007)));
    assert_eq!(every("15m").next(UnixMs(1)), Some(UnixMs(900_000)));
}

#[test]
fn a_series_ends_at_its_end_or_after_its_number_of_times() {
    let rule = every("1s").until(UnixMs(3_000));
    assert_eq!(rule.next(UnixMs(2_000)), Some(UnixMs(3_000)));
    assert_eq!(rule.next(UnixMs(3_000)), None);
    let three = every("1s").times(3).unwrap().anchored(UnixMs(500));
    assert_eq!(three.next(UnixMs(2_500)), Some(UnixMs(3_500)));
    assert_eq!(three.next(UnixMs(3_500)), None);
    assert_eq!(three.end(), Some(UnixMs(3_500)));
    assert_eq!(every("1s").end(), None);
    assert_eq!(every("1s").next(UnixMs(i64::MAX)), None);
}

#[test]
fn a_series_that_starts_just_now_has_its_start_if_that_is_an_occurrence() {
    let daily = cron("0 9 * * *", "UTC");
    let nine = UnixMs(9 * 3_600_000);
    assert!(daily.has(nine) && !daily.has(UnixMs(nine.0 + 1)));
    for (start, expected) in [(nine.0, nine.0 - 1), (nine.0 + 1, nine.0 + 5)] {
        let rule = daily.clone().starting(UnixMs(start));
        assert_eq!(rule.starts_after(UnixMs(nine.0 + 5)), UnixMs(expected));
    }
}

#[test]
fn a_rule_takes_the_start_of_a_stored_series_with_the_same_rule() {
    let stored = every("15m").starting(UnixMs(77));
    let start = |rule: Recurrence| rule.starting_like(&stored).start();
    assert_eq!(start(every("15m")), Some(UnixMs(77)));
    assert_eq!(start(every("15m").starting(UnixMs(5))), Some(UnixMs(5)));
    assert_eq!(start(every("16m")), None);
    assert_ne!(cron("0 9 * * *", "UTC"), cron("0 10 * * *", "UTC"));
    assert_ne!(cron("0 9 * * *", "UTC"), cron("0 9 * * *", "Europe/Berlin"));
}

#[test]
fn a_key_whose_occurrences_overlap_leaves_room_for_their_times() {
    const ROOM: usize = "@~1763750000000".len();
    let key = |bytes: usize| {
        let name = format!("Order@close@{}", "x".repeat(bytes - "Order@close@".len()));
        TaskKey::parse(&name).unwrap()
    };
    let max = KEY_BYTES_MAX - ROOM;
    let overlapping = every("15m").overlap(Overlap::Allow);
    assert_eq!(overlapping.check_room(&key(max)), Ok(()));
    let bytes = max + 1;
    assert_eq!(
        overlapping.check_room(&key(bytes)),
        Err(RecurrenceError::KeyTooLong { bytes, max })
    );
    assert_eq!(every("15m").check_room(&key(bytes)), Ok(()));
}

#[test]
fn a_period_may_be_given_in_days() {
    const DAY_MS: i64 = 86_400_000;
    for (text, days) in [("1d", 1), ("7d", 7), ("3650d", 3650), ("24h", 1)] {
        let rule = every(text);
        assert_eq!(rule.next(UnixMs(0)), Some(UnixMs(days * DAY_MS)), "{text}");
        assert_eq!(rule.to_string().parse::<Recurrence>(), Ok(rule));
    }
}

#[test]
fn more_times_than_occurrences_end_with_the_last() {
    let leap = cron("0 0 29 2 *", "UTC").times(TIMES_MAX).unwrap();
    let leap = leap.anchored(UnixMs(0));
    assert_eq!(leap.until.map(|last| leap.next(last)), Some(None));
    assert!(leap.next(UnixMs(0)).is_some());
}

#[test]
fn the_configured_mark_is_stored_and_ignored_in_comparisons() {
    let (ours, theirs) = (every("15m").configured(), every("15m"));
    assert!(ours.to_string().contains("\"standing\":true"), "{ours}");
    assert!(!theirs.to_string().contains("standing"), "{theirs}");
    assert_eq!(ours.to_string().parse::<Recurrence>().unwrap(), ours);
    assert!(ours.is_same_as(&theirs) && theirs.is_same_as(&ours));
    assert!(ours.moved(UnixMs(1)).settled().is_configured());
}

#[test]
fn unset_options_are_ignored_in_comparisons() {
    let stored = every("15m").anchored(UnixMs(77));
    assert!(every("15m").is_same_as(&stored));
    assert!(every("15m").starting(UnixMs(77)).is_same_as(&stored));
    assert!(every("15m").is_same_as(&stored.clone().moved(UnixMs(5))));
    assert!(!every("15m").starting(UnixMs(78)).is_same_as(&stored));
    assert!(!every("16m").is_same_as(&stored));
    assert!(!every("15m").catch_up(CatchUp::All).is_same_as(&stored));
    let until = stored.clone().until(UnixMs(9));
    assert!(!every("15m").is_same_as(&until));
    assert!(every("15m").until(UnixMs(9)).is_same_as(&until));
    assert!(!every("15m").until(UnixMs(8)).is_same_as(&until));
    let thrice = every("15m").times(3).unwrap();
    assert!(thrice.is_same_as(&thrice.clone().anchored(UnixMs(77))));
}

#[test]
fn the_summary_names_rule_and_options() {
    let rule = cron("0 9 * * Mon-Fri", "Europe/Berlin").catch_up(CatchUp::Once);
    assert_eq!(
        rule.summary(),
        "cron 0 9 * * Mon-Fri (Europe/Berlin), catches up once"
    );
    assert_eq!(
        rule.to_string(),
        r#"{"cron":"0 9 * * Mon-Fri","tz":"Europe/Berlin","catch_up":"once"}"#
    );
    assert_eq!(every("90m").summary(), "every 1h 30m");
}

#[test]
fn an_invalid_rule_says_what_was_expected() {
    let refused = [
        (
            r#"{"every":"500ms"}"#,
            "`every` does not fit, expected a duration from 1s to 10 years with its unit, such as `30s`, `15m` or `1h 30m`",
        ),
        (
            r#"{"every":"15"}"#,
            "`every` does not fit, expected a duration from 1s to 10 years with its unit, such as `30s`, `15m` or `1h 30m`",
        ),
        (
            r#"{"every":"1s","cron":"@daily"}"#,
            "expected one of `every` and `cron`",
        ),
        (r#"{}"#, "expected one of `every` and `cron`"),
        (
            r#"{"every":"1s","tz":"Europe/Berlin"}"#,
            "`tz` requires `cron`: `every` has no time zone",
        ),
        (
            r#"{"every":"1s","times":0}"#,
            "`times` does not fit, expected 1 to 10000",
        ),
    ];
    for (text, reason) in refused {
        let error = text.parse::<Recurrence>().unwrap_err();
        assert_eq!(error.to_string(), reason, "{text}");
    }
    let unknown = r#"{"evry":"1s"}"#.parse::<Recurrence>().unwrap_err();
    assert!(
        unknown
            .to_string()
            .starts_with("recurrence is invalid: unknown field `evry`"),
        "{unknown}"
    );
}
