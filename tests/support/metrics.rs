//! Reads values from the text that a daemon serves as `/metrics`.

/// The value of a counter or gauge, named with its labels; 0 if it was never touched.
pub fn value(text: &str, name: &str) -> f64 {
    let values = text.lines().filter_map(|line| line.rsplit_once(' '));
    values
        .filter(|(found, _)| *found == name)
        .filter_map(|(_, value)| value.parse::<f64>().ok())
        .sum()
}
