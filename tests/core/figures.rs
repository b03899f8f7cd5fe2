//! The graphs of `docs/benchmark.md` are drawn from its tables, so that each figure is in one place.

use std::fmt::Write;
use std::path::Path;

use crate::support::snapshot::UPDATE;

/// Sections of the page with their graphs: heading, title, file.
const GRAPHS: [(&str, &str, &str); 2] = [
    (
        "## Measured figures",
        "Lateness on MariaDB and Redis",
        "benchmark-mariadb.svg",
    ),
    (
        "### On a ledger in SQLite",
        "Lateness on a ledger in SQLite, and the time of a SETEX",
        "benchmark-sqlite.svg",
    ),
];

const WIDTH: f64 = 900.0;
/// The axis, from its first to its last power of ten in milliseconds.
const AXIS: (f64, f64) = (400.0, 870.0);
const POWERS: (i32, i32) = (-1, 3);
const TOP: f64 = 70.0;
const LINE: f64 = 15.0;
/// Characters of a line that fit before the axis.
const LABEL_CHARS: usize = 56;

/// Lateness in milliseconds, or the time of a request, as a row of a table has it.
#[derive(Debug, PartialEq)]
struct Lateness {
    label: String,
    p50: f64,
    p99: f64,
    /// The p99.9 or the maximum.
    most: Option<f64>,
}

#[test]
fn the_graphs_of_the_benchmark_show_its_tables() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let page = std::fs::read_to_string(docs.join("benchmark.md")).unwrap();
    for (heading, title, file) in GRAPHS {
        let rows = rows_of(&page, heading);
        assert!(rows.len() >= 5, "`{heading}` has few rows: {rows:?}");
        let graph = svg(title, &rows);
        let path = docs.join(file);
        if std::env::var_os(UPDATE).is_some() {
            std::fs::write(&path, &graph).unwrap();
        }
        let drawn = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            drawn == graph,
            "`docs/{file}` differs from the table below `{heading}`: run this test again with {UPDATE}=1 and commit the file"
        );
        assert!(
            page.contains(&format!("]({file})")),
            "the page shows {file}"
        );
    }
}

#[test]
fn the_lateness_of_a_row_is_read_with_what_it_is_of() {
    let row = "| 200 a second | p50 1.1 ms, p99 3.9 ms, p99.9 23 ms | `bench` |";
    let one = |label: &str, p50, p99, most| Lateness {
        label: label.to_owned(),
        p50,
        p99,
        most,
    };
    assert_eq!(latenesses(row), [one("200 a second", 1.1, 3.9, Some(23.0))]);
    let two = "| overdue | a queue: p50 1 ms, p99 45 ms, max 157 ms; beside `x` p50 2.6 ms, p99 44 ms (20 to 50) | |";
    assert_eq!(
        latenesses(two),
        [
            one("overdue: a queue", 1.0, 45.0, Some(157.0)),
            one("overdue: beside x", 2.6, 44.0, None)
        ]
    );
    for none in [
        "| burst | 3.2 s | |",
        "| two runs | p50 0.5 ms, p99 3.1 and 3.9 ms | |",
        "text",
    ] {
        assert_eq!(latenesses(none), [], "{none}");
    }
}

/// The rows of the section below a heading, up to the next heading.
fn rows_of(page: &str, heading: &str) -> Vec<Lateness> {
    let lines = page.lines().skip_while(|line| *line != heading).skip(1);
    let section = lines.take_while(|line| !line.starts_with('#'));
    section.flat_map(latenesses).collect()
}

/// Each `p50 .. ms, p99 .. ms` of the second cell of a row.
fn latenesses(row: &str) -> Vec<Lateness> {
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    let [_, name, measured, ..] = cells[..] else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for part in measured.split("; ") {
        let (before, values) = part.split_once("p50 ").unwrap_or((part, ""));
        let Some((p50, rest)) = number(values) else {
            continue;
        };
        let Some((p99, rest)) = rest.strip_prefix(", p99 ").and_then(number) else {
            continue;
        };
        let most = [", p99.9 ", ", max ", ", at most "];
        let most = most.iter().find_map(|word| rest.strip_prefix(word));
        let label = match before.trim_end().trim_end_matches(':') {
            "" => name.to_owned(),
            what => format!("{name}: {what}"),
        };
        found.push(Lateness {
            label: label.replace('`', ""),
            p50,
            p99,
            most: most.and_then(number).map(|(most, _)| most),
        });
    }
    found
}

/// A number of milliseconds, and what follows it.
fn number(text: &str) -> Option<(f64, &str)> {
    let (number, rest) = text.split_once(" ms")?;
    Some((number.parse().ok()?, rest))
}

/// The place of a number of milliseconds on the logarithmic axis.
fn x(ms: f64) -> f64 {
    let (from, to) = (f64::from(POWERS.0), f64::from(POWERS.1));
    AXIS.0 + (AXIS.1 - AXIS.0) * (ms.log10() - from) / (to - from)
}

fn svg(title: &str, rows: &[Lateness]) -> String {
    let labels: Vec<Vec<String>> = rows.iter().map(|row| wrapped(&row.label)).collect();
    let heights = labels.iter().map(|lines| (lines.len() as f64 + 1.0) * LINE);
    let bottom = TOP + heights.sum::<f64>();
    let height = bottom + 30.0;
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" font-family="system-ui, sans-serif" font-size="12">
<title>{title}</title>
<style>
text {{ fill: #333 }} .grid {{ stroke: #888; stroke-opacity: .25 }} .span {{ stroke: #0072b2; stroke-width: 2 }} .dot {{ fill: #0072b2 }} .most {{ fill: none; stroke: #d55e00; stroke-width: 2 }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #ddd }} }}
</style>
<text x="10" y="22" font-size="15" font-weight="600">{title}</text>
<text x="10" y="44">From p50 (dot) to p99 (end of the line); circle: p99.9 or maximum, where it is known. The scale is logarithmic.</text>
"##
    );
    for power in POWERS.0..=POWERS.1 {
        let ms = 10f64.powi(power);
        let x = x(ms);
        let _ = writeln!(
            svg,
            r#"<path class="grid" d="M{x:.1} {TOP}V{bottom}"/><text x="{x:.1}" y="{y}" text-anchor="middle">{ms} ms</text>"#,
            y = bottom + 18.0
        );
    }
    let mut y = TOP;
    for (row, lines) in rows.iter().zip(&labels) {
        for (at, line) in lines.iter().enumerate() {
            let y = y + LINE * (at as f64 + 1.0);
            let _ = writeln!(svg, r#"<text x="10" y="{y}">{line}</text>"#);
        }
        let middle = y + LINE * (lines.len() as f64 + 1.0) / 2.0;
        let (p50, p99) = (x(row.p50), x(row.p99));
        let _ = writeln!(
            svg,
            r#"<path class="span" d="M{p50:.1} {middle}H{p99:.1}m0 -5v10"/><circle class="dot" cx="{p50:.1}" cy="{middle}" r="4"/>"#
        );
        if let Some(most) = row.most.map(x) {
            let _ = writeln!(
                svg,
                r#"<circle class="most" cx="{most:.1}" cy="{middle}" r="4"/>"#
            );
        }
        y += LINE * (lines.len() as f64 + 1.0);
    }
    svg + "</svg>\n"
}

/// A text in lines that fit before the axis.
fn wrapped(text: &str) -> Vec<String> {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= LABEL_CHARS {
            *line += &format!(" {word}");
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}
