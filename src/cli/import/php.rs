//! PHP's `serialize`, as JSON. Objects, references and enumerations are refused: only PHP knows what they mean.

use std::collections::HashSet;

use serde_json::Number;

/// Deepest nesting that is read. Serde's limit for JSON is the same.
const DEPTH_MAX: usize = 127;

/// A value without objects.
#[derive(Debug, Clone, PartialEq)]
pub enum PhpValue {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    /// In PHP's order.
    Array(Vec<(PhpKey, PhpValue)>),
}

/// A key of an array.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PhpKey {
    Int(i64),
    Text(String),
}

/// Reads a whole serialized value.
///
/// # Errors
/// Says what was expected, and at which byte.
pub fn unserialize(bytes: &[u8]) -> Result<PhpValue, String> {
    let mut reader = Reader { bytes, at: 0 };
    let value = reader
        .value(0)
        .map_err(|problem| format!("{problem}, at byte {}", reader.at))?;
    match reader.at == bytes.len() {
        true => Ok(value),
        false => Err(format!("expected the end, at byte {}", reader.at)),
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Result<PhpValue, String> {
        if depth > DEPTH_MAX {
            return Err(format!("is nested deeper than {DEPTH_MAX} levels"));
        }
        let kind = *self.bytes.get(self.at).ok_or("ends too early")?;
        match kind {
            b'N' => {
                self.expect("N;")?;
                Ok(PhpValue::Null)
            }
            b'b' => {
                self.expect("b:")?;
                match self.until(b';')? {
                    "0" => Ok(PhpValue::Bool(false)),
                    "1" => Ok(PhpValue::Bool(true)),
                    _ => Err("expected `b:0;` or `b:1;`".to_owned()),
                }
            }
            b'i' => self.int().map(PhpValue::Int),
            b'd' => self.float().map(PhpValue::Float),
            b's' => self.text().map(PhpValue::Text),
            b'a' => self.array(depth),
            b'O' | b'C' => Err(
                "contains an object, expected null, bool, int, float, string or array".to_owned(),
            ),
            b'E' => Err(
                "contains an enumeration, expected null, bool, int, float, string or array"
                    .to_owned(),
            ),
            b'R' | b'r' => Err("contains a reference, expected each value in full".to_owned()),
            _ => Err("expected a serialized value".to_owned()),
        }
    }

    fn int(&mut self) -> Result<i64, String> {
        self.expect("i:")?;
        let digits = self.until(b';')?;
        digits
            .parse()
            .map_err(|_| "expected an integer of 64 bits".to_owned())
    }

    fn float(&mut self) -> Result<f64, String> {
        self.expect("d:")?;
        let number: Result<f64, _> = self.until(b';')?.parse();
        match number {
            Ok(number) if number.is_finite() => Ok(number),
            Ok(_) => Err("contains a number that JSON does not have".to_owned()),
            Err(_) => Err("expected a number".to_owned()),
        }
    }

    fn text(&mut self) -> Result<String, String> {
        self.expect("s:")?;
        let length = self.length(b':')?;
        self.expect("\"")?;
        let end = self
            .at
            .checked_add(length)
            .ok_or("ends too early: it may be cut off")?;
        let bytes = self
            .bytes
            .get(self.at..end)
            .ok_or("ends too early: it may be cut off")?;
        let text = std::str::from_utf8(bytes)
            .map_err(|_| "contains a string that is not UTF-8".to_owned())?
            .to_owned();
        self.at = end;
        self.expect("\";")?;
        Ok(text)
    }

    fn array(&mut self, depth: usize) -> Result<PhpValue, String> {
        self.expect("a:")?;
        let length = self.length(b':')?;
        self.expect("{")?;
        let mut entries = Vec::new();
        let mut keys = HashSet::new();
        for _ in 0..length {
            let key = match self.bytes.get(self.at) {
                Some(b'i') => PhpKey::Int(self.int()?),
                Some(b's') => PhpKey::Text(self.text()?),
                Some(_) => return Err("expected a key, an int or a string".to_owned()),
                None => return Err("ends too early: it may be cut off".to_owned()),
            };
            if !keys.insert(key.clone()) {
                return Err("has a key twice".to_owned());
            }
            entries.push((key, self.value(depth + 1)?));
        }
        self.expect("}")?;
        Ok(PhpValue::Array(entries))
    }

    fn length(&mut self, end: u8) -> Result<usize, String> {
        let digits = self.until(end)?;
        digits.parse().map_err(|_| "expected a length".to_owned())
    }

    fn expect(&mut self, text: &str) -> Result<(), String> {
        match self.bytes[self.at..].starts_with(text.as_bytes()) {
            true => {
                self.at += text.len();
                Ok(())
            }
            false if text.as_bytes().starts_with(&self.bytes[self.at..]) => {
                Err("ends too early: it may be cut off".to_owned())
            }
            false => Err(format!("expected `{text}`")),
        }
    }

    /// The text up to a byte, which is skipped.
    fn until(&mut self, end: u8) -> Result<&'a str, String> {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|byte| *byte == end);
        let length = length.ok_or("ends too early: it may be cut off")?;
        self.at += length + 1;
        std::str::from_utf8(&rest[..length]).map_err(|_| "expected a number".to_owned())
    }
}

impl PhpValue {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Array(entries) => entries
                .iter()
                .find(|(name, _)| matches!(name, PhpKey::Text(name) if name == key))
                .map(|(_, value)| value),
            _ => None,
        }
    }

    /// The value as JSON, as `json_encode` writes it: an array with the keys 0, 1, .. is an array, others are objects.
    pub fn json(&self) -> String {
        let mut json = String::new();
        self.write(&mut json);
        json
    }

    fn write(&self, json: &mut String) {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        match self {
            Self::Null => json.push_str("null"),
            Self::Bool(flag) => json.push_str(if *flag { "true" } else { "false" }),
            Self::Int(number) => json.push_str(&number.to_string()),
            Self::Float(number) => {
                let number = Number::from_f64(*number).expect("only finite numbers are read");
                json.push_str(&number.to_string());
            }
            Self::Text(text) => json.push_str(&quoted(text)),
            Self::Array(entries) => {
                let is_list = entries
                    .iter()
                    .zip(0..)
                    .all(|((key, _), index)| *key == PhpKey::Int(index));
                json.push(if is_list { '[' } else { '{' });
                for (index, (key, value)) in entries.iter().enumerate() {
                    if index > 0 {
                        json.push(',');
                    }
                    if !is_list {
                        json.push_str(&match key {
                            PhpKey::Int(number) => quoted(&number.to_string()),
                            PhpKey::Text(text) => quoted(text),
                        });
                        json.push(':');
                    }
                    value.write(json);
                }
                json.push(if is_list { ']' } else { '}' });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn json(serialized: &str) -> Result<String, String> {
        unserialize(serialized.as_bytes()).map(|value| value.json())
    }

    #[test]
    fn values_become_what_json_encode_makes_of_them() {
        let pairs = [
            ("N;", "null"),
            ("b:1;", "true"),
            ("i:-7;", "-7"),
            ("i:9223372036854775807;", "9223372036854775807"),
            ("d:0.1;", "0.1"),
            ("d:1.0E+25;", "1e+25"),
            ("s:6:\"拍賣\";", "\"拍賣\""),
            ("s:3:\"\";\"\";", "\"\\\";\\\"\""),
            ("a:0:{}", "[]"),
            ("a:2:{i:0;i:7;i:1;b:0;}", "[7,false]"),
            (
                "a:2:{s:3:\"uid\";i:1;s:1:\"a\";N;}",
                "{\"uid\":1,\"a\":null}",
            ),
            ("a:1:{i:3;s:1:\"x\";}", "{\"3\":\"x\"}"),
        ];
        for (serialized, expected) in pairs {
            assert_eq!(json(serialized).as_deref(), Ok(expected), "{serialized}");
        }
    }

    #[test]
    fn what_is_no_plain_data_is_refused_with_its_reason() {
        let deep = format!("{}N;{}", "a:1:{i:0;".repeat(200), "}".repeat(200));
        let refused = [
            ("", "ends too early"),
            ("O:8:\"stdClass\":0:{}", "contains an object"),
            ("a:1:{i:0;O:1:\"A\":0:{}}", "contains an object"),
            ("a:2:{i:0;N;i:1;R:2;}", "contains a reference"),
            ("E:3:\"A:B\";", "contains an enumeration"),
            ("d:NAN;", "JSON does not have"),
            ("s:5:\"abc\";", "cut off"),
            ("s:99999999999999999999:\"a\";", "expected a length"),
            ("s:18446744073709551615:\"a\";", "ends too early"),
            ("a:4000000000:{i:0;N;", "cut off"),
            ("a:2:{i:0;N;i:0;N;}", "a key twice"),
            ("i:1;i:2;", "expected the end"),
            ("b:2;", "expected `b:0;`"),
            (&deep, "nested deeper"),
        ];
        for (serialized, why) in refused {
            let error = json(serialized).unwrap_err();
            assert!(error.contains(why), "{serialized}: {error}");
        }
        let error = unserialize(b"s:1:\"\xff\";").unwrap_err();
        assert!(error.contains("not UTF-8"), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "[abidsNRO:;{}\"0-9]{0,60}") {
            let _ = unserialize(&bytes);
            if let Ok(value) = unserialize(text.as_bytes()) {
                prop_assert!(serde_json::from_str::<serde_json::Value>(&value.json()).is_ok());
            }
        }
    }
}
