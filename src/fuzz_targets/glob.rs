//! Patterns of keys and of classes: a pattern, then on the next line what it is compared with.

use lapsed_core::task;
use lapsed_server::resp::fuzzing::glob_matches;

/// What the reference stands for; a longer input takes it too long.
const BYTES_MAX: usize = 600;

pub fn run(input: &[u8]) {
    let end = input.iter().position(|byte| *byte == b'\n');
    let (pattern, text) = match end {
        Some(end) => (&input[..end], &input[end + 1..]),
        None => (input, &b"Order@close@42"[..]),
    };
    let fits = match glob_matches(pattern, text) {
        Ok(fits) => fits,
        Err(error) => {
            assert!(pattern.len() > 1024 && error.len() < 200, "{error}");
            return;
        }
    };
    if pattern.len() + text.len() > BYTES_MAX {
        return;
    }
    assert_eq!(
        fits,
        matches(&parts(pattern), text),
        "as Redis documents it"
    );
    if let (Ok(glob), Ok(text)) = (std::str::from_utf8(pattern), std::str::from_utf8(text)) {
        check_classes(glob, text);
    }
}

/// A glob of classes knows `*` alone; where a pattern has nothing else, both are the same.
fn check_classes(glob: &str, text: &str) {
    let plain = glob.replace(['\\', '[', '?'], "x");
    let fits = glob_matches(plain.as_bytes(), text.as_bytes());
    assert_eq!(Ok(task::matches(&plain, text)), fits, "{plain:?}");
}

enum Part {
    Any,
    Of(Box<dyn Fn(u8) -> bool>),
}

/// Reads a pattern from left to right, one byte at a time.
fn parts(mut pattern: &[u8]) -> Vec<Part> {
    let mut parts = Vec::new();
    while let [first, rest @ ..] = pattern {
        pattern = rest;
        parts.push(match (*first, rest) {
            (b'*', _) => Part::Any,
            (b'?', _) => Part::Of(Box::new(|_| true)),
            (b'\\', [escaped, rest @ ..]) => {
                pattern = rest;
                byte(*escaped)
            }
            (b'[', _) => set(&mut pattern),
            (plain, _) => byte(plain),
        });
    }
    parts
}

fn byte(own: u8) -> Part {
    Part::Of(Box::new(move |found| found == own))
}

/// Reads the inside of brackets, which end with the pattern at the latest.
fn set(pattern: &mut &[u8]) -> Part {
    let is_negated = pattern.first() == Some(&b'^');
    *pattern = &pattern[usize::from(is_negated)..];
    let mut ranges = Vec::new();
    loop {
        let (from, rest) = match *pattern {
            [] => break,
            [b']', rest @ ..] => {
                *pattern = rest;
                break;
            }
            [b'\\', escaped, rest @ ..] => (*escaped, rest),
            [from, rest @ ..] => (*from, rest),
        };
        let (to, rest) = match rest {
            [b'-', to, rest @ ..] => (*to, rest),
            _ => (from, rest),
        };
        ranges.push(from.min(to)..=from.max(to));
        *pattern = rest;
    }
    Part::Of(Box::new(move |found| {
        ranges.iter().any(|range| range.contains(&found)) != is_negated
    }))
}

/// All beginnings of the text that the parts so far match, part by part.
fn matches(parts: &[Part], text: &[u8]) -> bool {
    let mut ends = vec![false; text.len() + 1];
    ends[0] = true;
    for part in parts {
        match part {
            Part::Any => {
                let first = ends.iter().position(|is_end| *is_end);
                let first = first.unwrap_or(ends.len());
                ends[first..].fill(true);
            }
            Part::Of(fits) => {
                for at in (0..text.len()).rev() {
                    ends[at + 1] = ends[at] && fits(text[at]);
                }
                ends[0] = false;
            }
        }
    }
    ends[text.len()]
}
