//! Delays, lengths and moments as text.

use std::time::Duration;

use lapsed_core::format;
use lapsed_core::task::{DELAY_MAX, Due, UnixMs, parse_length};

use crate::refusal;

pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    match (parse_length(text), Due::parse_delay(text)) {
        (Ok(length), Ok(delay)) => check_length(text, length, delay),
        (Err(length), Err(delay)) => {
            refusal::check(&length, &["expected"]);
            refusal::check(&delay, &["expected"]);
        }
        (length, delay) => panic!("the readers disagree: {length:?}, {delay:?}"),
    }
    match Due::parse_moment(text) {
        Ok(due) => {
            let moment = due.resolve(UnixMs(0));
            assert!(moment.0 > 0, "{moment:?}");
            assert_eq!(Due::parse_moment(&moment.to_string()), Ok(due));
        }
        Err(error) => refusal::check(&error, &["expected", "before 1970"]),
    }
}

fn check_length(text: &str, length: Duration, delay: Due) {
    assert!(length <= DELAY_MAX);
    assert_eq!(delay, Due::after(length).expect("it is not longer"));
    assert_eq!(parse_length(&format!("\t{text} ")), Ok(length));
    // What people read is what was written, or up to one unit less.
    let shown = format::duration(length);
    let read = parse_length(&shown).unwrap_or_else(|error| panic!("{shown}: {error}"));
    assert!(read <= length && format::duration(read) == shown, "{shown}");
}
