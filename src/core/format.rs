//! Numbers, sizes, durations and bytes as text: one look on pages, in reports, in errors and on the command line.

use std::time::Duration;

/// Formats a number with its thousands apart: `12,345`.
pub fn count(number: u64) -> String {
    thousands(&number.to_string())
}

/// Formats a number with this many decimals and its thousands apart: `12,345.6`.
pub fn decimal(number: f64, decimals: usize) -> String {
    thousands(&format!("{number:.decimals$}"))
}

fn thousands(number: &str) -> String {
    let (whole, fraction) = number.split_at(number.find('.').unwrap_or(number.len()));
    let mut text = String::with_capacity(number.len() * 4 / 3 + 1);
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text + fraction
}

/// Formats a size: `128 MiB`, `1.4 GiB`.
pub fn bytes(number: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (number as f64, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(unit > 0 && value < 10.0 && value.fract() >= 0.05);
    format!("{value:.decimals$} {}", units[unit])
}

/// A unit of a formatted duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    /// `ms`
    Millisecond,
    /// `s`
    Second,
    /// `min`
    Minute,
    /// `h`
    Hour,
    /// `d`, of 24 hours
    Day,
}

impl TimeUnit {
    fn symbol(self) -> &'static str {
        match self {
            Self::Millisecond => "ms",
            Self::Second => "s",
            Self::Minute => "min",
            Self::Hour => "h",
            Self::Day => "d",
        }
    }
}

/// Formats a duration in its two largest units: `340 ms`, `1.25 s`, `8 min 20 s`, `3 h 5 min`, `2 d 4 h`. The configuration
/// reads it back.
pub fn duration(span: Duration) -> String {
    duration_with(span, |number, unit| format!("{number} {}", unit.symbol()))
}

/// As [`duration`], with each number and its unit formatted by `part`.
pub fn duration_with(span: Duration, part: impl Fn(&str, TimeUnit) -> String) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    let seconds = span.as_secs();
    let (size, unit, next_size, next_unit) = match seconds {
        0 => return part(&span.as_millis().to_string(), TimeUnit::Millisecond),
        1..MINUTE => return part(&with_hundredths(span), TimeUnit::Second),
        MINUTE..HOUR => (MINUTE, TimeUnit::Minute, 1, TimeUnit::Second),
        HOUR..DAY => (HOUR, TimeUnit::Hour, MINUTE, TimeUnit::Minute),
        DAY.. => (DAY, TimeUnit::Day, HOUR, TimeUnit::Hour),
    };
    let largest = part(&(seconds / size).to_string(), unit);
    match seconds % size / next_size {
        0 => largest,
        rest => format!("{largest} {}", part(&rest.to_string(), next_unit)),
    }
}

/// Whole seconds, and hundredths of a second if there are any: `1.25`, `2.5`, `7`.
fn with_hundredths(span: Duration) -> String {
    let text = format!("{}.{:02}", span.as_secs(), span.subsec_millis() / 10);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Formats bytes as lower-case hexadecimal digits.
pub fn hex(bytes: impl AsRef<[u8]>) -> String {
    use std::fmt::Write as _;
    let bytes = bytes.as_ref();
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(digits, "{byte:02x}").expect("a string takes all text");
    }
    digits
}

/// Reads exactly `N` bytes as hexadecimal digits, of either case. `None` if the text is anything else.
pub fn from_hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_thousands_apart() {
        let counts = [0, 999, 1_000, 284_359, 1_234_567].map(count);
        assert_eq!(counts, ["0", "999", "1,000", "284,359", "1,234,567"]);
        let decimals = [(1_234_567.8, 1), (999.0, 0), (-100.5, 1), (1_000.0, 0)];
        let decimals = decimals.map(|(number, decimals)| decimal(number, decimals));
        assert_eq!(decimals, ["1,234,567.8", "999", "-100.5", "1,000"]);
    }

    #[test]
    fn sizes_have_units_of_1024() {
        let sizes = [512, 134_217_728, 1_503_238_553].map(bytes);
        assert_eq!(sizes, ["512 bytes", "128 MiB", "1.4 GiB"]);
    }

    #[test]
    fn a_duration_has_its_two_largest_units_and_can_be_read_back() {
        for (ms, expected) in [
            (0, "0 ms"),
            (340, "340 ms"),
            (1_000, "1 s"),
            (1_250, "1.25 s"),
            (2_500, "2.5 s"),
            (10_009, "10 s"),
            (59_999, "59.99 s"),
            (60_999, "1 min"),
            (61_000, "1 min 1 s"),
            (90_500, "1 min 30 s"),
            (500_000, "8 min 20 s"),
            (3_600_000, "1 h"),
            (3_605_000, "1 h"),
            (11_100_000, "3 h 5 min"),
            (90_000_000, "1 d 1 h"),
            (90_061_000, "1 d 1 h"),
            (187_200_000, "2 d 4 h"),
        ] {
            let text = duration(Duration::from_millis(ms));
            assert_eq!(text, expected);
            let read = crate::task::parse_length(&text).unwrap();
            assert!(read.as_millis() <= u128::from(ms), "{text}");
        }
    }

    #[test]
    fn bytes_are_written_and_read_as_hexadecimal_digits() {
        assert_eq!(hex([0, 10, 255]), "000aff");
        assert_eq!(from_hex(b"000aFF"), Some([0, 10, 255]));
        for wrong in ["000af", "000afff", "000ag0", "+00aff"] {
            assert_eq!(from_hex::<3>(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
