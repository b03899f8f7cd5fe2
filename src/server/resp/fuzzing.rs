//! What fuzz targets call: the readers of commands and of patterns.

use bytes::{Buf as _, BytesMut};

use super::glob::Glob;
use super::parser::{Limits, Parser, ProtocolError};
use super::reply::Reply;

/// What was read of a stream.
#[derive(Debug, Default)]
pub struct Read {
    /// The arguments of each command that is not empty. Those that are too long are empty.
    pub commands: Vec<Vec<Vec<u8>>>,
    /// Why nothing behind the last command can be read.
    pub refused: Option<String>,
    /// Most bytes that waited for the rest of their command.
    pub buffered: usize,
    /// Most bytes that the parser held beside them.
    pub held: usize,
}

/// Reads a stream that arrives in pieces, as a connection does.
pub fn read_commands(pieces: &[&[u8]], before_auth: bool) -> Read {
    let limits = match before_auth {
        true => Limits::BEFORE_AUTH,
        false => Limits::DEFAULT,
    };
    let (mut buffer, mut parser) = (BytesMut::new(), Parser::default());
    let mut read = Read::default();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        read.buffered = read.buffered.max(buffer.len());
        loop {
            let next = parser.next(&buffer, &limits);
            read.held = read.held.max(parser.held());
            match next {
                Ok(Some(length)) => {
                    let args = parser.args(&buffer);
                    if !args.is_empty() {
                        let args = args.from(0).map(<[u8]>::to_vec);
                        read.commands.push(args.collect());
                    }
                    buffer.advance(length);
                }
                Ok(None) if parser.drop_long(&mut buffer) => {}
                Ok(None) => break,
                Err(ProtocolError(text)) => {
                    read.refused = Some(text);
                    return read;
                }
            }
        }
    }
    read
}

/// Compares a text with a pattern, as `SCAN` does.
///
/// # Errors
/// The pattern is too long.
pub fn glob_matches(pattern: &[u8], text: &[u8]) -> Result<bool, String> {
    match Glob::new(pattern) {
        Ok(glob) => Ok(glob.matches(text)),
        Err(Reply::Error(_, problem)) => Err(problem),
        Err(reply) => Err(format!("{reply:?}")),
    }
}
