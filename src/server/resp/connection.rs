//! One connection: reads commands, carries them out in order, writes the replies.
//!
//! Commands about tasks that arrive together are one batch. Replies are written when everything that has been read is
//! answered, so a client that sends a pipeline gets its replies after one commit.

use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::dispatch::{Accepted, Dispatch};
use super::parser::{Args, Limits, Parser, ProtocolError};
use super::reply::Reply;
use crate::net::room::{FREE_BYTES, NoRoom, Share};

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

/// Capacity for reading what is dropped.
const LINGER_BYTES: usize = 4 * 1024;

/// Wrong passwords after which a connection is closed.
const WRONG_PASSWORDS_MAX: u8 = 3;

/// Serves a connection until the client closes it, breaks the protocol, is too slow, takes memory that others need, or `stop`
/// is cancelled.
///
/// # Errors
/// If the connection is lost.
pub async fn serve<S>(
    stream: S,
    dispatch: Dispatch,
    share: Share,
    stop: CancellationToken,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut connection = Connection {
        stream,
        stop,
        share,
        input: Input::default(),
        command_started: None,
        turn: None,
        dispatch,
    };
    loop {
        match connection.step().await {
            Ok(Next::Read) => {}
            Ok(Next::Linger) => return connection.linger().await,
            Ok(Next::Close) => return Ok(()),
            Err(error) if error.get_ref().is_some_and(|it| it.is::<NoRoom>()) => {
                connection.refuse_room();
                connection.write().await?;
                return connection.linger().await;
            }
            Err(error) => return Err(error),
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
    /// What it holds of the memory of all clients.
    share: Share,
    input: Input,
    /// When the command that is not complete yet began to arrive.
    command_started: Option<Instant>,
    /// While it carries out much input. Given back while it waits for the client.
    turn: Option<OwnedSemaphorePermit>,
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
    /// Carries out what has been read, writes the replies, and reads more.
    async fn step(&mut self) -> io::Result<Next> {
        let next = self.work().await?;
        self.turn = None;
        self.write().await?;
        Ok(match next {
            Next::Read if !self.read().await? => Next::Close,
            next => next,
        })
    }

    /// Carries out every complete command.
    async fn work(&mut self) -> io::Result<Next> {
        loop {
            if self.turn.is_none() && self.input.buffer.len() > FREE_BYTES {
                self.turn = tokio::select! {
                    biased;
                    () = self.share.closed() => return Err(io::Error::other(NoRoom)),
                    turn = self.dispatch.large_input() => turn,
                };
            }
            let session = &self.dispatch.session;
            let limits = match session.user {
                Some(_) => Limits::DEFAULT,
                None if session.since.elapsed() >= LOGIN_TIME => return Ok(Next::Close),
                None => Limits::BEFORE_AUTH,
            };
            let length = match self.input.parser.next(&self.input.buffer, &limits) {
                Ok(Some(length)) => length,
                Ok(None) if self.input.parser.drop_long(&mut self.input.buffer) => continue,
                Ok(None) => break,
                Err(ProtocolError(text)) => {
                    self.finish_batch(None).await?;
                    let error = Reply::err(format_args!("Protocol error: {text}"));
                    self.dispatch.answer(&error);
                    return Ok(Next::Linger);
                }
            };
            self.command_started = None;
            if self.input.args().is_empty() {
                self.input.buffer.advance(length);
                continue;
            }
            if let Some(bytes) = self.input.parser.long_arg() {
                self.dispatch.refuse_long(self.input.args(), bytes);
                self.input.buffer.advance(length);
                continue;
            }
            self.strip_prefix();
            let mut accepted = self.dispatch.accept(self.input.args());
            if let Accepted::AfterBatch(index) = accepted {
                self.finish_batch(Some(index)).await?;
                accepted = match self.carry_out(index).await {
                    Some(accepted) => accepted,
                    None => return Ok(Next::Close),
                };
            }
            self.input.buffer.advance(length);
            self.share.progressed();
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
                    self.finish_batch(None).await?;
                    return Ok(Next::Close);
                }
            }
            if self.dispatch.session.wrong_passwords >= WRONG_PASSWORDS_MAX {
                return Ok(Next::Linger);
            }
            if self.dispatch.is_batch_full() {
                self.finish_batch(None).await?;
            }
            self.hold(0).await?;
            if self.dispatch.replies().len() >= REPLIES_BYTES {
                self.write().await?;
            }
        }
        self.finish_batch(None).await?;
        Ok(Next::Read)
    }

    /// Takes the prefix of keys off, which clients put before each of them.
    fn strip_prefix(&mut self) {
        let prefix = self.dispatch.key_prefix();
        if !prefix.is_empty()
            && let Some(places) = self.dispatch.key_places(self.input.args())
        {
            let Input { buffer, parser } = &mut self.input;
            parser.strip(buffer, prefix.as_bytes(), places);
        }
    }

    /// Carries out a command that is not batched. `None`: the client has not authenticated in time.
    async fn carry_out(&mut self, index: usize) -> Option<Accepted> {
        let args = self.input.parser.args(&self.input.buffer);
        let session = &self.dispatch.session;
        if session.user.is_some() || !self.dispatch.checks_password(index) {
            return Some(self.dispatch.carry_out(index, args).await);
        }
        let limit = session.since + LOGIN_TIME;
        let carried_out = self.dispatch.carry_out(index, args);
        timeout_at(limit, carried_out).await.ok()
    }

    /// Carries out what waits, within the memory that its replies take. `next` is the command behind it.
    async fn finish_batch(&mut self, next: Option<usize>) -> io::Result<()> {
        let to_come = self.dispatch.to_come(next);
        if to_come > 0 {
            self.hold(to_come).await?;
        }
        self.dispatch.finish_batch().await;
        Ok(())
    }

    /// Counts the memory that the connection takes, and this much more.
    async fn hold(&mut self, more: usize) -> io::Result<()> {
        let input = self.input.buffer.capacity() + self.input.parser.held();
        let held = input + self.dispatch.held() + more;
        self.share.hold(held).await.map_err(io::Error::other)
    }

    /// Waits for a reply that may take long. `None` if the client disconnects meanwhile: then the command is dropped.
    async fn wait(&mut self, mut reply: BoxFuture<'static, Reply>) -> io::Result<Option<Reply>> {
        self.write().await?;
        self.turn = None;
        loop {
            let has_room = self.input.buffer.len() < BUSY_BYTES;
            self.input.buffer.reserve(IDLE_BYTES);
            self.hold(0).await?;
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(Some(Reply::err("the daemon is stopping"))),
                () = self.share.closed() => return Err(io::Error::other(NoRoom)),
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
            buffer.reserve(buffer.len().clamp(IDLE_BYTES, BUSY_BYTES));
        }
        self.hold(0).await?;
        let buffer = &mut self.input.buffer;
        let session = &self.dispatch.session;
        let limit = match (&session.user, is_within) {
            (None, _) => Some(session.since + LOGIN_TIME),
            (Some(_), true) => {
                Some(*self.command_started.get_or_insert_with(Instant::now) + COMMAND_TIME)
            }
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
            () = self.share.closed() => Err(io::Error::other(NoRoom)),
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
        *buffer = BytesMut::with_capacity(LINGER_BYTES);
        let drain = async {
            loop {
                buffer.clear();
                buffer.reserve(LINGER_BYTES);
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

    /// Answers that there is no room, and forgets everything that takes some.
    fn refuse_room(&mut self) {
        self.input = Input::default();
        self.dispatch.refuse_room();
        self.share.leave();
    }

    /// Writes the replies.
    async fn write(&mut self) -> io::Result<()> {
        let replies = self.dispatch.replies();
        if replies.is_empty() {
            return Ok(());
        }
        self.turn = None;
        let written = async {
            self.stream.write_all(replies).await?;
            self.stream.flush().await
        };
        tokio::select! {
            biased;
            written = timeout(WRITE_TIME, written) => match written {
                Ok(written) => written?,
                Err(_) => return Err(io::ErrorKind::TimedOut.into()),
            },
            // What follows in the stream would not be a reply.
            () = self.share.closed() => return Err(io::ErrorKind::OutOfMemory.into()),
        }
        self.dispatch.clear_replies();
        self.dispatch.session.unsent.sent();
        Ok(())
    }
}
