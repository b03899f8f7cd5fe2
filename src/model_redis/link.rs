//! Links: the way between one program and the server, and its faults.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use lapsed_redis::{Connector, Stream};

use crate::model::ModelRedis;
use crate::way::{Condition, Way};

/// The way from one program to the server. A [`Connector`] for the timers of lapsed.
///
/// Faults hold for all connections of the link, and for new ones.
#[derive(Debug)]
pub struct Link {
    redis: Arc<ModelRedis>,
    way: Arc<Way>,
}

impl Link {
    /// Creates a link. By its name, faults and kills find its connections.
    pub fn new(redis: &Arc<ModelRedis>, name: &str) -> Arc<Self> {
        Arc::new(Self {
            redis: Arc::clone(redis),
            way: Way::new(name),
        })
    }

    /// Refuses new connections, or accepts them again.
    pub fn refuse(&self, refuses: bool) {
        self.way.change(|condition| condition.is_refused = refuses);
    }

    /// Closes the connections of this link.
    pub fn kill(&self) {
        self.redis.kill_connections(|link| *link == *self.way.name);
    }

    /// Holds back requests: they arrive when this ends. Connections stay open.
    pub fn hold_requests(&self, holds: bool) {
        self.way.change(|condition| condition.requests_wait = holds);
    }

    /// Holds back replies and messages: commands are done, and nobody hears of it.
    pub fn hold_replies(&self, holds: bool) {
        self.way.change(|condition| condition.replies_wait = holds);
    }

    /// Has each direction take this long.
    pub fn set_latency(&self, latency: Duration) {
        self.way.change(|condition| condition.latency = latency);
    }

    /// Ends all faults.
    pub fn heal(&self) {
        self.way
            .change(|condition| *condition = Condition::default());
    }
}

impl Connector for Link {
    fn connect(&self) -> Pin<Box<dyn Future<Output = io::Result<Stream>> + Send + '_>> {
        Box::pin(async {
            self.way.takes_its_time().await;
            if self.way.condition().is_refused {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let stream = self.redis.connect_by(Arc::clone(&self.way))?;
            Ok(Box::pin(stream) as Stream)
        })
    }
}
