//! One connection: reads commands, carries them out in order, writes the replies.
//!
//! Commands about tasks that arrive together are one batch. Replies are written when everything that has been read is
//! answered, so a client that sends a pipeline gets its replies after one commit.

use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::dispatch::{Accepted, Dispatch};
use super::parser::{Args, Limits, Parser, ProtocolError};
use super::reply::Reply;

/// Capacity for reading while nothing is known about the client: 10,000 idle connections take 5 MB.
const IDLE_BYTES: usize = 512;

/// Capacity for reading once a client has filled what it had.
const BUSY_BYTES: usize = 64 * 1024;

/// Replies are written at the latest when they have this length.
const REPLIES_BYTES: usize = 256 * 1024;

/// Time for a command that has begun to be complete.
const COMMAND_TIME: Duration = Duration::from_secs(60);

/// Time for a client to authenticate.
const LOGIN_TIME: Duration = Duration::from_secs(10);

/// Time for a client to take replies.
const WRITE_TIME: Duration = Duration::from_secs(30);

/// How long the rest of a command that breaks the protocol is read and dropped.
const LINGER_TIME: Duration = Duration::from_secs(2);

/// Serves a connection until the client closes it, breaks the protocol, is too slow, or `stop` is cancelled.
///
/// # Errors
/// If the connection is lost.
pub async fn serve<S>(stream: S, dispatch: Dispatch, stop: CancellationToken) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut connection = Connection {
        stream,
        stop,
        input: Input::default(),
        begun: None,
        dispatch,
    };
    loop {
        let next = connection.work().await?;
        connection.write().await?;
        match next {
            Next::Read if connection.read().await? => {}
            Next::Linger => return connection.linger().await,
            Next::Read | Next::Close => return Ok(()),
        }
    }
}

/// What follows when no complete command is left.
enum Next {
    /// More is read.
    Read,
    /// The connection is closed.
    Close,
    /// The same, after a violation of the protocol.
    Linger,
}

struct Connection<S> {
    stream: S,
    stop: CancellationToken,
    input: Input,
    /// When the command that is not complete yet began to arrive.
    begun: Option<Instant>,
    dispatch: Dispatch,
}

/// What was read and not yet carried out.
#[derive(Default)]
struct Input {
    buffer: BytesMut,
    parser: Parser,
}

impl Input {
    fn args(&self) -> Args<'_> {
        self.parser.args(&self.buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Carries out every complete command.
    async fn work(&mut self) -> io::Result<Next> {
        loop {
            let limits = match self.dispatch.session.user {
                Some(_) => Limits::DEFAULT,
                None => Limits::BEFORE_AUTH,
            };
            let length = match self.input.parser.next(&self.input.buffer, &limits) {
                Ok(Some(length)) => length,
                Ok(None) => break,
                Err(ProtocolError(text)) => {
                    self.dispatch.finish_batch().await;
                    let error = Reply::err(format_args!("Protocol error: {text}"));
                    self.dispatch.answer(&error);
                    return Ok(Next::Linger);
                }
            };
            self.begun = None;
            if self.input.args().is_empty() {
                self.input.buffer.advance(length);
                continue;
            }
            let mut accepted = self.dispatch.accept(self.input.args());
            if let Accepted::AfterBatch(index) = accepted {
                self.dispatch.finish_batch().await;
                accepted = self.dispatch.carry_out(index, self.input.args()).await;
            }
            self.input.buffer.advance(length);
            match accepted {
                Accepted::Done | Accepted::AfterBatch(_) => {}
                Accepted::Later(reply) => {
                    let reply = reply.await;
                    self.dispatch.answer(&reply);
                }
                Accepted::Blocking(reply) => match self.wait(reply).await? {
                    Some(reply) => self.dispatch.answer(&reply),
                    None => return Ok(Next::Close),
                },
                Accepted::End => {
                    self.dispatch.finish_batch().await;
                    return Ok(Next::Close);
                }
            }
            if self.dispatch.is_batch_full() {
                self.dispatch.finish_batch().await;
            }
            if self.dispatch.replies().len() >= REPLIES_BYTES {
                self.write().await?;
            }
        }
        self.dispatch.finish_batch().await;
        Ok(Next::Read)
    }

    /// Waits for a reply that may take long. `None` if the client disconnects meanwhile: then the command is dropped.
    async fn wait(&mut self, mut reply: BoxFuture<'static, Reply>) -> io::Result<Option<Reply>> {
        self.write().await?;
        loop {
            let has_room = self.input.buffer.len() < BUSY_BYTES;
            self.input.buffer.reserve(IDLE_BYTES);
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(Some(Reply::err("the daemon is stopping"))),
                // Before the reply: what it hands over would be lost on a client that is gone.
                read = self.stream.read_buf(&mut self.input.buffer), if has_room => {
                    if read? == 0 {
                        return Ok(None);
                    }
                }
                reply = &mut reply => return Ok(Some(reply)),
            }
        }
    }

    /// Reads more. Returns false if the connection ends.
    async fn read(&mut self) -> io::Result<bool> {
        let Input { buffer, parser } = &mut self.input;
        let is_within = parser.is_within(buffer);
        let was_full = buffer.len() == buffer.capacity();
        if !is_within && buffer.capacity() > IDLE_BYTES {
            *buffer = BytesMut::with_capacity(IDLE_BYTES);
            parser.shrink();
        } else if was_full || is_within {
            buffer.reserve(if is_within { BUSY_BYTES } else { IDLE_BYTES });
        }
        let session = &self.dispatch.session;
        let limit = match (&session.user, is_within) {
            (None, _) => Some(session.since + LOGIN_TIME),
            (Some(_), true) => Some(*self.begun.get_or_insert_with(Instant::now) + COMMAND_TIME),
            (Some(_), false) => None,
        };
        let too_late = async {
            match limit {
                Some(limit) => sleep_until(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            read = self.stream.read_buf(buffer) => Ok(read? > 0),
            () = self.stop.cancelled() => Ok(false),
            () = too_late => Ok(false),
        }
    }

    /// Closes the connection for replies, and drops what the client still sends. A connection that is closed with unread
    /// input is reset, and the client would lose the error.
    async fn linger(&mut self) -> io::Result<()> {
        self.stream.shutdown().await?;
        let buffer = &mut self.input.buffer;
        let drain = async {
            loop {
                buffer.clear();
                buffer.reserve(BUSY_BYTES);
                if self.stream.read_buf(buffer).await? == 0 {
                    return Ok(());
                }
            }
        };
        tokio::select! {
            drained = timeout(LINGER_TIME, drain) => drained.unwrap_or(Ok(())),
            () = self.stop.cancelled() => Ok(()),
        }
    }

    /// Writes the replies.
    async fn write(&mut self) -> io::Result<()> {
        let replies = self.dispatch.replies();
        if replies.is_empty() {
            return Ok(());
        }
        let written = async {
            self.stream.write_all(replies).await?;
            self.stream.flush().await
        };
        match timeout(WRITE_TIME, written).await {
            Ok(written) => written?,
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        }
        self.dispatch.clear_replies();
        self.dispatch.session.handed.received();
        Ok(())
    }
}
