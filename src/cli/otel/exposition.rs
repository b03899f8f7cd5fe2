//! The text format of Prometheus, as this program writes it: the figures of `/metrics` are read from there, so that
//! both ways of export show the same.

/// A metric with its samples.
#[derive(Debug, PartialEq)]
pub struct Family<'a> {
    pub name: &'a str,
    pub help: &'a str,
    pub kind: Kind,
    pub samples: Vec<Sample<'a>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Debug, PartialEq)]
pub struct Sample<'a> {
    /// What follows the name of the metric, such as `_total`.
    pub suffix: &'a str,
    pub labels: Vec<(&'a str, String)>,
    pub value: &'a str,
}

/// Reads metrics. Leaves out what has another type.
pub fn families(text: &str) -> Vec<Family<'_>> {
    let (mut families, mut help) = (Vec::<Family>::new(), ("", ""));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').unwrap_or((rest, ""));
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, ""));
            let kind = match kind {
                "counter" => Kind::Counter,
                "gauge" => Kind::Gauge,
                "histogram" => Kind::Histogram,
                _ => continue,
            };
            families.push(Family {
                name,
                help: if help.0 == name { help.1 } else { "" },
                kind,
                samples: Vec::new(),
            });
        } else if let Some(family) = families.last_mut()
            && let Some(rest) = line.strip_prefix(family.name)
        {
            family.samples.extend(sample(rest));
        }
    }
    families
}

/// Reads `suffix{label="value",..} number`.
fn sample(text: &str) -> Option<Sample<'_>> {
    let end = text.find(['{', ' '])?;
    let (suffix, mut rest) = text.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (name, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.push((name.trim_start_matches(','), value));
            rest = after;
        }
        rest = &rest[1..];
    }
    let value = rest.split_whitespace().next()?;
    Some(Sample {
        suffix,
        labels,
        value,
    })
}

/// Reads up to the closing quote. Returns the value without escapes, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut chars) = (String::new(), text.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                escaped => escaped,
            }),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_with_their_escapes() {
        let text = "# HELP a_b Some help, with words.\n# TYPE a_b counter\na_b_total{x=\"a\\\"b\\\\c\\nd}e,\",y=\"2\"} 12\n# EOF\n";
        let [family] = &families(text)[..] else {
            panic!("one family");
        };
        assert_eq!(
            (family.name, family.help),
            ("a_b", "Some help, with words.")
        );
        let [sample] = &family.samples[..] else {
            panic!("one sample");
        };
        assert_eq!((sample.suffix, sample.value), ("_total", "12"));
        let labels = [("x", "a\"b\\c\nd}e,".to_owned()), ("y", "2".to_owned())];
        assert_eq!(sample.labels, labels);
    }

    #[test]
    fn a_sample_may_have_no_labels_and_a_broken_line_is_left_out() {
        let text = "# TYPE a gauge\na 1.5\na{x=\"open 2\n# TYPE b summary\nb 3\n";
        let families = families(text);
        assert_eq!(families.len(), 1);
        assert_eq!(families[0].samples.len(), 1);
        assert_eq!(families[0].samples[0].value, "1.5");
    }
}
