//! What a connection takes, and the commands that are refused because it is too much.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::Dispatch;
use crate::net::room::NoRoom;
use crate::resp::command::{Control, Run};
use crate::resp::parser::{Args, Limits};
use crate::resp::reply::Reply;
use crate::resp::session::Subscriptions;
use crate::resp::strings;
use crate::resp::transactions::REPLIES_BYTES_MAX;

/// Most work in a batch: a key is 1, a value to read 16.
const BATCH_WEIGHT: usize = 1024;

/// Most bytes of the arguments of a batch.
const BATCH_BYTES: usize = 1024 * 1024;

/// Memory of a command of a batch beside its arguments.
const COMMAND_BYTES: usize = 256;

/// Memory for the reply to a command that looks at tasks.
const LOOK_BYTES: usize = 512 * 1024;

/// Commands with a value, which is a payload.
const VALUED: [&str; 8] = [
    "set",
    "setex",
    "psetex",
    "setnx",
    "msetex",
    "delex",
    "delifeq",
    "lapsed.schedule",
];

impl Dispatch {
    /// True if the batch should grow no further.
    pub fn is_batch_full(&self) -> bool {
        self.weight >= BATCH_WEIGHT || self.bytes >= BATCH_BYTES || self.values >= REPLIES_BYTES_MAX
    }

    /// Waits for the turn of a connection with much input.
    pub fn large_input(&self) -> impl Future<Output = Option<OwnedSemaphorePermit>> + Send + use<> {
        let turns = Arc::clone(&self.server.large_inputs);
        async move { turns.acquire_owned().await.ok() }
    }

    /// Memory that the client makes it take.
    pub fn held(&self) -> usize {
        let waiting = self.batch.len() + self.joined.len();
        self.session.held() + self.replies.capacity() + self.bytes + waiting * COMMAND_BYTES
    }

    /// Memory that it may take beside that to answer what waits, and `index`, if that is next.
    pub fn to_come(&self, index: Option<usize>) -> usize {
        let next = index.map(|index| self.registry.all()[index].run);
        self.values
            + match next {
                Some(Run::Later(_)) => LOOK_BYTES,
                Some(Run::Control(Control::Exec)) => {
                    let transaction = self.session.transaction.as_ref();
                    transaction.map_or(0, |it| LOOK_BYTES + it.values().min(REPLIES_BYTES_MAX))
                }
                _ => 0,
            }
    }

    /// True if the next command is one that checks a password.
    pub fn checks_password(&self, index: usize) -> bool {
        let run = self.registry.all()[index].run;
        matches!(run, Run::Control(Control::Auth | Control::Hello))
    }

    /// Places of the keys of a command.
    pub fn key_places(&self, args: Args<'_>) -> Option<impl Iterator<Item = usize> + use<>> {
        let (_, command) = self.registry.find(args.name())?;
        Some(command.key_places(args, 0))
    }

    /// The prefix of keys that is taken off.
    pub fn key_prefix(&self) -> &str {
        &self.server.config.key_prefix
    }

    /// Answers that clients hold all the memory they may use, and forgets what this one holds.
    pub fn refuse_room(&mut self) {
        self.server.metrics.resp_refused("memory");
        self.batch = Vec::new();
        self.joined = Vec::new();
        self.replies = Vec::new();
        (self.weight, self.bytes, self.values) = (0, 0, 0);
        let session = &mut self.session;
        (session.transaction, session.watched) = (None, Vec::new());
        session.subscriptions = Subscriptions::default();
        self.answer(&Reply::err(format_args!(
            "{NoRoom}, closing this connection"
        )));
    }

    /// Refuses a command with an argument of this length, which was dropped.
    pub fn refuse_long(&mut self, args: Args<'_>, bytes: usize) {
        let found = self.registry.find(args.name());
        let error = match found {
            Some((_, command)) if VALUED.contains(&command.name) => strings::value_too_long(bytes),
            _ => Reply::err(format_args!(
                "an argument has {bytes} bytes, expected at most {}",
                Limits::DEFAULT.arg_bytes
            )),
        };
        self.refuse(found.map(|(index, _)| index), error);
    }
}
