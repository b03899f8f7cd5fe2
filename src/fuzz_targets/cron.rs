//! Recurrences: a cron expression, on the next line its time zone, then the moment in milliseconds to search from.

use jiff::ToSpan as _;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use lapsed_core::task::{Recurrence, RecurrenceInput, UnixMs, parse_length};

use crate::refusal;

/// The last year that is searched.
const LAST_YEAR: i16 = 2200;

pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    check_stored(text);
    let mut lines = text.lines();
    let (rule, zone) = (lines.next().unwrap_or_default(), lines.next());
    let after = lines.next().and_then(|line| line.parse().ok());
    let after = UnixMs(after.unwrap_or(1_793_750_400_000));
    let input = match parse_length(rule) {
        Ok(_) => (Some(rule), None),
        Err(_) => (None, Some(rule)),
    };
    let input = RecurrenceInput {
        every: input.0,
        cron: input.1,
        tz: zone.filter(|zone| !zone.is_empty()),
    };
    match input.rule() {
        Ok(recurrence) => check(&recurrence, after, input),
        Err(error) => refusal::check(&error, &["expected", "no occurrence", "requires"]),
    }
}

fn check(recurrence: &Recurrence, after: UnixMs, input: RecurrenceInput<'_>) {
    let stored = recurrence.to_string();
    assert_eq!(stored.parse().as_ref(), Ok(recurrence), "{stored}");
    let mut at = after;
    for _ in 0..3 {
        let Some(next) = recurrence.next(at) else {
            break;
        };
        assert!(next > at, "{next:?} is not after {at:?}");
        assert!(recurrence.has(next), "{next:?} is not an occurrence");
        at = next;
    }
    if let (Some(cron), None) = (input.cron, input.tz) {
        compare(recurrence, cron, after);
    }
}

/// Another implementation of cron finds the same occurrence, if it reads the expression at all.
fn compare(recurrence: &Recurrence, cron: &str, after: UnixMs) {
    let is_of_peers_years = (0..4_000_000_000_000).contains(&after.0);
    let fields = cron.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    let fields = match fields.split(' ').count() {
        5 => format!("0 {fields}"),
        _ => fields,
    };
    let peer = format!("{fields} 1970-{LAST_YEAR}").parse::<croner::Cron>();
    let (Ok(peer), true, false) = (peer, is_of_peers_years, cron.trim().starts_with('@')) else {
        return;
    };
    let wall = |moment: UnixMs| -> DateTime {
        let moment = jiff::Timestamp::from_millisecond(moment.0).expect("a moment of the years");
        moment.to_zoned(TimeZone::UTC).datetime()
    };
    let second = UnixMs(after.0 - after.0.rem_euclid(1000));
    let from = wall(second).checked_add(1.second()).expect("a later year");
    let expected = peer.find_next_occurrence(&from, true).ok();
    let found = recurrence.next(second).map(wall);
    assert_eq!(found, expected, "`{cron}` after {after}");
}

/// A recurrence as it is stored.
fn check_stored(text: &str) {
    match text.parse::<Recurrence>() {
        Ok(recurrence) => {
            let stored = recurrence.to_string();
            assert_eq!(stored.parse(), Ok(recurrence), "{stored}");
        }
        Err(error) => refusal::check(
            &error,
            &["expected", "invalid", "no occurrence", "requires"],
        ),
    }
}
