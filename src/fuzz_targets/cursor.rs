//! Cursors of lists, armings in `If-Match`, scopes of pauses, and rates: short texts that are written and read again.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use lapsed_core::ledger::ListCursor;
use lapsed_core::task::{Arming, Rate, Scope};

use crate::refusal;

pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    check::<ListCursor>(text, "expected");
    check::<Scope>(text, "expected");
    check::<Rate>(text, "expected");
    if let Ok(arming) = text.parse::<Arming>() {
        assert_eq!(arming.to_string().parse().ok(), Some(arming), "{text:?}");
    }
}

/// What is read is written, and read as the same.
fn check<T: FromStr<Err: ToString> + Display + PartialEq + Debug>(text: &str, says: &str) {
    match text.parse::<T>() {
        Ok(value) => {
            let written = value.to_string();
            let again = written.parse::<T>().ok();
            assert_eq!(again.as_ref(), Some(&value), "{text:?}, {written:?}");
        }
        Err(error) => refusal::check(&error, &[says]),
    }
}
