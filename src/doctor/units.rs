//! Formats numbers, sizes and durations for reading.

use std::time::Duration;

/// `284 359`
pub(super) fn count(n: u64) -> String {
    let digits = n.to_string();
    let first = digits.len() % 3;
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && index % 3 == first {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// `128 MiB`, `1.4 GiB`
pub(super) fn bytes(n: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (n as f64, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(unit > 0 && value < 10.0 && value.fract() >= 0.05);
    format!("{value:.decimals$} {}", units[unit])
}

/// `340 ms`, `2.5 s`, `8 min 20 s`, `3 h 5 min`, `2 days 4 h`
pub(super) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let two = |n: u64, unit: &str, rest: u64, small: &str| match rest {
        0 => format!("{n} {unit}"),
        rest => format!("{n} {unit} {rest} {small}"),
    };
    match seconds {
        0 => format!("{} ms", span.as_millis()),
        1..60 => format!("{:.1} s", span.as_secs_f64()),
        60..3600 => two(seconds / 60, "min", seconds % 60, "s"),
        3600..86_400 => two(seconds / 3600, "h", seconds % 3600 / 60, "min"),
        _ => two(seconds / 86_400, "days", seconds % 86_400 / 3600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_have_units() {
        let counts = [0, 999, 1000, 284_359, 1_000_000].map(count);
        assert_eq!(counts, ["0", "999", "1 000", "284 359", "1 000 000"]);
        let sizes = [512, 134_217_728, 1_503_238_553].map(bytes);
        assert_eq!(sizes, ["512 bytes", "128 MiB", "1.4 GiB"]);
        let spans = [340, 2500, 500_000, 11_100_000, 187_200_000].map(Duration::from_millis);
        let spans = spans.map(span);
        assert_eq!(
            spans,
            ["340 ms", "2.5 s", "8 min 20 s", "3 h 5 min", "2 days 4 h"]
        );
    }
}
