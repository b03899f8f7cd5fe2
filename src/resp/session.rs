//! The state of one connection.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::time::Instant;

use super::auth::User;
use super::handed::Handed;
use super::keyed::Keyed;
use super::reply::{Protocol, Reply};
use crate::ledger::SeriesRow;
use crate::task::TaskKey;

/// The state of one connection.
pub struct Session {
    /// Number of the connection.
    pub id: u64,
    /// Address of the client.
    pub address: SocketAddr,
    /// Address of the door.
    pub local: SocketAddr,
    /// When it connected.
    pub since: Instant,
    /// The protocol of the replies.
    pub protocol: Protocol,
    /// `None` until it has authenticated.
    pub user: Option<Arc<User>>,
    /// `CLIENT SETNAME`.
    pub name: String,
    /// `CLIENT SETINFO LIB-NAME`.
    pub lib_name: String,
    /// `CLIENT SETINFO LIB-VER`.
    pub lib_version: String,
    /// Channels of `SUBSCRIBE`, and patterns of `PSUBSCRIBE`.
    pub subscriptions: Subscriptions,
    /// Between `MULTI` and `EXEC`.
    pub transaction: Option<Transaction>,
    /// Keys of `WATCH`, with their rows as they were then.
    pub watched: Vec<(TaskKey, Option<SeriesRow>)>,
    /// Tasks of a worker whose reply is not written yet.
    pub handed: Handed,
}

/// Subscriptions. No message is ever published to them.
#[derive(Debug, Default)]
pub struct Subscriptions {
    /// Channels.
    pub channels: BTreeSet<Vec<u8>>,
    /// Patterns.
    pub patterns: BTreeSet<Vec<u8>>,
}

impl Subscriptions {
    /// Number of channels and patterns.
    pub fn len(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }
}

/// The commands between `MULTI` and `EXEC`.
#[derive(Debug, Default)]
pub struct Transaction {
    /// In order.
    pub queued: Vec<Queued>,
    /// A command was refused: `EXEC` discards all.
    pub is_broken: bool,
}

/// Most commands of a transaction: it is one transaction of the ledger, too.
const QUEUE_MAX: usize = 10_000;

impl Transaction {
    /// Keeps a command for `EXEC`.
    pub fn queue(&mut self, command: Queued) -> Reply {
        if self.queued.len() >= QUEUE_MAX {
            self.is_broken = true;
            return Reply::err(format_args!(
                "a transaction has at most {QUEUE_MAX} commands"
            ));
        }
        self.queued.push(command);
        Reply::Status("QUEUED")
    }
}

/// A command that waits for `EXEC`.
#[derive(Debug, Clone)]
pub enum Queued {
    /// About tasks.
    Keyed(Keyed),
    /// Its answer is known.
    Answered(Reply),
}

impl Session {
    /// The state of a new connection.
    pub fn new(id: u64, address: SocketAddr, local: SocketAddr, user: Option<Arc<User>>) -> Self {
        Self {
            id,
            address,
            local,
            since: Instant::now(),
            protocol: Protocol::Resp2,
            user,
            name: String::new(),
            lib_name: String::new(),
            lib_version: String::new(),
            subscriptions: Subscriptions::default(),
            transaction: None,
            watched: Vec::new(),
            handed: Handed::default(),
        }
    }

    /// Goes back to the state of a new connection.
    pub fn reset(&mut self, user: Option<Arc<User>>) {
        let (since, handed) = (self.since, self.handed.clone());
        *self = Self::new(self.id, self.address, self.local, user);
        (self.since, self.handed) = (since, handed);
    }

    /// True if RESP2 allows only commands about subscriptions.
    pub fn is_subscriber(&self) -> bool {
        self.protocol == Protocol::Resp2 && self.subscriptions.len() > 0
    }
}
