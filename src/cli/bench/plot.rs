//! Plot of the lateness distribution: cumulative, over logarithmic milliseconds.

use std::fmt::Write;

use super::samples::Samples;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
/// Frame of the axes: left, top, right, bottom.
pub const FRAME: (f64, f64, f64, f64) = (56.0, 44.0, 736.0, 344.0);
/// Points per curve.
const POINTS: usize = 300;
/// Palette for color-blind readers (after Okabe and Ito), on white and on black.
pub const COLORS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#888888",
];
/// Maximum number of curves with a name; more are drawn without one.
const NAMED: usize = 8;
/// Columns of the legend.
const COLUMNS: usize = 4;

/// The axis of lateness starts at a tenth of a millisecond.
const LATENESS_FLOOR_MS: f64 = 0.1;

/// A logarithmic axis over whole powers of ten.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Axis {
    from_exp: i32,
    to_exp: i32,
    floor: f64,
}

impl Axis {
    /// Spans these values. Those below `floor` are noise, and are drawn there.
    pub fn of(values: impl Iterator<Item = f64>, floor: f64) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.map(|value| value.max(floor).log10()) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        let from_exp = low.floor() as i32;
        Self {
            from_exp,
            to_exp: (high.ceil() as i32).max(from_exp + 1),
            floor,
        }
    }

    /// Returns the place of a value between the beginning of the axis, 0, and its end, 1.
    pub fn share(self, value: f64) -> f64 {
        let log = value.max(self.floor).log10();
        let share = (log - f64::from(self.from_exp)) / f64::from(self.to_exp - self.from_exp);
        share.clamp(0.0, 1.0)
    }

    /// Returns the powers of ten.
    pub fn ticks(self) -> impl Iterator<Item = f64> {
        (self.from_exp..=self.to_exp).map(|exp| 10f64.powi(exp))
    }
}

/// The axis of these curves, in milliseconds.
fn lateness_axis(curves: &[(String, Samples)]) -> Axis {
    let values = curves.iter().flat_map(|(_, samples)| {
        let curve = samples.cumulative(POINTS);
        let ends = [curve.first().copied(), curve.last().copied()];
        ends.into_iter().flatten().map(|(us, _)| ms(us))
    });
    Axis::of(values, LATENESS_FLOOR_MS)
}

fn ms(us: u64) -> f64 {
    us as f64 / 1000.0
}

fn x(axis: Axis, ms: f64) -> f64 {
    let (left, _, right, _) = FRAME;
    left + (right - left) * axis.share(ms)
}

fn y(share: f64) -> f64 {
    let (_, top, _, bottom) = FRAME;
    bottom - (bottom - top) * share
}

/// A whole SVG document.
pub fn svg(title: &str, curves: &[(String, Samples)]) -> String {
    let axis = lateness_axis(curves);
    let what = "share of tasks started, by milliseconds after the due time";
    let mut svg = begin(title, what, curves.len().min(NAMED).div_ceil(COLUMNS));
    draw_axes(&mut svg, axis);
    for (at, (name, samples)) in curves.iter().enumerate() {
        draw_curve(&mut svg, axis, at, name, samples);
    }
    svg.push_str("</svg>\n");
    svg
}

/// The beginning of a document with this number of lines of names below the frame.
pub fn begin(title: &str, what: &str, lines: usize) -> String {
    let height = HEIGHT + lines as f64 * 18.0;
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" font-family="system-ui, sans-serif" font-size="12">
<style>
text {{ fill: #333 }} .grid {{ stroke: #888; stroke-opacity: .25 }} .frame {{ stroke: #888; fill: none }} .curve {{ fill: none; stroke-width: 2; stroke-linejoin: round }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #ddd }} }}
</style>
<title>{title}</title>
<text x="{x}" y="24" font-size="15" font-weight="600">{title}: {what}</text>
"##,
        title = escape(title),
        x = FRAME.0,
    );
    let (left, top, right, bottom) = FRAME;
    let (width, height) = (right - left, bottom - top);
    let _ = writeln!(
        svg,
        r#"<rect class="frame" x="{left}" y="{top}" width="{width}" height="{height}"/>"#
    );
    svg
}

fn draw_axes(svg: &mut String, axis: Axis) {
    let (left, top, right, bottom) = FRAME;
    for percent in [0, 25, 50, 75, 90, 100] {
        let y = y(f64::from(percent) / 100.0);
        line(svg, (left, y), (right, y));
        text(svg, (left - 6.0, y + 4.0), "end", &format!("{percent} %"));
    }
    for ms in axis.ticks() {
        let tick = x(axis, ms);
        line(svg, (tick, top), (tick, bottom));
        text(svg, (tick, bottom + 18.0), "middle", &format!("{ms} ms"));
        for fine in (2..10).map(|fine| ms * f64::from(fine)) {
            if axis.share(fine) < 1.0 {
                let tick = x(axis, fine);
                line(svg, (tick, bottom - 4.0), (tick, bottom));
            }
        }
    }
}

fn draw_curve(svg: &mut String, axis: Axis, at: usize, name: &str, samples: &Samples) {
    let color = COLORS[at % COLORS.len()];
    let mut points = String::new();
    let mut before = 0.0;
    for (us, share) in samples.cumulative(POINTS) {
        let x = x(axis, ms(us));
        // A step: no further task had started until this moment.
        let _ = write!(points, "{x:.1},{:.1} {x:.1},{:.1} ", y(before), y(share));
        before = share;
    }
    let title = escape(name);
    let _ = writeln!(
        svg,
        r#"<polyline class="curve" stroke="{color}" points="{}"><title>{title}</title></polyline>"#,
        points.trim_end()
    );
    if at < NAMED {
        legend(svg, at, COLUMNS, color, name);
    }
}

/// The color and the name of the curve at this place of the legend, which has `columns` columns.
pub fn legend(svg: &mut String, at: usize, columns: usize, color: &str, name: &str) {
    let (left, _, right, bottom) = FRAME;
    let (x, y) = (
        left + (at % columns) as f64 * (right - left) / columns as f64,
        bottom + 48.0 + (at / columns) as f64 * 18.0,
    );
    let _ = writeln!(
        svg,
        r#"<rect x="{x:.1}" y="{:.1}" width="14" height="4" fill="{color}"/>"#,
        y - 6.0
    );
    text(svg, (x + 20.0, y), "start", name);
}

/// A line through these places, with more attributes.
pub fn polyline(
    svg: &mut String,
    color: &str,
    width: f64,
    attributes: &str,
    places: &[(f64, f64)],
    name: &str,
) {
    let points: Vec<String> = places
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    let _ = writeln!(
        svg,
        r#"<polyline fill="none" stroke="{color}" stroke-width="{width}"{attributes} points="{}"><title>{}</title></polyline>"#,
        points.join(" "),
        escape(name)
    );
}

pub fn line(svg: &mut String, from: (f64, f64), to: (f64, f64)) {
    let _ = writeln!(
        svg,
        r#"<line class="grid" x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}"/>"#,
        from.0, from.1, to.0, to.1
    );
}

pub fn text(svg: &mut String, at: (f64, f64), anchor: &str, text: &str) {
    let _ = writeln!(
        svg,
        r#"<text x="{:.1}" y="{:.1}" text-anchor="{anchor}">{}</text>"#,
        at.0,
        at.1,
        escape(text)
    );
}

fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::samples::Lateness;

    #[test]
    fn an_axis_spans_whole_powers_of_ten() {
        let exps = |axis: Axis| (axis.from_exp, axis.to_exp);
        let of = |values: &[f64]| exps(Axis::of(values.iter().copied(), 0.01));
        assert_eq!(of(&[1.2, 45.0]), (0, 2));
        assert_eq!(of(&[0.0, 0.5]), (-2, 0));
        assert_eq!(of(&[1_000.0]), (3, 4));
        assert_eq!(of(&[]), (0, 1));
        let lateness = |us: &[u64]| {
            let samples = Samples::new(us.iter().copied().map(Lateness::Started));
            exps(lateness_axis(&[(String::new(), samples)]))
        };
        assert_eq!(lateness(&[1_200, 45_000]), (0, 2));
        assert_eq!(lateness(&[0, 900]), (-1, 0));
    }

    #[test]
    fn names_cannot_break_the_document() {
        let curves = [("<a & b>".to_owned(), Samples::new([Lateness::Started(1)]))];
        assert!(svg("x", &curves).contains("&lt;a &amp; b&gt;"));
    }
}
