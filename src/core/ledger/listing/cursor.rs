//! Places in lists, as text and back.

use std::fmt;
use std::str::FromStr;

use crate::format::from_hex;
use crate::task::UnixMs;

/// A place in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListCursor {
    /// After the row with this id.
    Row(u64),
    /// After this key.
    Key(String),
    /// After this row of this key, in the archive: a key may have several rows there.
    Archived(String, u64),
    /// After this entry of the index by status and due time.
    Due {
        /// The column `status`.
        status: u8,
        /// True if `sts` is 1.
        deleted: bool,
        /// When it may start.
        due_at: UnixMs,
        /// The id of the row.
        row: u64,
    },
}

/// The text form: `42`, `key.Order@close@7`, `archived.42.Order@close@7`, `due.0.0.1763750000000.42`.
impl fmt::Display for ListCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row(row) => write!(f, "{row}"),
            Self::Key(key) => {
                f.write_str("key.")?;
                escape(f, key)
            }
            Self::Archived(key, row) => {
                write!(f, "archived.{row}.")?;
                escape(f, key)
            }
            Self::Due {
                status,
                deleted,
                due_at,
                row,
            } => write!(f, "due.{status}.{}.{}.{row}", u8::from(*deleted), due_at.0),
        }
    }
}

impl FromStr for ListCursor {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            if let Some(key) = text.strip_prefix("key.") {
                return Some(Self::Key(unescaped(key)?));
            }
            if let Some(place) = text.strip_prefix("archived.") {
                let (row, key) = place.split_once('.')?;
                return Some(Self::Archived(unescaped(key)?, row.parse().ok()?));
            }
            let Some(place) = text.strip_prefix("due.") else {
                return text.parse().ok().map(Self::Row);
            };
            let mut numbers = place.split('.');
            let place = Self::Due {
                status: numbers.next()?.parse().ok()?,
                deleted: numbers.next()?.parse::<u8>().ok()? == 1,
                due_at: UnixMs(numbers.next()?.parse().ok()?),
                row: numbers.next()?.parse().ok()?,
            };
            numbers.next().is_none().then_some(place)
        };
        read().ok_or("expected the value that the previous page printed after `--cursor`")
    }
}

fn escape(f: &mut fmt::Formatter<'_>, key: &str) -> fmt::Result {
    key.bytes().try_for_each(|byte| match byte {
        b'@' | b'_' | b'-' | b'.' | b':' => write!(f, "{}", char::from(byte)),
        _ if byte.is_ascii_alphanumeric() => write!(f, "{}", char::from(byte)),
        _ => write!(f, "%{byte:02x}"),
    })
}

fn unescaped(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'%' => {
                let [byte] = from_hex(&[bytes.next()?, bytes.next()?])?;
                byte
            }
            byte => byte,
        });
    }
    String::from_utf8(plain).ok()
}
