//! Names of task types: class and method.

/// A name of a task type: a `TaskType`, or class and method as text.
pub trait TaskName {
    /// Returns class and method.
    fn class_and_method(&self) -> (&str, &str);
}

impl TaskName for (&str, &str) {
    fn class_and_method(&self) -> (&str, &str) {
        *self
    }
}

/// A name of a task type with arguments `A`. Text matches any.
pub trait Takes<A>: TaskName {}

impl<A> Takes<A> for (&str, &str) {}

/// True if the text is a name, as in [`TaskKey`](super::TaskKey).
pub const fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.is_empty() || !(bytes[0].is_ascii_alphabetic() || bytes[0] == b'_') {
        return false;
    }
    let mut index = 1;
    while index < bytes.len() {
        let fits = bytes[index].is_ascii_alphanumeric()
            || matches!(bytes[index], b'_' | b'.' | b':' | b'\\' | b'-');
        if !fits {
            return false;
        }
        index += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::TaskKey;

    #[test]
    fn a_text_is_a_name_if_it_fits_a_key() {
        for name in [
            "Order",
            "_x",
            "a.b:c\\d-e",
            "",
            "1a",
            "a@b",
            "a b",
            "-a",
            "\u{e9}",
        ] {
            let fits_key = TaskKey::build(name, "m", [""; 0]).is_ok();
            assert_eq!(is_name(name), fits_key, "{name:?}");
        }
    }
}
