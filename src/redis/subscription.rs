//! One subscription to the key events of one database, from connecting to its loss.

use std::fmt;
use std::time::Duration;

use redis::aio::{PubSub, PubSubSink};
use tokio::time::timeout;
use tokio_stream::StreamExt;

use super::{Endpoint, EventKind, Heard, Names, RedisError};

/// Time between two pings of a subscription.
const PING_EVERY: Duration = Duration::from_secs(5);

/// A dedicated connection that is not subscribed yet.
pub struct Connected {
    pubsub: PubSub,
    endpoint: Endpoint,
}

/// A confirmed subscription.
pub struct Subscription {
    pubsub: PubSub,
    response_timeout: Duration,
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
        Ok(Self {
            pubsub: endpoint.connect_pubsub().await?,
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
        let confirmed = self.pubsub.subscribe(Names::hints(member));
        match timeout(self.endpoint.response_timeout(), confirmed).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(RedisError::of("SUBSCRIBE", error)),
            Err(_) => Err(RedisError::silence()),
        }
    }

    /// Converts the connection into its subscription.
    pub fn subscription(self) -> Subscription {
        Subscription {
            response_timeout: self.endpoint.response_timeout(),
            pubsub: self.pubsub,
        }
    }
}

impl Subscription {
    /// Calls `handle` for each key event and `hint` for each hint, until the connection is lost.
    ///
    /// Neither may block: the crate queues unread messages without a limit.
    pub async fn listen(
        self,
        names: &Names,
        mut handle: impl FnMut(EventKind, Heard),
        mut hint: impl FnMut(&[u8]),
    ) -> Loss {
        let (sink, mut events) = self.pubsub.split();
        let receive = async {
            while let Some(event) = events.next().await {
                match EventKind::of_channel(event.get_channel_name()) {
                    Some(kind) => handle(kind, names.read(event.get_payload_bytes())),
                    None => hint(event.get_payload_bytes()),
                }
            }
            Loss::Closed
        };
        tokio::select! {
            loss = receive => loss,
            loss = keep_alive(sink, self.response_timeout) => loss,
        }
    }
}

/// Detects a connection that was cut silently; TCP alone takes minutes.
async fn keep_alive(mut sink: PubSubSink, response_timeout: Duration) -> Loss {
    loop {
        tokio::time::sleep(PING_EVERY).await;
        match timeout(response_timeout, sink.ping::<redis::Value>()).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) => return Loss::Closed,
            Err(_) => return Loss::NoAnswer,
        }
    }
}
