//! Text that is embedded in other JSON without a change.

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// Serialized as the JSON that it contains, on one line, with digits and order of members kept. Text that is not JSON
/// becomes a string.
///
/// Numbers do not pass through `f64`, which would turn `1.10` into `1.1` and round an amount of twenty digits.
#[derive(Debug, Clone, Copy)]
pub struct JsonText<'a>(pub &'a str);

impl Serialize for JsonText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // JSON has line breaks between tokens only, never within a string.
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
    fn multi_line_json_becomes_one_line_and_other_text_a_string() {
        let one = |text| serde_json::to_string(&JsonText(text)).unwrap();
        assert_eq!(one("{\n\"a\":\r\n\"b\\n\"}"), "{ \"a\":  \"b\\n\"}");
        assert_eq!(one("no\njson"), "\"no\\njson\"");
    }
}
