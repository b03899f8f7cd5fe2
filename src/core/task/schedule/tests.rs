use super::*;

const NOW: UnixMs = UnixMs(1_763_750_000_000);

#[test]
fn a_delay_of_zero_or_less_is_due_now() {
    for due in [
        Due::after_ms(0),
        Due::after_ms(-1),
        Due::after_ms(i64::MIN),
        Due::after_secs_f64(-0.5),
        Due::parse_delay("0s"),
    ] {
        assert_eq!(due.unwrap().resolve(NOW), NOW);
    }
}

#[test]
fn over_long_and_non_finite_delays_are_refused() {
    assert_eq!(Due::after_ms(i64::MAX), Err(ScheduleError::TooFar));
    assert_eq!(Due::after_secs_f64(1e300), Err(ScheduleError::TooFar));
    assert_eq!(
        Due::after_secs_f64(f64::INFINITY),
        Err(ScheduleError::NotFinite)
    );
    assert_eq!(Due::after_secs_f64(f64::NAN), Err(ScheduleError::NotFinite));
    assert_eq!(
        Due::after(DELAY_MAX + Duration::from_millis(1)),
        Err(ScheduleError::TooFar)
    );
    assert!(Due::after(DELAY_MAX).is_ok());
    let in_2099 = Due::parse_moment("2099-01-01T00:00:00Z").unwrap();
    assert_eq!(in_2099.resolve_checked(NOW), Err(ScheduleError::TooFar));
}

#[test]
fn delays_are_read_with_their_unit() {
    let read = |text| Due::parse_delay(text).map(|due| due.resolve(UnixMs(0)).0);
    assert_eq!(read("1500ms"), Ok(1500));
    assert_eq!(read("30m"), Ok(1_800_000));
    assert_eq!(read("1h 30m"), Ok(5_400_000));
    assert_eq!(read("7d"), Ok(7 * 86_400_000));
    assert_eq!(
        read("-5s").unwrap_err().to_string(),
        "`-5s` is negative, expected a duration such as `30m` or `7d`"
    );
    assert_eq!(
        read("30").unwrap_err().to_string(),
        "`30` is not a delay, expected a number with a unit such as `1500ms`, `30s`, `30m` or `1h 30m`"
    );
}

#[test]
fn a_duration_is_neither_negative_nor_longer_than_the_maximum() {
    assert_eq!(parse_length("7d"), Ok(Duration::from_secs(7 * 86_400)));
    assert_eq!(parse_length("0s"), Ok(Duration::ZERO));
    assert_eq!(parse_length("3650d"), Ok(DELAY_MAX));
    assert_eq!(parse_length("3651d"), Err(ScheduleError::TooLong));
    assert_eq!(parse_length("100000000d"), Err(ScheduleError::TooLong));
    assert_eq!(
        Due::parse_delay("1h 99999999999999999999s"),
        Err(ScheduleError::TooFar)
    );
    for text in ["-7d", "7d ago"] {
        assert_eq!(
            parse_length(text),
            Err(ScheduleError::Negative(text.to_owned()))
        );
    }
    assert_eq!(parse_length("7"), Err(ScheduleError::Delay("7".to_owned())));
}

#[test]
fn times_are_parsed_to_the_millisecond() {
    let due = Due::parse_moment("2026-11-21T20:00:00.250Z")
        .unwrap()
        .resolve(NOW);
    assert_eq!(due, UnixMs(1_795_291_200_250));
    assert_eq!(due.to_string(), "2026-11-21T20:00:00.250Z");
    let refused = |text| Due::parse_moment(text).unwrap_err();
    for text in [
        "tomorrow",
        "9999-12-31",
        "9999-12-31T23:59:59",
        "9999-02-30T00:00:00Z",
    ] {
        assert_eq!(refused(text), ScheduleError::Moment(text.to_owned()));
    }
    assert_eq!(refused("9999-12-31T23:59:59Z"), ScheduleError::TooFar);
}

#[test]
fn a_due_time_is_at_most_the_longest_delay_away() {
    let now = UnixMs(1_795_291_200_000);
    let at = |ahead_ms: i64| {
        let moment = UnixMs(now.plus(DELAY_MAX).0 + ahead_ms);
        Due(Kind::At(moment)).resolve_checked(now)
    };
    assert_eq!(at(0), Ok(now.plus(DELAY_MAX)));
    assert_eq!(at(1), Err(ScheduleError::TooFar));
}
