//! What operations cost by the size of the table: figures, and where they would be with a larger table.

use std::collections::BTreeSet;

use comfy_table::{CellAlignment, Table, presets};
use lapsed_core::format;

use crate::bench::stats::{Row, Stat};

/// The size that costs are extrapolated to.
pub const FAR_ROWS: u64 = 100_000_000;

/// Sizes that the extrapolation follows: the last ones.
const FOLLOWED: usize = 3;

/// An operation at one size of the table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Rows in the table.
    pub rows: u64,
    /// Median of the calls, in milliseconds.
    pub median_ms: f64,
    /// The longest call.
    pub max_ms: f64,
    /// Rows that the database read for a call, on average, if they were counted.
    pub rows_read: Option<f64>,
    /// Calls that ended at their limit of time, before their page was full.
    pub timed_out: u32,
}

/// An operation at each size, smallest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    pub operation: String,
    pub points: Vec<Point>,
}

impl Point {
    /// Sums up the calls of an operation: how long each took, and rows read by all of them.
    pub fn of(rows: u64, mut calls_ms: Vec<f64>, rows_read: Option<u64>) -> Self {
        calls_ms.sort_by(f64::total_cmp);
        let calls = calls_ms.len().max(1);
        Self {
            rows,
            median_ms: calls_ms.get(calls / 2).copied().unwrap_or(0.0),
            max_ms: calls_ms.last().copied().unwrap_or(0.0),
            rows_read: rows_read.map(|read| read as f64 / calls as f64),
            timed_out: 0,
        }
    }

    fn text(&self) -> String {
        let [median, max] = [self.median_ms, self.max_ms].map(|ms| format::decimal(ms, 1));
        match self.rows_read {
            Some(read) => format!("{median} ({max}) {}", format::decimal(read, 0)),
            None => format!("{median} ({max}) -"),
        }
    }
}

impl Curve {
    /// The median with [`FAR_ROWS`], on the line through the last sizes on logarithmic axes. `None` if that was measured, or if no
    /// size is twice another one.
    pub fn extrapolated_ms(&self) -> Option<f64> {
        let last = self.points.last().filter(|last| last.rows < FAR_ROWS)?;
        let followed = &self.points[self.points.len().saturating_sub(FOLLOWED)..];
        // A line through sizes that are close together says nothing of one that is far away.
        followed
            .first()
            .filter(|first| last.rows >= 2 * first.rows)?;
        let places: Vec<(f64, f64)> = followed
            .iter()
            .map(|point| ((point.rows as f64).ln(), point.median_ms.max(1e-3).ln()))
            .collect();
        let slope = slope(&places)?;
        let farther = (FAR_ROWS as f64 / last.rows as f64).ln();
        Some(last.median_ms * (slope * farther).exp())
    }

    /// One row of the report for each size.
    pub fn report(&self) -> impl Iterator<Item = Row> {
        let far = self.extrapolated_ms().map(|ms| Row {
            label: format!(
                "{}, {} rows, extrapolated",
                self.operation,
                format::count(FAR_ROWS)
            ),
            run: None,
            stats: vec![
                Stat::count("rows", FAR_ROWS),
                Stat::measured("median_ms", ms, 2),
            ],
        });
        let measured = self.points.iter().map(|point| Row {
            label: format!("{}, {} rows", self.operation, format::count(point.rows)),
            run: Some(1),
            stats: vec![
                Stat::count("rows", point.rows),
                Stat::measured("median_ms", point.median_ms, 2),
                Stat::measured("max_ms", point.max_ms, 2),
                Stat::measured("rows_read", point.rows_read, 1),
                Stat::count("timed_out", u64::from(point.timed_out)),
            ],
        });
        measured.chain(far)
    }
}

/// Slope of the line with the least squares of distances; `None` for fewer than two places.
fn slope(places: &[(f64, f64)]) -> Option<f64> {
    let count = places.len() as f64;
    let (x, y) = places
        .iter()
        .fold((0.0, 0.0), |(x, y), place| (x + place.0, y + place.1));
    let (x, y) = (x / count, y / count);
    let across: f64 = places.iter().map(|place| (place.0 - x).powi(2)).sum();
    let along: f64 = places
        .iter()
        .map(|place| (place.0 - x) * (place.1 - y))
        .sum();
    (across > 0.0).then(|| along / across)
}

/// One operation per line, one size per column. A page that exists only of a large table has no figures for small ones.
pub fn table(curves: &[Curve]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let sizes: BTreeSet<u64> = curves
        .iter()
        .flat_map(|curve| curve.points.iter().map(|point| point.rows))
        .collect();
    let far = curves.iter().any(|curve| curve.extrapolated_ms().is_some());
    let mut heading = vec!["ms (max) rows read".to_owned()];
    heading.extend(sizes.iter().copied().map(format::count));
    heading.extend(far.then(|| format!("{} (extrapolated)", format::count(FAR_ROWS))));
    table.set_header(heading);
    for curve in curves {
        let mut cells = vec![curve.operation.clone()];
        cells.extend(sizes.iter().map(|rows| {
            let point = curve.points.iter().find(|point| point.rows == *rows);
            point.map(Point::text).unwrap_or_default()
        }));
        let ms = curve.extrapolated_ms();
        cells.extend(ms.map(|ms| format::decimal(ms, 1)));
        table.add_row(cells);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(u64, f64)]) -> Curve {
        let point = |(rows, median_ms): &(u64, f64)| Point::of(*rows, vec![*median_ms], None);
        Curve {
            operation: "list".to_owned(),
            points: points.iter().map(point).collect(),
        }
    }

    #[test]
    fn the_extrapolation_follows_the_last_sizes() {
        let far = |points: &[(u64, f64)]| curve(points).extrapolated_ms();
        assert_eq!(far(&[(1_000_000, 5.0)]), None);
        assert_eq!(far(&[(FAR_ROWS, 5.0), (2 * FAR_ROWS, 5.0)]), None);
        assert_eq!(far(&[(1_000_000, 5.0), (1_500_000, 9.0)]), None);
        let is = |expected: f64, found: Option<f64>| {
            let found = found.unwrap();
            assert!((found / expected - 1.0).abs() < 1e-6, "{found}");
        };
        is(5.0, far(&[(1_000_000, 5.0), (10_000_000, 5.0)]));
        is(500.0, far(&[(1_000_000, 5.0), (10_000_000, 50.0)]));
        let bent = [
            (1_000, 9.0),
            (100_000, 1.0),
            (1_000_000, 10.0),
            (10_000_000, 100.0),
        ];
        is(1_000.0, far(&bent));
    }

    #[test]
    fn a_point_has_the_median_and_the_longest_call_and_rows_for_each() {
        let point = Point::of(7, vec![3.0, 1.0, 2.0], Some(30));
        assert_eq!((point.median_ms, point.max_ms), (2.0, 3.0));
        assert_eq!(point.rows_read, Some(10.0));
    }
}
