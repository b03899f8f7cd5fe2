//! Plot of costs by the size of the table, both on logarithmic axes.

use lapsed_core::format;

use super::curves::{Curve, FAR_ROWS};
use crate::bench::plot::{Axis, COLORS, FRAME, begin, legend, line, polyline, text};

/// Curves with a color and a name: those that cost most with the largest table.
const NAMED: usize = 7;

/// Columns of the legend.
const COLUMNS: usize = 3;

/// Color of the others.
const OTHER: &str = "#bbbbbb";

/// Values below a hundredth of a millisecond are noise.
const FLOOR: f64 = 0.01;

/// A whole SVG document: medians, and dashed lines to where they would be with [`FAR_ROWS`].
pub fn svg(title: &str, curves: &[Curve]) -> String {
    let far = |curve: &Curve| Some((FAR_ROWS, curve.extrapolated_ms()?));
    let measured = |curve: &Curve| -> Vec<(u64, f64)> {
        let points = curve.points.iter();
        points.map(|point| (point.rows, point.median_ms)).collect()
    };
    let all: Vec<(u64, f64)> = curves
        .iter()
        .flat_map(|curve| measured(curve).into_iter().chain(far(curve)))
        .collect();
    let across = Axis::of(all.iter().map(|(rows, _)| *rows as f64), FLOOR);
    let up = Axis::of(all.iter().map(|(_, ms)| *ms), FLOOR);
    let (left, top, right, bottom) = FRAME;
    let at = |(rows, ms): (u64, f64)| {
        (
            left + (right - left) * across.share(rows as f64),
            bottom - (bottom - top) * up.share(ms),
        )
    };
    let named = curves.len().min(NAMED);
    let mut svg = begin(
        title,
        "milliseconds of a call (median), by rows in the table; dashed: extrapolated",
        named.div_ceil(COLUMNS),
    );
    for ms in up.ticks() {
        let (_, y) = at((1, ms));
        line(&mut svg, (left, y), (right, y));
        text(&mut svg, (left - 6.0, y + 4.0), "end", &format!("{ms}"));
    }
    for rows in across.ticks() {
        let (x, _) = at((rows as u64, 1.0));
        line(&mut svg, (x, top), (x, bottom));
        text(
            &mut svg,
            (x, bottom + 18.0),
            "middle",
            &format::count(rows as u64),
        );
    }
    let last_ms = |curve: &Curve| curve.points.last().map_or(0.0, |point| point.median_ms);
    let mut by_cost: Vec<&Curve> = curves.iter().collect();
    by_cost.sort_by(|a, b| last_ms(b).total_cmp(&last_ms(a)));
    // The named ones are drawn over the others.
    for (place, curve) in by_cost.iter().enumerate().rev() {
        let (color, width) = match place < NAMED {
            true => (COLORS[place % COLORS.len()], 2.0),
            false => (OTHER, 1.0),
        };
        let measured = measured(curve);
        let places: Vec<(f64, f64)> = measured.iter().copied().map(at).collect();
        polyline(&mut svg, color, width, "", &places, &curve.operation);
        if let (Some(last), Some(far)) = (measured.last().copied(), far(curve)) {
            let dashes = " stroke-dasharray=\"4 4\"";
            polyline(
                &mut svg,
                color,
                width,
                dashes,
                &[at(last), at(far)],
                &curve.operation,
            );
        }
        if place < NAMED {
            legend(&mut svg, place, COLUMNS, color, &curve.operation);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::super::curves::Point;
    use super::*;

    #[test]
    fn the_extrapolated_part_is_dashed() {
        let point = |rows| Point::of(rows, vec![2.0], None);
        let curve = Curve {
            operation: "list".to_owned(),
            points: vec![point(1_000), point(10_000)],
        };
        let svg = svg("sizes", &[curve]);
        assert_eq!(svg.matches("<polyline").count(), 2, "{svg}");
        assert_eq!(svg.matches("stroke-dasharray").count(), 1, "{svg}");
    }
}
