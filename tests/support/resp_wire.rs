//! The Redis protocol byte by byte, for tests that compare replies exactly.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};

use crate::support::wait::DEADLINE;

/// A reply as it is on the wire. Not everything that means the same is equal: `+OK` is not `$2 OK`.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    /// `$-1` of RESP2.
    NoBulk,
    /// `*-1` of RESP2.
    NoArray,
    /// `_` of RESP3.
    Null,
    Array(Vec<Reply>),
    Set(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    /// The other scalars of RESP3, with their type: `#t`, `,1.5`, `=txt:..`, `(1`.
    Other(char, String),
}

/// A connection without any handshake. An answer that does not come fails the test after [`DEADLINE`].
pub struct Wire {
    stream: BufReader<TcpStream>,
}

impl Wire {
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        Self {
            stream: BufReader::new(stream),
        }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// The answer to one command.
    pub fn ask<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Reply {
        self.send(&command(words));
        self.reply()
    }

    /// The next reply.
    pub fn reply(&mut self) -> Reply {
        let line = self.line();
        let (kind, rest) = line.split_at_checked(1).expect("a reply has a type");
        let kind = char::from(kind.as_bytes()[0]);
        match kind {
            '+' => Reply::Simple(rest.to_owned()),
            '-' => Reply::Error(rest.to_owned()),
            ':' => Reply::Integer(rest.parse().unwrap()),
            '$' if rest == "-1" => Reply::NoBulk,
            '*' if rest == "-1" => Reply::NoArray,
            '_' => Reply::Null,
            '$' => Reply::Bulk(self.bulk(rest)),
            '*' => Reply::Array(self.replies(rest)),
            '~' => Reply::Set(self.replies(rest)),
            '%' => Reply::Map(
                (0..length(rest))
                    .map(|_| (self.reply(), self.reply()))
                    .collect(),
            ),
            '=' => Reply::Other(kind, String::from_utf8(self.bulk(rest)).unwrap()),
            '#' | ',' | '(' => Reply::Other(kind, rest.to_owned()),
            _ => panic!("no reply begins like this: {line:?}"),
        }
    }

    /// Waits for the end of the connection. False if something else arrives.
    pub fn is_closed(&mut self) -> bool {
        // A reset is an end, too.
        self.stream.fill_buf().is_ok_and(<[u8]>::is_empty)
    }

    fn replies(&mut self, count: &str) -> Vec<Reply> {
        (0..length(count)).map(|_| self.reply()).collect()
    }

    fn bulk(&mut self, count: &str) -> Vec<u8> {
        let mut bytes = vec![0; length(count) + 2];
        self.stream.read_exact(&mut bytes).unwrap();
        assert!(bytes.ends_with(b"\r\n"), "{bytes:?}");
        bytes.truncate(bytes.len() - 2);
        bytes
    }

    fn line(&mut self) -> String {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line).unwrap();
        let mut line = String::from_utf8(line).unwrap();
        assert!(line.ends_with("\r\n"), "the connection ended: {line:?}");
        line.truncate(line.len() - 2);
        line
    }
}

/// A command as clients send it: an array of bulk strings.
pub fn command<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        bytes.extend(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

fn length(text: &str) -> usize {
    text.parse().unwrap()
}
