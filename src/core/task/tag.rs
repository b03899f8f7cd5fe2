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
