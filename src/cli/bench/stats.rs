//! Statistics of a run: named values as text and JSON, and their medians.

use lapsed_core::format;
use serde_json::{Map, Value as Json};

use super::meter::Cost;

/// Value of a statistic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// Not known here.
    Unknown,
    /// Exact count; several runs are combined by their maximum.
    Count(u64),
    /// Measured value and its number of decimals; several runs are combined by their median.
    Measured(f64, usize),
    /// More than this many milliseconds: it had not happened when watching ended.
    MoreThanMs(f64),
    /// Whether a condition held; of several runs, whether it held in all.
    Held(bool),
}

/// A named statistic.
#[derive(Debug, Clone, PartialEq)]
pub struct Stat {
    pub name: &'static str,
    pub value: Value,
}

/// Statistics of one run, or the medians of several.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What was measured: rows of the same label are repetitions.
    pub label: String,
    /// Number of the repetition, from 1; `None` for medians.
    pub run: Option<u32>,
    pub stats: Vec<Stat>,
}

impl Stat {
    pub fn new(name: &'static str, value: Value) -> Self {
        Self { name, value }
    }

    pub fn count(name: &'static str, count: u64) -> Self {
        Self::new(name, Value::Count(count))
    }

    /// A measured value, if it is known.
    pub fn measured(name: &'static str, value: impl Into<Option<f64>>, decimals: usize) -> Self {
        Self::new(name, Value::measured(value.into(), decimals))
    }
}

impl Value {
    /// CPU time in percent of one core.
    pub fn cpu(cost: Option<Cost>, decimals: usize) -> Self {
        Self::measured(cost.map(|cost| cost.cpu_percent), decimals)
    }

    /// Maximum resident memory in megabytes.
    pub fn rss(cost: Option<Cost>) -> Self {
        Self::measured(cost.map(|cost| megabytes(cost.resident_max)), 1)
    }

    /// A count divided by `total`, if both are known and `total` is not zero.
    pub fn ratio(count: Option<u64>, total: f64, decimals: usize) -> Self {
        let count = count.filter(|_| total > 0.0);
        Self::measured(count.map(|count| count as f64 / total), decimals)
    }

    /// A measured value, if it is known.
    pub fn measured(value: Option<f64>, decimals: usize) -> Self {
        value.map_or(Self::Unknown, |value| Self::Measured(value, decimals))
    }

    /// Formats the value as text.
    pub fn text(self) -> String {
        match self {
            Self::Unknown => "-".to_owned(),
            Self::Count(count) => format::count(count),
            Self::Measured(value, decimals) => format::decimal(value, decimals),
            Self::MoreThanMs(ms) => format!("> {:.1} s", ms / 1000.0),
            Self::Held(held) => if held { "yes" } else { "NO" }.to_owned(),
        }
    }

    fn json(self) -> Json {
        match self {
            // A lower bound is not a number in JSON; `lost` counts such tasks.
            Self::Unknown | Self::MoreThanMs(_) => Json::Null,
            Self::Count(count) => Json::from(count),
            Self::Measured(value, decimals) => {
                let scale = 10f64.powi(i32::try_from(decimals).unwrap_or(0) + 2);
                Json::from((value * scale).round() / scale)
            }
            Self::Held(held) => Json::from(held),
        }
    }
}

impl Row {
    /// One JSON object: label, run, and a field for each statistic.
    pub fn json(&self) -> Json {
        let Self { label, run, stats } = self;
        let mut object = Map::new();
        object.insert("label".to_owned(), Json::from(label.clone()));
        object.insert("run".to_owned(), Json::from(*run));
        for Stat { name, value } in stats {
            object.insert((*name).to_owned(), value.json());
        }
        Json::Object(object)
    }
}

/// Combines the rows of each label, in order of appearance.
pub fn medians(rows: &[Row]) -> Vec<Row> {
    let mut labels: Vec<&str> = Vec::new();
    for row in rows {
        if !labels.contains(&row.label.as_str()) {
            labels.push(&row.label);
        }
    }
    labels
        .into_iter()
        .map(|label| {
            let of_label: Vec<&Row> = rows.iter().filter(|row| row.label == label).collect();
            let names = of_label[0].stats.iter().map(|stat| stat.name);
            let stats = names.map(|name| {
                let values = of_label.iter().flat_map(|row| &row.stats);
                let values = values.filter(|stat| stat.name == name);
                let value = together(values.map(|stat| stat.value).collect());
                Stat { name, value }
            });
            Row {
                label: label.to_owned(),
                run: None,
                stats: stats.collect(),
            }
        })
        .collect()
}

/// Combines several values of one statistic.
fn together(values: Vec<Value>) -> Value {
    let counts: Option<Vec<u64>> = values
        .iter()
        .map(|value| match value {
            Value::Count(count) => Some(*count),
            _ => None,
        })
        .collect();
    if let Some(most) = counts.and_then(|counts| counts.into_iter().max()) {
        return Value::Count(most);
    }
    if let Some(Value::Held(_)) = values.first() {
        return Value::Held(values.iter().all(|value| *value == Value::Held(true)));
    }
    if values.contains(&Value::Unknown) {
        return Value::Unknown;
    }
    let mut values = values;
    values.sort_by(|a, b| size(*a).total_cmp(&size(*b)));
    let middle = values.len() / 2;
    match (values.get(middle), values.len() % 2) {
        (Some(value), 1) => *value,
        // For an even number, the mean of the two middle values.
        (Some(Value::Measured(upper, decimals)), _) => match values[middle - 1] {
            Value::Measured(lower, _) => Value::Measured((lower + upper) / 2.0, *decimals),
            other => other,
        },
        (Some(value), _) => *value,
        (None, _) => Value::Unknown,
    }
}

fn size(value: Value) -> f64 {
    match value {
        Value::Measured(value, _) | Value::MoreThanMs(value) => value,
        Value::Count(count) => count as f64,
        Value::Unknown | Value::Held(_) => f64::INFINITY,
    }
}

/// Megabytes: a million bytes, as in the documentation.
pub fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(label: &str, run: u32, value: Value) -> Row {
        Row {
            label: label.to_owned(),
            run: Some(run),
            stats: vec![Stat { name: "x", value }],
        }
    }

    fn median_of(values: &[Value]) -> Value {
        let runs = values.iter().zip(1..);
        let rows: Vec<Row> = runs.map(|(value, run)| row("a", run, *value)).collect();
        medians(&rows)[0].stats[0].value
    }

    #[test]
    fn the_median_stands_for_what_is_measured_and_the_worst_for_what_is_counted() {
        let ms = |value| Value::Measured(value, 1);
        assert_eq!(median_of(&[ms(9.0), ms(1.0), ms(2.0)]), ms(2.0));
        assert_eq!(median_of(&[ms(1.0), ms(2.0)]), ms(1.5));
        let over = Value::MoreThanMs(5.0);
        let unequal = [Value::MoreThanMs(4.0), ms(9.0)];
        assert_eq!(median_of(&unequal), Value::MoreThanMs(4.0));
        assert_eq!(median_of(&[over, ms(1.0), ms(2.0)]), ms(2.0));
        assert_eq!(median_of(&[over, ms(1.0), over]), over);
        assert_eq!(
            median_of(&[Value::Count(0), Value::Count(3), Value::Count(0)]),
            Value::Count(3)
        );
        assert_eq!(
            median_of(&[Value::Held(true), Value::Held(false)]),
            Value::Held(false)
        );
        assert_eq!(median_of(&[Value::Unknown, ms(1.0)]), Value::Unknown);
    }

    #[test]
    fn labels_keep_their_order() {
        let value = Value::Count(1);
        let rows = [row("b", 1, value), row("a", 1, value), row("b", 2, value)];
        let labels: Vec<String> = medians(&rows).into_iter().map(|row| row.label).collect();
        assert_eq!(labels, ["b", "a"]);
    }

    #[test]
    fn people_read_thousands() {
        assert_eq!(Value::Measured(1_234_567.8, 1).text(), "1,234,567.8");
        assert_eq!(Value::Count(1_000).text(), "1,000");
        assert_eq!(Value::MoreThanMs(2000.0).text(), "> 2.0 s");
    }
}
