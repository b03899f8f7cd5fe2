//! Tags, by which tasks are found.

use super::TAG_CHARS_MAX;

/// Returns why a text cannot be a tag; `None` if it can.
pub(super) fn tag_problem(tag: &str) -> Option<String> {
    let chars = tag.chars().count();
    if chars > TAG_CHARS_MAX {
        return Some(format!(
            "tag has {chars} characters, expected at most {TAG_CHARS_MAX}"
        ));
    }
    if tag.is_empty() || tag.chars().any(char::is_control) {
        return Some("tag is empty or contains a control character".to_owned());
    }
    // Databases treat it as equal to the tag without the space.
    tag.ends_with(' ').then(|| "tag ends in a space".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_a_short_line_that_does_not_end_in_a_space() {
        let long = |chars| "\u{4efb}".repeat(chars);
        for good in ["e", "eu 1", " eu", &long(TAG_CHARS_MAX)] {
            assert_eq!(tag_problem(good), None, "{good:?}");
        }
        for (bad, problem) in [
            ("", "tag is empty or contains a control character"),
            ("e\nu", "tag is empty or contains a control character"),
            ("eu ", "tag ends in a space"),
        ] {
            assert_eq!(tag_problem(bad).as_deref(), Some(problem), "{bad:?}");
        }
        let problem = tag_problem(&long(TAG_CHARS_MAX + 1)).unwrap();
        let chars = TAG_CHARS_MAX + 1;
        let expected = format!("tag has {chars} characters, expected at most {TAG_CHARS_MAX}");
        assert_eq!(problem, expected);
    }
}
