//! One subscription to the key events of one database, from connecting to its loss.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::{PubSub, PubSubSink, PubSubStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_stream::StreamExt;

use super::master::Mastership;
use super::{Endpoint, EventKind, Heard, Names, RedisError};

/// Time between two pings of a subscription.
const PING_EVERY: Duration = Duration::from_secs(5);

/// The response timeout is waited for in this many parts. A process that gets no CPU time for seconds finds one part
/// over, and reads what has arrived meanwhile during the next.
const TIMEOUT_PARTS: u32 = 4;

/// A dedicated connection that is not subscribed yet.
pub struct Connected {
    pubsub: PubSub,
    mastership: Mastership,
    endpoint: Endpoint,
}

/// A confirmed subscription.
pub struct Subscription {
    sink: PubSubSink,
    events: PubSubStream,
    response_timeout: Duration,
    mastership: Mastership,
    caught_up: mpsc::UnboundedReceiver<oneshot::Sender<()>>,
}

/// The events of a subscription that are published and not handled yet.
#[derive(Debug, Clone)]
pub struct Backlog {
    sink: PubSubSink,
    /// Requests to say when no event is left.
    caught_up: mpsc::UnboundedSender<oneshot::Sender<()>>,
}

/// Why a subscription ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The connection was closed.
    Closed,
    /// The connection is open, but the server does not answer.
    NoAnswer,
    /// The server answers, but does not deliver events.
    Muted,
    /// The server is no longer the master.
    Demoted,
}

impl Loss {
    /// Its name in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::NoAnswer => "no_answer",
            Self::Muted => "muted",
            Self::Demoted => "demoted",
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Connected {
    /// Connects.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses the credentials.
    pub async fn open(endpoint: &Endpoint) -> Result<Self, RedisError> {
        let (pubsub, mastership) = endpoint.connect_pubsub().await?;
        Ok(Self {
            pubsub,
            mastership,
            endpoint: endpoint.clone(),
        })
    }

    /// Subscribes to events of one kind, and waits for the confirmation.
    ///
    /// # Errors
    /// If the server refuses or does not answer.
    pub async fn subscribe(&mut self, kind: EventKind) -> Result<(), RedisError> {
        // A pattern, because ACLs that follow the common advice allow `psubscribe` and, literally, this pattern. It
        // contains no glob character, so it matches this channel alone.
        let confirmed = self.pubsub.psubscribe(self.endpoint.channel(kind));
        match timeout(self.endpoint.response_timeout(), confirmed).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(RedisError::of("PSUBSCRIBE", error)),
            Err(_) => Err(RedisError::silence()),
        }
    }

    /// Subscribes to the channel on which other members forward expired keys that this one owns.
    ///
    /// # Errors
    /// If the server refuses or does not reply.
    pub async fn subscribe_hints(&mut self, member: u64) -> Result<(), RedisError> {
        self.subscribe_channels(&[Names::hints(member)]).await
    }

    /// Subscribes to these channels, and waits for the confirmations.
    ///
    /// # Errors
    /// If the server refuses or does not reply.
    pub async fn subscribe_channels(&mut self, channels: &[String]) -> Result<(), RedisError> {
        let confirmed = self.pubsub.subscribe(channels);
        match timeout(self.endpoint.response_timeout(), confirmed).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(RedisError::of("SUBSCRIBE", error)),
            Err(_) => Err(RedisError::silence()),
        }
    }

    /// Subscribes to the events of these keys, and waits for the confirmations. A name is taken literally.
    ///
    /// # Errors
    /// As [`subscribe`](Self::subscribe).
    pub async fn subscribe_keys(&mut self, names: &[String]) -> Result<(), RedisError> {
        let channels: Vec<String> = names
            .iter()
            .map(|name| self.endpoint.key_channel(name))
            .collect();
        self.subscribe_channels(&channels).await
    }

    /// Converts the connection into its subscription and the backlog of that.
    pub fn subscription(self) -> (Subscription, Backlog) {
        let (sink, events) = self.pubsub.split();
        let (request, requested) = mpsc::unbounded_channel();
        let backlog = Backlog {
            sink: sink.clone(),
            caught_up: request,
        };
        let subscription = Subscription {
            sink,
            events,
            response_timeout: self.endpoint.response_timeout(),
            mastership: self.mastership,
            caught_up: requested,
        };
        (subscription, backlog)
    }
}

impl Subscription {
    /// Calls `handle` for each key event and `hint` for each other message, until the connection is lost.
    ///
    /// Neither may block: the crate queues unread messages without a limit.
    pub async fn listen(
        self,
        names: &Names,
        mut handle: impl FnMut(EventKind, Heard),
        mut hint: impl FnMut(&[u8]),
    ) -> Loss {
        let message = |channel: &str, payload: &[u8]| match EventKind::of_channel(channel) {
            Some(kind) => handle(kind, names.read(payload)),
            None => hint(payload),
        };
        self.receive(message).await
    }

    /// Calls `message` with the channel and the payload of each message, until the connection is lost. For the events
    /// of a key, the payload is the name of the event.
    ///
    /// It may not block: the crate queues unread messages without a limit.
    pub async fn receive(self, mut message: impl FnMut(&str, &[u8])) -> Loss {
        let Self {
            sink,
            mut events,
            response_timeout,
            mastership,
            mut caught_up,
        } = self;
        let handled = AtomicU64::new(0);
        let receive = async {
            loop {
                tokio::select! {
                    // In this order: the second is reached when no event is left.
                    biased;
                    event = events.next() => {
                        let Some(event) = event else {
                            return Loss::Closed;
                        };
                        handled.fetch_add(1, Ordering::Relaxed);
                        message(event.get_channel_name(), event.get_payload_bytes());
                    }
                    Some(request) = caught_up.recv() => {
                        // It may have been cancelled.
                        let _: Result<(), ()> = request.send(());
                    }
                }
            }
        };
        tokio::select! {
            loss = receive => loss,
            loss = keep_alive(sink, response_timeout, &handled) => loss,
            () = mastership.over() => Loss::Demoted,
        }
    }
}

impl Backlog {
    /// Waits until every event that the server had published before this call is handled. If the connection is lost,
    /// this does not return: [`Subscription::listen`] does.
    pub async fn caught_up(&self) {
        // The answer comes behind these events, and is there when they are received.
        if self.sink.clone().ping::<redis::Value>().await.is_ok() {
            let (request, answer) = oneshot::channel();
            if self.caught_up.send(request).is_ok() && answer.await.is_ok() {
                return;
            }
        }
        std::future::pending().await
    }
}

/// Detects a connection that was cut silently; TCP alone takes minutes.
async fn keep_alive(mut sink: PubSubSink, response_timeout: Duration, handled: &AtomicU64) -> Loss {
    loop {
        tokio::time::sleep(PING_EVERY).await;
        let mut pong = pin!(sink.ping::<redis::Value>());
        let (mut silent_parts, mut before) = (0, handled.load(Ordering::Relaxed));
        loop {
            match timeout(response_timeout / TIMEOUT_PARTS, &mut pong).await {
                Ok(Ok(_)) => break,
                Ok(Err(_)) => return Loss::Closed,
                Err(_) => {}
            }
            // The answer comes behind the events, and those may be many.
            let now = handled.load(Ordering::Relaxed);
            silent_parts = if now == before { silent_parts + 1 } else { 0 };
            before = now;
            if silent_parts == TIMEOUT_PARTS {
                return Loss::NoAnswer;
            }
        }
    }
}
