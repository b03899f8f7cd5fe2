//! The README stays short, and says what `lapsed` is in words that need no glossary.

use std::path::Path;

use regex::Regex;

/// As `wc -w` counts them.
const WORDS_MAX: usize = 1_500;

fn readme() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap()
}

#[test]
fn the_readme_has_at_most_1500_words() {
    let words = readme().split_whitespace().count();
    assert!(words <= WORDS_MAX, "{words} words: move details to docs/");
}

#[test]
fn the_readme_uses_no_word_of_the_glossary_before_it_says_how_it_works() {
    let readme = readme();
    let (before, _) = readme.split_once("\n## How it works\n").unwrap();
    let words = Regex::new(r"(?i)\b(ledger|sweep|nudge|sentinel|arm|adopt)(s|ed|ing)?\b").unwrap();
    let prose: Vec<&str> = before.split("```").step_by(2).collect();
    let used: Vec<&str> = prose
        .iter()
        .flat_map(|text| words.find_iter(text))
        .map(|found| found.as_str())
        .collect();
    assert_eq!(used, [] as [&str; 0]);
}
