use proptest::prelude::*;

use super::*;

fn occurrences(cron: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let rule = CronRule::parse(cron, zone).unwrap();
    let mut at = UnixMs(after.parse::<Timestamp>().unwrap().as_millisecond());
    let mut found = Vec::new();
    for _ in 0..count {
        at = rule.next(at).unwrap();
        let moment = Timestamp::from_millisecond(at.0).unwrap();
        found.push(
            moment
                .to_zoned(rule.zone.clone())
                .strftime("%Y-%m-%d %H:%M:%S%:z")
                .to_string(),
        );
    }
    found
}

#[test]
fn a_wall_time_that_does_not_exist_occurs_at_the_end_of_the_gap() {
    // Berlin, 2026-03-29: 02:00 becomes 03:00.
    let found = occurrences("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z", 3);
    assert_eq!(
        found,
        [
            "2026-03-28 02:30:00+01:00",
            "2026-03-29 03:00:00+02:00",
            "2026-03-30 02:30:00+02:00",
        ]
    );
    // Several occurrences in one gap are one, and so is one at its end.
    let found = occurrences("0,30 2-3 * * *", "Europe/Berlin", "2026-03-29T00:59:00Z", 3);
    assert_eq!(
        found,
        [
            "2026-03-29 03:00:00+02:00",
            "2026-03-29 03:30:00+02:00",
            "2026-03-30 02:00:00+02:00",
        ]
    );
}

#[test]
fn a_wall_time_that_exists_twice_occurs_the_first_time() {
    // Berlin, 2026-10-25: 03:00 becomes 02:00.
    let found = occurrences("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2);
    assert_eq!(
        found,
        ["2026-10-25 02:30:00+02:00", "2026-10-26 02:30:00+01:00"]
    );
    // Also when searched from within the second pass.
    let found = occurrences("45 2 * * *", "Europe/Berlin", "2026-10-25T01:30:00Z", 1);
    assert_eq!(found, ["2026-10-26 02:45:00+01:00"]);
}

#[test]
fn hourly_occurrences_follow_elapsed_time() {
    let gap = occurrences("0 * * * *", "Europe/Berlin", "2026-03-29T00:30:00Z", 2);
    assert_eq!(
        gap,
        ["2026-03-29 03:00:00+02:00", "2026-03-29 04:00:00+02:00"]
    );
    let overlap = occurrences("30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", 3);
    assert_eq!(
        overlap,
        [
            "2026-10-25 02:30:00+02:00",
            "2026-10-25 02:30:00+01:00",
            "2026-10-25 03:30:00+01:00",
        ]
    );
}

#[test]
fn hourly_occurrences_follow_the_wall_after_a_change_by_half_an_hour() {
    // On 2026-04-05, the clocks of Lord Howe Island go from 02:00 back to 01:30.
    let rule = CronRule::parse("0 * * * *", "Australia/Lord_Howe").unwrap();
    let hour = UnixMs(1_775_311_200_000);
    assert_eq!(rule.next(hour), Some(UnixMs(hour.0 + 90 * 60_000)));
}

#[test]
fn a_skipped_day_occurs_at_its_end() {
    // Samoa skipped the 30th of December 2011.
    let found = occurrences("0 12 * * *", "Pacific/Apia", "2011-12-29T22:30:00Z", 3);
    assert_eq!(
        found,
        [
            "2011-12-31 00:00:00+14:00",
            "2011-12-31 12:00:00+14:00",
            "2012-01-01 12:00:00+14:00",
        ]
    );
}

#[test]
fn names_seconds_and_the_last_day_are_parsed() {
    let after = "2026-01-01T00:00:00Z";
    let first = |cron| occurrences(cron, "UTC", after, 1).remove(0);
    assert_eq!(first("@daily"), "2026-01-02 00:00:00+00:00");
    assert_eq!(first("0 30 9 * * Mon-Fri"), "2026-01-01 09:30:00+00:00");
    assert_eq!(first("*/10 * * * * *"), "2026-01-01 00:00:10+00:00");
    assert_eq!(first("0 0 L * *"), "2026-01-31 00:00:00+00:00");
    assert_eq!(first("0 0 * * Fri#2"), "2026-01-09 00:00:00+00:00");
    assert_eq!(first("0 0 * * 5L"), "2026-01-30 00:00:00+00:00");
    assert_eq!(first("0 0 29 2 *"), "2028-02-29 00:00:00+00:00");
    assert_eq!(first("0 0 * JUL Sat-Sun"), "2026-07-04 00:00:00+00:00");
    // As in cron: if both days are given, either matches.
    assert_eq!(first("0 0 13 * Fri"), "2026-01-02 00:00:00+00:00");
}

#[test]
fn the_working_day_nearest_to_the_first_is_in_its_month() {
    // 2026-08-01 is a Saturday, 2026-11-01 a Sunday, 2026-05-31, the last of May, a Sunday.
    let first = occurrences("0 0 1W 8,11 *", "UTC", "2026-07-01T00:00:00Z", 2);
    assert_eq!(
        first,
        ["2026-08-03 00:00:00+00:00", "2026-11-02 00:00:00+00:00"]
    );
    let last = occurrences("0 0 31W 5 *", "UTC", "2026-05-01T00:00:00Z", 1);
    assert_eq!(last, ["2026-05-29 00:00:00+00:00"]);
}

#[test]
fn a_number_has_one_or_two_digits() {
    for (minute, is_read) in [("5", true), ("05", true), ("005", false), ("+5", false)] {
        let rule = CronRule::parse(&format!("{minute} * * * *"), "UTC");
        assert_eq!(rule.is_ok(), is_read, "{minute}");
    }
}

#[test]
fn an_invalid_expression_is_refused_with_the_field_and_the_expected_form() {
    let refused = [
        (
            "0 9 * *",
            "has 4 fields, expected 5 (minute hour day month weekday) or 6 (second first)",
        ),
        (
            "61 9 * * *",
            "minute `61` does not fit, expected 0 to 59, a range `a-b`, `*`, steps `*/n` or `a-b/n`",
        ),
        (
            "0 17-9 * * *",
            "hour `17-9` does not fit, expected 0 to 23, a range `a-b`, `*`, steps `*/n` or `a-b/n`",
        ),
        (
            "0 9 32 * *",
            "day `32` does not fit, expected 1 to 31, a range `a-b`, `*`, steps `*/n` or `a-b/n`, `L`, `LW` or `15W`",
        ),
        (
            "0 9 * Mon *",
            "month `MON` does not fit, expected 1 to 12 or JAN to DEC, a range `a-b`, `*`, steps `*/n` or `a-b/n`",
        ),
        (
            "0 9 * * 8",
            "weekday `8` does not fit, expected 0 to 7 or SUN to SAT, a range `a-b`, `*`, steps `*/n` or `a-b/n`, `5L` or `5#3`",
        ),
        (
            "5/10 * * * *",
            "minute `5/10` does not fit, expected 0 to 59, a range `a-b`, `*`, steps `*/n` or `a-b/n`",
        ),
        (
            "1,,2 * * * *",
            "minute `1,,2` does not fit, expected 0 to 59, a range `a-b`, `*`, steps `*/n` or `a-b/n`",
        ),
        (
            "@often",
            "expected one of @yearly @annually @monthly @weekly @daily @midnight @hourly",
        ),
        ("0 0 30 2 *", "has no occurrence until the year 2200"),
    ];
    for (text, problem) in refused {
        assert_eq!(
            CronRule::parse(text, "UTC").unwrap_err().to_string(),
            format!("cron `{text}`: {problem}"),
        );
    }
    assert_eq!(
        CronRule::parse("@daily", "Europe/Berln")
            .unwrap_err()
            .to_string(),
        "`Europe/Berln` is not a time zone, expected an IANA name such as `Europe/Berlin`"
    );
}

/// One field: a list of values, ranges and steps between `min` and `max`.
fn field(min: u8, max: u8) -> impl Strategy<Value = String> {
    let value = move || (min..=max).prop_map(|value| value.to_string());
    let range = (min..=max, min..=max).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b)));
    let steps = (range.clone(), 1..=max).prop_map(|(range, step)| format!("{range}/{step}"));
    let all_steps = (1..=max).prop_map(|step| format!("*/{step}"));
    let item = prop_oneof![3 => value(), 2 => range, 1 => steps, 1 => all_steps];
    prop_oneof![1 => Just("*".to_owned()), 2 => list(item)]
}

fn list(item: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    proptest::collection::vec(item, 1..3).prop_map(|items| items.join(","))
}

fn day() -> impl Strategy<Value = String> {
    let working = (1..=31_u8).prop_map(|day| format!("{day}W"));
    let last = prop_oneof![Just("L".to_owned()), Just("LW".to_owned())];
    prop_oneof![3 => field(1, 31), 1 => list(working), 1 => last, 1 => Just("?".to_owned())]
}

fn weekday() -> impl Strategy<Value = String> {
    let nth = (0..=7_u8, 1..=5_u8).prop_map(|(day, nth)| format!("{day}#{nth}"));
    let last = (0..=7_u8).prop_map(|day| format!("{day}L"));
    let words = Just("Fri-Sun".to_owned());
    prop_oneof![3 => field(0, 7), 1 => list(prop_oneof![nth, last]), 1 => words]
}

proptest! {
    /// Another implementation of cron finds the same wall times.
    #[test]
    fn finds_the_wall_times_that_croner_finds(
        (second, minute, hour) in (field(0, 59), field(0, 59), field(0, 23)),
        (day, month, weekday) in (day(), field(1, 12), weekday()),
        start in 0..4_000_000_000_i64,
    ) {
        let text = format!("{second} {minute} {hour} {day} {month} {weekday}");
        let peer: croner::Cron = format!("{text} 1970-2200").parse().unwrap();
        let rule = WallTimes::parse(&fields::split(&text).unwrap()).unwrap();
        let mut at = Timestamp::from_second(start).unwrap().to_zoned(TimeZone::UTC).datetime();
        for _ in 0..10 {
            let expected = peer.find_next_occurrence(&at, true).ok();
            prop_assert_eq!(rule.first_from(at), expected, "`{}` from {}", text, at);
            let Some(found) = expected else { break };
            at = found.checked_add(1.second()).unwrap();
        }
    }
}
