//! The key of a job of another system, as a template.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::task::{KeyError, TaskKey};

/// A part of a job that a key may contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobPart {
    /// Its id in the other system.
    Id,
    /// Its queue, or the sorted set that it is in.
    Queue,
    /// Its name.
    Name,
    /// Its class.
    Class,
    /// Its method.
    Method,
}

/// A key with placeholders: `Mail@{name}@{id}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyTemplate {
    text: String,
    /// The parts between the `@`: class, method, arguments.
    parts: Vec<Vec<Piece>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Of(JobPart),
}

impl JobPart {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            // The member of a sorted set is the id of its job.
            "id" | "member" => Self::Id,
            "queue" => Self::Queue,
            "name" => Self::Name,
            "class" => Self::Class,
            "method" => Self::Method,
            _ => return None,
        })
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Queue => "queue",
            Self::Name => "name",
            Self::Class => "class",
            Self::Method => "method",
        }
    }
}

impl KeyTemplate {
    /// Fills in the parts of a job.
    ///
    /// A value in an argument is [written](written) so that it is one argument. A value in the class or the method is taken
    /// as it is.
    ///
    /// # Errors
    /// [`KeyError`] if the result is not a task key.
    pub fn key<'a>(&self, value: impl Fn(JobPart) -> &'a [u8]) -> Result<TaskKey, KeyError> {
        let mut text = String::new();
        for (index, part) in self.parts.iter().enumerate() {
            if index > 0 {
                text.push('@');
            }
            for piece in part {
                match piece {
                    Piece::Text(piece) => text.push_str(piece),
                    Piece::Of(part) if index < 2 => {
                        let value = String::from_utf8_lossy(value(*part));
                        if value.contains('@') {
                            // It would become other parts.
                            let (class, method) = [(&*value, "m"), ("C", &*value)][index];
                            return TaskKey::build(class, method, [""; 0]);
                        }
                        text.push_str(&value);
                    }
                    Piece::Of(part) => text.push_str(&written(value(*part))),
                }
            }
        }
        TaskKey::parse(&text)
    }

    /// The parts that it uses.
    pub(super) fn uses(&self) -> impl Iterator<Item = JobPart> {
        self.parts.iter().flatten().filter_map(|piece| match piece {
            Piece::Of(part) => Some(*part),
            Piece::Text(_) => None,
        })
    }
}

impl fmt::Display for KeyTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for KeyTemplate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Result<Vec<_>, _> = text.split('@').map(pieces).collect();
        let template = Self {
            text: text.to_owned(),
            parts: parts?,
        };
        let args = template.parts.iter().skip(2).flatten();
        if !args
            .into_iter()
            .any(|piece| *piece == Piece::Of(JobPart::Id))
        {
            return Err(
                "expected `Class@method@` and arguments with `{id}`: without it, two jobs would become one task"
                    .to_owned(),
            );
        }
        template.key(|_| b"x").map_err(|error| error.to_string())?;
        Ok(template)
    }
}

/// Splits the part of a template between two `@` at its placeholders.
fn pieces(part: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = part;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after
            .split_once('}')
            .ok_or("has a `{` without its `}`".to_owned())?;
        let Some(part) = JobPart::parse(name) else {
            return Err(format!(
                "`{{{name}}}` is none of `{{id}}`, `{{member}}`, `{{queue}}`, `{{name}}`, `{{class}}`, `{{method}}`"
            ));
        };
        if !before.is_empty() {
            pieces.push(Piece::Text(before.to_owned()));
        }
        pieces.push(Piece::Of(part));
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    Ok(pieces)
}

/// Writes a value as one argument of a key. Different values give different texts.
///
/// `%`, `@`, control characters, a space at the end, a `~` at the start and bytes that are not UTF-8 become `%` and two
/// digits, as in a URL.
pub fn written(value: &[u8]) -> Cow<'_, str> {
    let is_plain = |text: &str| {
        !text.contains(['%', '@'])
            && !text.chars().any(char::is_control)
            && !text.starts_with('~')
            && !text.ends_with(' ')
    };
    if let Ok(text) = std::str::from_utf8(value)
        && is_plain(text)
    {
        return Cow::Borrowed(text);
    }
    let mut written = String::new();
    for chunk in value.utf8_chunks() {
        for char in chunk.valid().chars() {
            let is_first = written.is_empty();
            if matches!(char, '%' | '@') || char.is_control() || (is_first && char == '~') {
                percent(&mut written, char.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                written.push(char);
            }
        }
        percent(&mut written, chunk.invalid());
    }
    if written.ends_with(' ') {
        written.pop();
        written.push_str("%20");
    }
    Cow::Owned(written)
}

fn percent(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        text.push_str(&format!("%{byte:02X}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_become_one_argument_each_and_stay_different() {
        let ids: [(&[u8], &str); 8] = [
            (b"42", "42"),
            (b"a b", "a b"),
            (b"a ", "a%20"),
            (b"a@b", "a%40b"),
            (b"a%40b", "a%2540b"),
            (b"a\nb", "a%0Ab"),
            (b"~01h455vb4pex5", "%7E01h455vb4pex5"),
            (b"\xffx", "%FFx"),
        ];
        let template: KeyTemplate = "Mail@send@{id}".parse().unwrap();
        for (id, arg) in ids {
            let key = template.key(|_| id).unwrap();
            assert_eq!(key.as_str(), format!("Mail@send@{arg}"));
            assert_eq!(key.args().collect::<Vec<_>>(), [arg]);
        }
    }

    #[test]
    fn a_name_that_is_no_class_is_refused() {
        let template: KeyTemplate = "{name}@run@{id}".parse().unwrap();
        let with = |name: &'static str| {
            template.key(move |part| match part {
                JobPart::Name => name.as_bytes(),
                _ => b"7",
            })
        };
        for name in ["Foo::Bar", "App\\Jobs\\Foo", "email:welcome"] {
            assert_eq!(with(name).unwrap().class(), name);
        }
        for name in ["", "2fa", "send mail", "a@b", "\\App\\Foo"] {
            assert!(with(name).is_err(), "{name}");
        }
    }

    #[test]
    fn keys_are_checked_when_they_are_read() {
        let refused = [
            ("Mail@send", "without it"),
            ("{id}@send", "without it"),
            ("Mail@send@{who}", "`{who}` is none of"),
            ("Mail@send@{id", "without its `}`"),
            ("9@send@{id}", "class `9`"),
        ];
        for (text, why) in refused {
            let error = text.parse::<KeyTemplate>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
