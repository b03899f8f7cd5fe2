//! JSON to be read by people: indented, with its numbers and texts as they are.

/// A longer text stays as it is: its lines would be too many.
const CHARS_MAX: usize = 100_000;

/// Returns a text of JSON with a line for each member. Numbers keep all their digits.
pub fn indented(json: &str) -> String {
    if json.len() > CHARS_MAX {
        return json.to_owned();
    }
    let (mut read, mut depth, mut is_text, mut is_escaped) = (String::new(), 0_usize, false, false);
    let mut chars = json.chars().peekable();
    while let Some(char) = chars.next() {
        if is_text {
            read.push(char);
            is_text = is_escaped || char != '"';
            is_escaped = !is_escaped && char == '\\';
            continue;
        }
        match char {
            '"' => {
                read.push(char);
                is_text = true;
            }
            '{' | '[' => {
                read.push(char);
                while chars.next_if(char::is_ascii_whitespace).is_some() {}
                if let Some(end) = chars.next_if(|next| matches!(next, '}' | ']')) {
                    read.push(end);
                } else {
                    depth += 1;
                    line(&mut read, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut read, depth);
                read.push(char);
            }
            ',' => {
                read.push(char);
                line(&mut read, depth);
            }
            ':' => read.push_str(": "),
            char if char.is_ascii_whitespace() => {}
            char => read.push(char),
        }
    }
    read
}

fn line(read: &mut String, depth: usize) {
    read.push('\n');
    read.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_indented_and_its_values_stay_as_they_are() {
        for (json, expected) in [
            ("null", "null"),
            ("{}", "{}"),
            ("[ ]", "[]"),
            (
                r#"{"sku":12345678901234567890,"a, b": [1.50,"x\"{}:,"]}"#,
                "{\n  \"sku\": 12345678901234567890,\n  \"a, b\": [\n    1.50,\n    \"x\\\"{}:,\"\n  ]\n}",
            ),
        ] {
            assert_eq!(indented(json), expected, "{json}");
        }
    }
}
