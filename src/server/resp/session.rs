//! The state of one connection.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::time::Instant;

use super::guests::Guest;
use super::keyed::Keyed;
use super::parser::Owned;
use super::reply::{Protocol, Reply};
use super::unsent_deliveries::UnsentDeliveries;
use super::watched::Watched;
use lapsed::task::{PAYLOAD_BYTES_MAX, TaskKey};
use lapsed_core::access::Principal;

/// The state of one connection.
pub struct Session {
    /// Number of the connection.
    pub id: u64,
    /// Address of the client.
    pub address: SocketAddr,
    /// Address of the listener.
    pub local: SocketAddr,
    /// When it connected.
    pub since: Instant,
    /// The protocol of the replies.
    pub protocol: Protocol,
    /// `None` until it has authenticated.
    pub user: Option<Arc<Principal>>,
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
    pub watched: Vec<Watched>,
    /// Tasks of a worker whose reply is not written yet.
    pub unsent: UnsentDeliveries,
    /// Wrong passwords that it has sent.
    pub wrong_passwords: u8,
    /// Until it has authenticated.
    pub guest: Option<Guest>,
}

/// Subscriptions. No message is ever published to them.
#[derive(Debug, Default)]
pub struct Subscriptions {
    /// Channels.
    pub channels: BTreeSet<Vec<u8>>,
    /// Patterns.
    pub patterns: BTreeSet<Vec<u8>>,
    /// Bytes of all names.
    pub bytes: usize,
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
    /// Keys of the commands, each as often as it is named.
    keys: usize,
    /// Bytes of the arguments.
    bytes: usize,
    /// Commands whose replies have a value.
    reads: usize,
}

/// Most commands of a transaction, and most keys: it is one transaction of the ledger, too, and nothing else is written
/// meanwhile.
pub const QUEUE_MAX: usize = 10_000;

/// Most bytes of the arguments of a transaction.
pub const QUEUE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Memory of a queued command beside its arguments.
const QUEUED_BYTES: usize = 256;

/// Longest error of a command that is kept until `EXEC` answers.
const ERROR_BYTES: usize = 512;

impl Transaction {
    /// Keeps a command with this number of bytes of arguments for `EXEC`.
    pub fn queue(&mut self, command: Queued, bytes: usize) -> Reply {
        let keys = match &command {
            Queued::Keyed(keyed) => keyed.keys(),
            Queued::Answered(_) | Queued::Call(..) => 0,
        };
        let refused = match () {
            () if self.queued.len() >= QUEUE_MAX => Some(format!("{QUEUE_MAX} commands")),
            () if self.keys + keys > QUEUE_MAX => Some(format!("{QUEUE_MAX} keys")),
            () if self.bytes + bytes > QUEUE_BYTES_MAX => Some(format!("{QUEUE_BYTES_MAX} bytes")),
            () => None,
        };
        if let Some(most) = refused {
            self.break_off();
            return Reply::err(format_args!("a transaction has at most {most}"));
        }
        if self.is_broken {
            // `EXEC` will refuse it, as the client was told.
            return Reply::Status("QUEUED");
        }
        self.keys += keys;
        self.reads += match &command {
            Queued::Keyed(keyed) => usize::from(keyed.reads_value()),
            Queued::Answered(_) | Queued::Call(..) => 0,
        };
        self.bytes += match &command {
            Queued::Answered(Reply::Error(_, text)) => text.len().min(ERROR_BYTES),
            Queued::Answered(_) => 0,
            Queued::Keyed(_) | Queued::Call(..) => bytes,
        };
        self.queued.push(command);
        Reply::Status("QUEUED")
    }

    /// Has `EXEC` discard all commands, and forgets them.
    pub fn break_off(&mut self) {
        *self = Self {
            is_broken: true,
            ..Self::default()
        };
    }

    /// Most bytes of the values in its replies.
    pub fn values(&self) -> usize {
        self.reads * PAYLOAD_BYTES_MAX
    }

    /// Memory that it takes.
    fn held(&self) -> usize {
        self.bytes + self.queued.len() * QUEUED_BYTES + self.keys * size_of::<TaskKey>()
    }
}

/// A command that waits for `EXEC`.
#[derive(Debug, Clone)]
pub enum Queued {
    /// About tasks.
    Keyed(Keyed),
    /// Its answer is known.
    Answered(Reply),
    /// About the connection or the server: the place in the table, and the arguments.
    Call(usize, Owned),
}

impl Session {
    /// The state of a new connection.
    pub fn new(
        id: u64,
        address: SocketAddr,
        local: SocketAddr,
        user: Option<Arc<Principal>>,
    ) -> Self {
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
            unsent: UnsentDeliveries::default(),
            wrong_passwords: 0,
            guest: None,
        }
    }

    /// Memory that the client makes it take.
    pub fn held(&self) -> usize {
        self.transaction.as_ref().map_or(0, Transaction::held)
            + self.subscriptions.bytes
            + self.watched.len() * size_of::<Watched>()
    }

    /// Goes back to the state of a new connection.
    pub fn reset(&mut self, user: Option<Arc<Principal>>) {
        let (since, unsent, wrong) = (self.since, self.unsent.clone(), self.wrong_passwords);
        let guest = self.guest.take();
        *self = Self::new(self.id, self.address, self.local, user);
        self.guest = guest;
        (self.since, self.unsent, self.wrong_passwords) = (since, unsent, wrong);
    }

    /// True if RESP2 allows only commands about subscriptions.
    pub fn is_subscriber(&self) -> bool {
        self.protocol == Protocol::Resp2 && self.subscriptions.len() > 0
    }
}
