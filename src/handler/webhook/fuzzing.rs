//! What fuzz targets call: the readers of what a target of a route answers.

use std::time::Duration;

use http::{HeaderMap, StatusCode};

use super::reply::Reply;
use crate::config::UrlTemplate;
use crate::handler::output::Output;
use crate::task::{Failure, Outcome, RetryAdvice, UnixMs};

/// The clock of this machine.
const NOW: UnixMs = UnixMs(1_793_750_400_000);

/// Bytes of the beginning of an output that are kept.
const HEAD_BYTES: usize = 1024;

/// Reads the answer of a webhook.
///
/// # Errors
/// The error of the run, and the delay that the server asks for.
pub fn read_reply(
    status: u16,
    headers: HeaderMap,
    body: &[u8],
) -> Result<(), (String, Option<Duration>)> {
    let reply = Reply {
        status: StatusCode::from_u16(status).expect("a status has three digits"),
        headers,
        body: body.to_vec(),
    };
    let url = UrlTemplate::parse("https://shop.example/hooks/token").expect("it is a URL");
    reply.verdict(&url, NOW).map_err(|error| {
        let message = error.to_string();
        match error.into_outcome() {
            Outcome::Failed(Failure {
                advice: RetryAdvice::After(delay),
                ..
            }) => (message, Some(delay)),
            _ => (message, None),
        }
    })
}

/// What was read of a program's output.
#[derive(Debug, PartialEq, Eq)]
pub struct ReadOutput {
    /// What the last line asks for, or why it is not understood.
    pub advice: Option<Result<String, String>>,
    /// Bytes that were kept.
    pub kept: usize,
}

/// Reads the output of a program, which arrives in pieces.
pub fn read_output(pieces: &[&[u8]]) -> ReadOutput {
    let mut output = Output::default();
    for piece in pieces {
        output.push(piece, HEAD_BYTES);
    }
    let advice = output.advice();
    ReadOutput {
        advice: advice.map(|advice| advice.map(|advice| format!("{advice:?}"))),
        kept: output.head().len() + output.tail().len(),
    }
}
