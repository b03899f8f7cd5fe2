//! A text that is JSON, or was meant to be, inside of other JSON.

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// Serialized as the JSON it is: digit for digit, members in their order, on one line. A text that is no JSON is a string.
///
/// A value that went through `f64` would have other digits: `1.10` becomes `1.1`, and an amount of twenty digits another amount.
#[derive(Debug, Clone, Copy)]
pub struct JsonText<'a>(pub &'a str);

impl Serialize for JsonText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Line breaks in JSON stand between its parts, never within a text.
        let line = self.0.replace(['\n', '\r'], " ");
        match RawValue::from_string(line) {
            Ok(json) => json.serialize(serializer),
            Err(_) => serializer.serialize_str(self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_its_digits_and_the_order_of_its_members() {
        let text = r#"{"b":1.10,"a":[12345678901234567890.10,1e400]}"#;
        assert_eq!(serde_json::to_string(&JsonText(text)).unwrap(), text);
    }

    #[test]
    fn json_of_several_lines_becomes_one_and_other_text_a_string() {
        let one = |text| serde_json::to_string(&JsonText(text)).unwrap();
        assert_eq!(one("{\n\"a\":\r\n\"b\\n\"}"), "{ \"a\":  \"b\\n\"}");
        assert_eq!(one("no\njson"), "\"no\\njson\"");
    }
}
