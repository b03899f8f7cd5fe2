//! Errors as one line of text.

use std::error::Error;

/// Returns the text of an error and its sources, separated by colons. A source that ends the text already is not repeated.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Caused {
        text: &'static str,
        source: Option<Box<Caused>>,
    }

    fn caused(text: &'static str, source: Caused) -> Caused {
        let source = Some(Box::new(source));
        Caused { text, source }
    }

    #[test]
    fn causes_follow_and_are_not_repeated() {
        let refused = Caused {
            text: "refused",
            source: None,
        };
        let connect = caused("connect: refused", refused);
        let error = caused("send a request", connect);
        assert_eq!(with_causes(&error), "send a request: connect: refused");
    }
}
