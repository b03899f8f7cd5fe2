//! Parses commands: arrays of bulk strings, and inline lines, as Redis does.
//!
//! The parser keeps its place in an incomplete command, so bytes that arrive one at a time are read once. It copies nothing:
//! an argument is a range of the caller's buffer. Errors have the texts of Redis; the connection is closed after one.

#[cfg(test)]
mod streams;
mod words;

use bytes::BytesMut;
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
    /// Most bytes of longer arguments of a command, which are read and dropped: the client gets an answer that says why.
    pub dropped_bytes: usize,
    /// Names the error if a limit is exceeded.
    pub before_auth: bool,
}

impl Limits {
    /// Limits of a client that has not authenticated: those of Redis.
    pub const BEFORE_AUTH: Self = Self {
        args: 10,
        arg_bytes: 16 * 1024,
        command_bytes: 64 * 1024,
        dropped_bytes: 0,
        before_auth: true,
    };

    /// Limits of a client that may schedule. A payload has 64 KiB at most.
    pub const DEFAULT: Self = Self {
        args: 16 * 1024,
        arg_bytes: 1024 * 1024,
        command_bytes: 4 * 1024 * 1024,
        dropped_bytes: 16 * 1024 * 1024,
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
    /// Bytes of a long argument that are still to be dropped.
    to_drop: usize,
    /// Bytes of the long arguments of the command, and of the first of them.
    dropped: Option<(usize, usize)>,
}

/// The arguments of a command, the name first.
#[derive(Debug, Clone, Copy)]
pub struct Args<'a> {
    bytes: &'a [u8],
    ranges: &'a [(usize, usize)],
}

impl<'a> Args<'a> {
    /// Arguments as ranges of some bytes.
    pub fn new(bytes: &'a [u8], ranges: &'a [(usize, usize)]) -> Self {
        Self { bytes, ranges }
    }

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

    /// Bytes of all arguments.
    pub fn bytes(&self) -> usize {
        self.ranges.iter().map(|(from, to)| to - from).sum()
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

/// Arguments of a command that is kept.
#[derive(Debug, Clone)]
pub struct Owned {
    bytes: Vec<u8>,
    ranges: Vec<(usize, usize)>,
}

impl Owned {
    /// Copies arguments.
    pub fn of(args: Args<'_>) -> Self {
        let mut owned = Self {
            bytes: Vec::with_capacity(args.bytes()),
            ranges: Vec::with_capacity(args.len()),
        };
        for arg in args.from(0) {
            let from = owned.bytes.len();
            owned.bytes.extend_from_slice(arg);
            owned.ranges.push((from, owned.bytes.len()));
        }
        owned
    }

    /// The arguments.
    pub fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.ranges)
    }
}

impl Parser {
    /// Reads the next command from the beginning of `buffer`. Returns its length in bytes, or `None` if it is incomplete:
    /// then the next call gets the same bytes and more. An empty command, which has no arguments, is to be skipped.
    ///
    /// # Errors
    /// [`ProtocolError`]: nothing behind it can be read.
    pub fn next(&mut self, buffer: &[u8], limits: &Limits) -> Result<Option<usize>, ProtocolError> {
        if self.to_drop > 0 {
            return Ok(None);
        }
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

    /// Drops bytes of an argument that is too long. Returns true if there was one and all of it is dropped now: then
    /// [`next`](Self::next) goes on. Call it when that finds no complete command.
    pub fn drop_long(&mut self, buffer: &mut BytesMut) -> bool {
        if self.to_drop == 0 {
            return false;
        }
        let there = (buffer.len() - self.at).min(self.to_drop);
        let left = buffer.len() - there;
        // What follows the argument is moved once, when the end of the argument has arrived.
        buffer.copy_within(self.at + there.., self.at);
        buffer.truncate(left);
        self.to_drop -= there;
        self.to_drop == 0
    }

    /// Length of the first argument of the completed command that was too long and was dropped.
    pub fn long_arg(&self) -> Option<usize> {
        self.dropped.map(|(_, first)| first)
    }

    /// Takes a prefix off the arguments of the completed command at these places. Those without it stay as they are.
    pub fn strip(&mut self, buffer: &[u8], prefix: &[u8], places: impl Iterator<Item = usize>) {
        for place in places {
            let Some(range) = self.args.get(place).copied() else {
                return;
            };
            let bytes = if self.is_inline { &self.inline } else { buffer };
            if bytes[range.0..range.1].starts_with(prefix) {
                self.args[place].0 += prefix.len();
            }
        }
    }

    /// Bytes that it holds itself.
    pub fn held(&self) -> usize {
        self.args.capacity() * size_of::<(usize, usize)>() + self.inline.capacity()
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
        self.dropped = None;
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
                let (before, first) = self.dropped.unwrap_or((0, length));
                if length > limits.arg_bytes && before + length <= limits.dropped_bytes {
                    self.dropped = Some((before + length, first));
                    self.to_drop = length + 2;
                    self.args.push((self.at, self.at));
                    self.missing = self.missing.map(|missing| missing - 1);
                    return Ok(false);
                }
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
        if !words::split(line, &mut self.inline, &mut self.args) {
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
