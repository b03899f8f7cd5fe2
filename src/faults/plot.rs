//! Draws lateness over time as SVG.

use std::fmt::Write as _;

use crate::history::Ms;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 360.0;
/// Room for the labels.
const LEFT: f64 = 60.0;
const BOTTOM: f64 = 40.0;

/// From 1 ms to 10 s, by powers of ten.
const DECADES: i32 = 4;

/// The lines: of a thousand, and their colours.
const LINES: [(usize, &str, &str); 3] = [
    (500, "p50", "#1b7f5c"),
    (990, "p99", "#b3541e"),
    (1_000, "most", "#7a1f4b"),
];

/// Percentiles of lateness in one minute.
#[derive(Debug, PartialEq, Eq)]
pub struct Minute {
    pub number: usize,
    pub count: usize,
    /// As in `LINES`.
    pub late_ms: [Ms; 3],
}

/// Groups pairs of a start and its lateness by the minute. Minutes without a start are left out.
pub fn minutes(late: &[(Ms, Ms)]) -> Vec<Minute> {
    let Some(first) = late.iter().map(|(at, _)| *at).min() else {
        return Vec::new();
    };
    let mut groups: std::collections::BTreeMap<usize, Vec<Ms>> = std::collections::BTreeMap::new();
    for (at, late) in late {
        let number = usize::try_from((at - first) / 60_000).unwrap_or(0);
        groups.entry(number).or_default().push(*late);
    }
    let minute = |(number, mut late): (usize, Vec<Ms>)| {
        late.sort_unstable();
        let late_ms = LINES.map(|(of_thousand, ..)| percentile(&late, of_thousand));
        Minute {
            number,
            count: late.len(),
            late_ms,
        }
    };
    groups.into_iter().map(minute).collect()
}

/// A picture of the percentiles, on a logarithmic scale.
pub fn svg(minutes: &[Minute], title: &str) -> String {
    let last = minutes.last().map_or(1, |minute| minute.number.max(1)) as f64;
    let x = |number: usize| LEFT + (WIDTH - LEFT - 20.0) * number as f64 / last;
    let y = |ms: f64| {
        let place = ms.max(1.0).log10().min(f64::from(DECADES)) / f64::from(DECADES);
        HEIGHT - BOTTOM - (HEIGHT - BOTTOM - 40.0) * place
    };
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n<text x=\"{LEFT}\" y=\"20\">{title}</text>\n"
    );
    for decade in 0..=DECADES {
        let (ms, at) = (10_i64.pow(decade.unsigned_abs()), y(10_f64.powi(decade)));
        let _ = writeln!(
            text,
            "<path d=\"M{LEFT} {at:.1}H{:.1}\" stroke=\"#dddddd\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{ms} ms</text>",
            WIDTH - 20.0,
            LEFT - 6.0,
            at + 4.0
        );
    }
    let every = minutes.len().div_ceil(15).max(1);
    for minute in minutes.iter().step_by(every) {
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x(minute.number),
            HEIGHT - BOTTOM + 18.0,
            minute.number
        );
    }
    for (place, (_, name, colour)) in LINES.iter().enumerate() {
        let points = minutes
            .iter()
            .map(|it| format!("{:.1},{:.1}", x(it.number), y(it.late_ms[place] as f64)));
        let points: Vec<String> = points.collect();
        let _ = writeln!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>\
             <text x=\"{:.1}\" y=\"20\" fill=\"{colour}\">{name}</text>",
            points.join(" "),
            WIDTH - 180.0 + 50.0 * place as f64
        );
    }
    let _ = writeln!(
        text,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">minute</text>\n</svg>",
        WIDTH - 20.0,
        HEIGHT - 6.0
    );
    text
}

/// So many of a thousand are at most this; 0 of none.
pub fn percentile(sorted: &[Ms], of_thousand: usize) -> Ms {
    let place = (sorted.len() * of_thousand).div_ceil(1_000);
    sorted.get(place.saturating_sub(1)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_grouped_by_the_minute() {
        let late = [(1_000, 2), (2_000, 4), (61_000, 7), (181_000, 1_000)];
        let minutes = minutes(&late);
        let found: Vec<_> = minutes
            .iter()
            .map(|it| (it.number, it.count, it.late_ms))
            .collect();
        assert_eq!(
            found,
            [(0, 2, [2, 4, 4]), (1, 1, [7; 3]), (3, 1, [1_000; 3])]
        );
        let picture = svg(&minutes, "late");
        assert_eq!(picture.matches("<polyline").count(), 3);
        assert!(picture.ends_with("</svg>\n"), "{picture}");
    }
}
