//! Replies, and their encodings in RESP2 and RESP3.

use std::fmt::Display;
use std::io::Write as _;

use super::error_code::ErrorCode;
use lapsed_core::access::Denied;

/// The version of the protocol that a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// The default of a new connection.
    #[default]
    Resp2,
    /// After `HELLO 3`.
    Resp3,
}

impl Protocol {
    /// The number in `HELLO`.
    pub fn version(self) -> i64 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// A reply to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A status, such as `OK`.
    Status(&'static str),
    /// An error: a code, then a message. Line breaks are replaced.
    Error(ErrorCode, String),
    /// An integer.
    Int(i64),
    /// A string.
    Text(String),
    /// A string that is part of the program.
    Static(&'static str),
    /// A string of bytes.
    Bytes(Vec<u8>),
    /// No value.
    Null,
    /// No array: the result of an `EXEC` whose watched keys have changed.
    NullArray,
    /// An array.
    Array(Vec<Reply>),
    /// A map; in RESP2 an array of keys and values in turns.
    Map(Vec<(Reply, Reply)>),
    /// A set; in RESP2 an array.
    Set(Vec<Reply>),
    /// A text for humans; in RESP2 a string.
    Verbatim(String),
    /// A message that no command asked for; in RESP2 an array.
    Push(Vec<Reply>),
    /// Several replies to one command, such as those of `SUBSCRIBE` to two channels; or none.
    Several(Vec<Reply>),
}

impl Reply {
    /// The refusal of a command whose scope the user lacks, in the words of Redis.
    pub fn no_permission(command: &str) -> Self {
        Self::error(
            ErrorCode::NoPerm,
            format_args!("this user has no permissions to run the '{command}' command"),
        )
    }

    /// The refusal of what the user may not do.
    pub fn denied(denied: &Denied) -> Self {
        Self::error(ErrorCode::NoPerm, denied)
    }

    /// The reply `+OK`.
    pub const OK: Self = Self::Status("OK");

    /// An error.
    pub fn error(code: ErrorCode, message: impl Display) -> Self {
        Self::Error(code, message.to_string())
    }

    /// An error with the code `ERR`.
    pub fn err(message: impl Display) -> Self {
        Self::error(ErrorCode::Err, message)
    }

    /// An integer that is 1 or 0.
    pub fn flag(is_set: bool) -> Self {
        Self::Int(i64::from(is_set))
    }

    /// True if it is an error.
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(..))
    }

    /// About the bytes of the encoding, and no fewer.
    pub fn bytes(&self) -> usize {
        const HEAD: usize = 32;
        let of_all = |items: &[Self]| items.iter().map(Self::bytes).sum();
        HEAD + match self {
            Self::Status(text) | Self::Static(text) => text.len(),
            Self::Error(code, text) => code.as_str().len() + 1 + text.len(),
            Self::Text(text) | Self::Verbatim(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::Int(_) | Self::Null | Self::NullArray => 0,
            Self::Array(items) | Self::Set(items) | Self::Push(items) | Self::Several(items) => {
                of_all(items)
            }
            Self::Map(pairs) => {
                let pairs = pairs.iter().map(|(key, value)| key.bytes() + value.bytes());
                pairs.sum()
            }
        }
    }

    /// Appends the encoding.
    pub fn write(&self, out: &mut Vec<u8>, protocol: Protocol) {
        let is_3 = protocol == Protocol::Resp3;
        match self {
            Self::Status(text) => line(out, b'+', text),
            Self::Error(code, text) => {
                let text = format!("{code} {text}");
                line(out, b'-', &text.replace(['\r', '\n'], " "));
            }
            Self::Int(number) => header(out, b':', *number),
            Self::Text(text) => bulk(out, text.as_bytes()),
            Self::Static(text) => bulk(out, text.as_bytes()),
            Self::Bytes(bytes) => bulk(out, bytes),
            Self::Null if is_3 => out.extend_from_slice(b"_\r\n"),
            Self::Null => out.extend_from_slice(b"$-1\r\n"),
            Self::NullArray if is_3 => out.extend_from_slice(b"_\r\n"),
            Self::NullArray => out.extend_from_slice(b"*-1\r\n"),
            Self::Array(items) => list(out, b'*', items, protocol),
            Self::Set(items) => list(out, if is_3 { b'~' } else { b'*' }, items, protocol),
            Self::Push(items) => list(out, if is_3 { b'>' } else { b'*' }, items, protocol),
            Self::Map(pairs) => {
                let (kind, count) = if is_3 { (b'%', 1) } else { (b'*', 2) };
                header(out, kind, length(pairs.len() * count));
                for (key, value) in pairs {
                    key.write(out, protocol);
                    value.write(out, protocol);
                }
            }
            Self::Verbatim(text) if is_3 => {
                header(out, b'=', length(text.len() + 4));
                out.extend_from_slice(b"txt:");
                out.extend_from_slice(text.as_bytes());
                out.extend_from_slice(b"\r\n");
            }
            Self::Verbatim(text) => bulk(out, text.as_bytes()),
            Self::Several(replies) => replies.iter().for_each(|reply| reply.write(out, protocol)),
        }
    }
}

fn list(out: &mut Vec<u8>, kind: u8, items: &[Reply], protocol: Protocol) {
    header(out, kind, length(items.len()));
    items.iter().for_each(|item| item.write(out, protocol));
}

fn length(count: usize) -> i64 {
    i64::try_from(count).expect("memory holds fewer")
}

fn header(out: &mut Vec<u8>, kind: u8, number: i64) {
    out.push(kind);
    write!(out, "{number}\r\n").expect("writing to memory does not fail");
}

fn line(out: &mut Vec<u8>, kind: u8, text: &str) {
    out.push(kind);
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    header(out, b'$', length(bytes.len()));
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(reply: &Reply, protocol: Protocol) -> String {
        let mut out = Vec::new();
        reply.write(&mut out, protocol);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_kind_has_its_form_in_both_protocols() {
        let pair = (Reply::Static("a"), Reply::Int(-1));
        for (reply, resp2, resp3) in [
            (Reply::OK, "+OK\r\n", "+OK\r\n"),
            (Reply::Null, "$-1\r\n", "_\r\n"),
            (Reply::NullArray, "*-1\r\n", "_\r\n"),
            (Reply::Bytes(vec![b'x']), "$1\r\nx\r\n", "$1\r\nx\r\n"),
            (
                Reply::Map(vec![pair]),
                "*2\r\n$1\r\na\r\n:-1\r\n",
                "%1\r\n$1\r\na\r\n:-1\r\n",
            ),
            (
                Reply::Set(vec![Reply::Int(1)]),
                "*1\r\n:1\r\n",
                "~1\r\n:1\r\n",
            ),
            (
                Reply::Verbatim("é".into()),
                "$2\r\né\r\n",
                "=6\r\ntxt:é\r\n",
            ),
            (Reply::Several(vec![]), "", ""),
        ] {
            assert_eq!(written(&reply, Protocol::Resp2), resp2);
            assert_eq!(written(&reply, Protocol::Resp3), resp3);
        }
    }

    #[test]
    fn an_error_is_one_line() {
        let error = Reply::err("a\r\n+OK");
        assert_eq!(written(&error, Protocol::Resp2), "-ERR a  +OK\r\n");
    }
}
