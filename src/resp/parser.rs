//! Parses commands: arrays of bulk strings, and inline lines, as Redis does.
//!
//! The parser keeps its place in an incomplete command, so bytes that arrive one at a time are read once. It copies nothing:
//! an argument is a range of the caller's buffer. Errors have the texts of Redis; the connection is closed after one.

#[cfg(test)]
mod streams;

use memchr::memchr;

/// Limits of one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most arguments, the name of the command included.
    pub args: usize,
    /// Longest argument, in bytes.
    pub arg_bytes: usize,
    /// Longest command, in bytes.
    pub command_bytes: usize,
    /// Names the error if a limit is exceeded.
    pub before_auth: bool,
}

impl Limits {
    /// Limits of a client that has not authenticated: those of Redis.
    pub const BEFORE_AUTH: Self = Self {
        args: 10,
        arg_bytes: 16 * 1024,
        command_bytes: 64 * 1024,
        before_auth: true,
    };

    /// Limits of a client that may schedule. A payload has 64 KiB at most.
    pub const DEFAULT: Self = Self {
        args: 16 * 1024,
        arg_bytes: 1024 * 1024,
        command_bytes: 4 * 1024 * 1024,
        before_auth: false,
    };
}

/// Longest line: an inline command, or a header.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// A violation of the protocol. The text is that of Redis, without `ERR Protocol error: `.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtocolError(pub String);

fn violation<T>(text: &str) -> Result<T, ProtocolError> {
    Err(ProtocolError(text.to_owned()))
}

/// The state of an incomplete command.
#[derive(Debug, Default)]
pub struct Parser {
    /// Arguments read so far, as ranges of the buffer.
    args: Vec<(usize, usize)>,
    /// An inline command, with its quotes resolved.
    inline: Vec<u8>,
    is_inline: bool,
    /// Arguments that are still to come; `None` before the header.
    missing: Option<usize>,
    /// Length of the argument whose header has been read.
    arg_len: Option<usize>,
    /// Everything before this place has been read.
    at: usize,
    /// Everything before this place has no end of a line.
    scanned: usize,
}

/// The arguments of a command, the name first.
#[derive(Debug, Clone, Copy)]
pub struct Args<'a> {
    bytes: &'a [u8],
    ranges: &'a [(usize, usize)],
}

impl<'a> Args<'a> {
    /// Number of arguments, the name of the command included.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// True if there is not even a name.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns an argument; the name of the command is the first.
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        let (from, to) = *self.ranges.get(index)?;
        Some(&self.bytes[from..to])
    }

    /// Returns the name of the command.
    pub fn name(&self) -> &'a [u8] {
        self.get(0).unwrap_or_default()
    }

    /// Returns the arguments from this index on.
    pub fn from(&self, index: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        let ranges = self.ranges.get(index..).unwrap_or_default();
        ranges.iter().map(move |(from, to)| &bytes[*from..*to])
    }
}

impl Parser {
    /// Reads the next command from the beginning of `buffer`. Returns its length in bytes, or `None` if it is incomplete:
    /// then the next call gets the same bytes and more. An empty command, which has no arguments, is to be skipped.
    ///
    /// # Errors
    /// [`ProtocolError`]: nothing behind it can be read.
    pub fn next(&mut self, buffer: &[u8], limits: &Limits) -> Result<Option<usize>, ProtocolError> {
        if self.missing.is_none() && !self.begin(buffer, limits)? {
            return Ok(None);
        }
        while self.missing.is_some_and(|missing| missing > 0) {
            if !self.read_arg(buffer, limits)? {
                return Ok(None);
            }
        }
        let length = self.at;
        (self.at, self.scanned, self.missing) = (0, 0, None);
        Ok(Some(length))
    }

    /// Returns the command that [`next`](Self::next) has completed. `buffer` begins where it began then.
    pub fn args<'a>(&'a self, buffer: &'a [u8]) -> Args<'a> {
        Args {
            bytes: if self.is_inline { &self.inline } else { buffer },
            ranges: &self.args,
        }
    }

    /// True if a part of a command has been read.
    pub fn is_within(&self, buffer: &[u8]) -> bool {
        !buffer.is_empty() || self.missing.is_some()
    }

    /// Frees what a long command has left.
    pub fn shrink(&mut self) {
        const KEPT: usize = 64;
        if self.missing.is_none() && self.args.capacity() > KEPT {
            self.args = Vec::new();
        }
        if self.inline.capacity() > 16 * KEPT {
            self.inline = Vec::new();
        }
    }

    /// Reads the header of an array, or a whole inline command. Returns false if it is incomplete.
    fn begin(&mut self, buffer: &[u8], limits: &Limits) -> Result<bool, ProtocolError> {
        match buffer.get(self.at) {
            None => Ok(false),
            Some(b'*') => {
                let Some(line) = self.header(buffer, "too big mbulk count string")? else {
                    return Ok(false);
                };
                let Some(count) = number(line).filter(|count| *count <= i64::from(i32::MAX)) else {
                    return violation("invalid multibulk length");
                };
                if count <= 0 {
                    self.args.clear();
                    self.missing = Some(0);
                    return Ok(true);
                }
                let count = usize::try_from(count).expect("it is positive and small");
                if count > limits.args {
                    return violation(match limits.before_auth {
                        true => "unauthenticated multibulk length",
                        false => "invalid multibulk length",
                    });
                }
                self.is_inline = false;
                self.args.clear();
                self.missing = Some(count);
                Ok(true)
            }
            Some(_) => {
                if !self.inline(buffer, limits)? {
                    return Ok(false);
                }
                self.missing = Some(0);
                Ok(true)
            }
        }
    }

    /// Reads an argument. Returns false if it is incomplete.
    fn read_arg(&mut self, buffer: &[u8], limits: &Limits) -> Result<bool, ProtocolError> {
        let length = match self.arg_len {
            Some(length) => length,
            None => {
                if let Some(found) = buffer.get(self.at).filter(|found| **found != b'$') {
                    let found = char::from(*found).escape_default();
                    return Err(ProtocolError(format!("expected '$', got '{found}'")));
                }
                let Some(line) = self.header(buffer, "too big bulk count string")? else {
                    return Ok(false);
                };
                let Some(length) = number(line).and_then(|length| usize::try_from(length).ok())
                else {
                    return violation("invalid bulk length");
                };
                if length > limits.arg_bytes {
                    return violation(match limits.before_auth {
                        true => "unauthenticated bulk length",
                        false => "invalid bulk length",
                    });
                }
                if self.at + length > limits.command_bytes {
                    return violation("too big command");
                }
                self.arg_len = Some(length);
                length
            }
        };
        let end = self.at + length;
        // As in Redis, the two bytes behind an argument are not looked at.
        if buffer.len() < end + 2 {
            return Ok(false);
        }
        self.args.push((self.at, end));
        self.at = end + 2;
        self.scanned = self.at;
        self.arg_len = None;
        self.missing = self.missing.map(|missing| missing - 1);
        Ok(true)
    }

    /// Reads a line that begins with its type. Returns the rest of it, or `None` if it is incomplete.
    fn header<'a>(
        &mut self,
        buffer: &'a [u8],
        too_big: &str,
    ) -> Result<Option<&'a [u8]>, ProtocolError> {
        let from = self.scanned.max(self.at);
        let end = memchr(b'\r', &buffer[from..]).map(|found| from + found);
        match end {
            Some(end) if end + 1 < buffer.len() => {
                let line = &buffer[self.at + 1..end];
                self.at = end + 2;
                self.scanned = self.at;
                Ok(Some(line))
            }
            _ if buffer.len() - self.at > LINE_BYTES_MAX => violation(too_big),
            _ => {
                self.scanned = end.unwrap_or(buffer.len());
                Ok(None)
            }
        }
    }

    /// Reads an inline command. Returns false if it is incomplete.
    fn inline(&mut self, buffer: &[u8], limits: &Limits) -> Result<bool, ProtocolError> {
        let from = self.scanned.max(self.at);
        let end = memchr(b'\n', &buffer[from..]).map(|found| from + found);
        // However it arrives: with the rest of the line, too.
        if end.unwrap_or(buffer.len()) - self.at > LINE_BYTES_MAX {
            return violation("too big inline request");
        }
        let Some(end) = end else {
            self.scanned = buffer.len();
            return Ok(false);
        };
        let line = &buffer[self.at..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.args.clear();
        self.inline.clear();
        self.is_inline = true;
        if !split(line, &mut self.inline, &mut self.args) {
            return violation("unbalanced quotes in request");
        }
        if self.args.len() > limits.args {
            return violation("too big inline request");
        }
        self.at = end + 1;
        self.scanned = self.at;
        Ok(true)
    }
}

/// Splits a line into words. Within double quotes there are escapes, within single quotes only `\'`. Returns false if a
/// quote is not closed, or not followed by a space.
fn split(line: &[u8], words: &mut Vec<u8>, ranges: &mut Vec<(usize, usize)>) -> bool {
    let mut rest = line.iter().copied().peekable();
    loop {
        while rest
            .next_if(|byte| byte.is_ascii_whitespace() || *byte == 0x0b)
            .is_some()
        {}
        if rest.peek().is_none() {
            return true;
        }
        let begin = words.len();
        while let Some(byte) = rest.next_if(|byte| !byte.is_ascii_whitespace() && *byte != 0x0b) {
            match byte {
                0 => break,
                b'"' | b'\'' => {
                    if !quoted(byte, &mut rest, words) {
                        return false;
                    }
                    if rest.peek().is_some_and(|next| !next.is_ascii_whitespace()) {
                        return false;
                    }
                    break;
                }
                byte => words.push(byte),
            }
        }
        ranges.push((begin, words.len()));
    }
}

/// Reads the inside of quotes and the closing one. Returns false if there is none.
fn quoted(
    quote: u8,
    rest: &mut std::iter::Peekable<impl Iterator<Item = u8> + Clone>,
    words: &mut Vec<u8>,
) -> bool {
    while let Some(byte) = rest.next() {
        match byte {
            b'\\' if quote == b'\'' && rest.peek() == Some(&b'\'') => {
                words.extend(rest.next());
            }
            b'\\' if quote == b'"' => match rest.next() {
                None => return false,
                Some(b'x') => {
                    let mut ahead = rest.clone();
                    let mut digit = || ahead.next().and_then(|byte| char::from(byte).to_digit(16));
                    match (digit(), digit()) {
                        (Some(high), Some(low)) => {
                            words.push((high * 16 + low) as u8);
                            rest.next();
                            rest.next();
                        }
                        _ => words.push(b'x'),
                    }
                }
                Some(b'n') => words.push(b'\n'),
                Some(b'r') => words.push(b'\r'),
                Some(b't') => words.push(b'\t'),
                Some(b'b') => words.push(0x08),
                Some(b'a') => words.push(0x07),
                Some(byte) => words.push(byte),
            },
            byte if byte == quote => return true,
            byte => words.push(byte),
        }
    }
    false
}

/// Parses a decimal number as Redis does: no spaces, no `+`, no leading zero.
pub fn number(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let exact = match digits {
        [b'0'] => text == b"0",
        [b'1'..=b'9', more @ ..] => more.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    let text = std::str::from_utf8(text).ok().filter(|_| exact)?;
    text.parse().ok()
}
