//! From a command to its reply.

mod budget;
mod refusal;

use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};

use super::actor::Actor;
use super::batch;
use super::command::{Control, Registry, Run, unknown};
use super::control;
use super::counters::Counters;
use super::error_code::ErrorCode;
use super::introspection;
use super::keyed::{Keyed, NOT_IN_TRANSACTION};
use super::parser::{Args, Owned};
use super::reply::Reply;
use super::server_state::ServerState;
use super::session::{Queued, Session};
use super::transactions::{self, aborted};
use super::{client, server};
use lapsed::task::PAYLOAD_BYTES_MAX;
use lapsed_core::access::AccessScope as Scope;

/// Capacity that is kept for replies.
const REPLIES_KEPT: usize = 1024;

/// Carries out the commands of a connection.
pub struct Dispatch {
    /// The state of the connection.
    pub session: Session,
    server: Arc<ServerState>,
    registry: &'static Registry,
    counters: Arc<Counters>,
    /// Commands that wait for a commit, and replies that wait for those before them.
    batch: Vec<(usize, Queued)>,
    weight: usize,
    /// Bytes of the arguments of the commands that wait.
    bytes: usize,
    /// Bytes of values that their replies may have.
    values: usize,
    /// Commands that run together, before the batch.
    joined: Vec<(usize, BoxFuture<'static, Reply>)>,
    replies: Vec<u8>,
}

/// What became of a command.
pub enum Accepted {
    /// It is answered, or part of the batch.
    Done,
    /// It has to wait for the batch: this is its place in the table.
    AfterBatch(usize),
    /// Its reply.
    Later(BoxFuture<'static, Reply>),
    /// Its reply, for which the client may wait long.
    Blocking(BoxFuture<'static, Reply>),
    /// The connection ends.
    End,
}

impl Dispatch {
    /// Begins a connection.
    pub fn new(
        session: Session,
        server: Arc<ServerState>,
        registry: &'static Registry,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            session,
            server,
            registry,
            counters,
            batch: Vec::new(),
            weight: 0,
            bytes: 0,
            values: 0,
            joined: Vec::new(),
            replies: Vec::new(),
        }
    }

    /// Takes a command: adds it to the batch if it is about tasks, and refuses it if it is wrong.
    pub fn accept(&mut self, args: Args<'_>) -> Accepted {
        let Some((index, command)) = self.registry.find(args.name()) else {
            // A browser or a proxy of the network, abused to reach us: what follows is not meant as commands.
            if super::command::is(args.name(), "post") || super::command::is(args.name(), "host:") {
                return Accepted::End;
            }
            return self.refuse(None, unknown(args));
        };
        if let Some(error) = self.refusal(command, args) {
            return self.refuse(Some(index), error);
        }
        let parse = match command.run {
            Run::Keyed(parse) => parse,
            Run::Joined(begin) if self.batch.is_empty() && self.session.transaction.is_none() => {
                self.bytes += args.bytes();
                self.join(index, begin(&self.session, &self.server, args));
                return Accepted::Done;
            }
            _ => return Accepted::AfterBatch(index),
        };
        let bytes = args.bytes();
        let queued = match parse(&self.server, args) {
            Ok(Keyed::Repeat(_)) if self.session.transaction.is_some() => {
                Queued::Answered(Reply::err(NOT_IN_TRANSACTION))
            }
            // The value before is read.
            Ok(keyed) if keyed.reads_value() && !self.may(Scope::Read) => {
                let error = Reply::no_permission(match &keyed {
                    Keyed::Set(set) if set.get => "set .. get",
                    Keyed::Set(_) => "set .. if",
                    _ => "delex .. if",
                });
                return self.refuse(Some(index), error);
            }
            Ok(keyed) if keyed.reads_value() && self.hides_value(&keyed) => {
                let text = "payloads of this class are masked";
                return self.refuse(Some(index), Reply::error(ErrorCode::NoPerm, text));
            }
            Ok(keyed) => Queued::Keyed(keyed),
            Err(error) => Queued::Answered(error),
        };
        match &mut self.session.transaction {
            None => {
                self.weight += weight(&queued);
                self.bytes += bytes;
                if let Queued::Keyed(keyed) = &queued
                    && keyed.reads_value()
                {
                    self.values += PAYLOAD_BYTES_MAX;
                }
                self.batch.push((index, queued));
            }
            Some(transaction) => {
                let reply = transaction.queue(queued, bytes);
                self.counters.count(index, &reply);
                self.answer(&reply);
            }
        }
        Accepted::Done
    }

    /// Carries out a command that is not batched. The batch is finished.
    pub async fn carry_out(&mut self, index: usize, args: Args<'_>) -> Accepted {
        let registry = self.registry;
        let command = &registry.all()[index];
        let reply = match command.run {
            Run::Keyed(_) => unreachable!("it is batched"),
            Run::Now(_) | Run::Control(Control::Describe) if self.session.transaction.is_some() => {
                self.queue_call(index, args)
            }
            Run::Now(answer) => answer(&mut self.session, &self.server, args),
            Run::Later(_) | Run::Joined(_) | Run::Blocking(_)
                if self.session.transaction.is_some() =>
            {
                self.break_transaction();
                Reply::err(format_args!(
                    "'{}' is not allowed between MULTI and EXEC",
                    command.name
                ))
            }
            Run::Joined(begin) => {
                self.join(index, begin(&self.session, &self.server, args));
                return Accepted::Done;
            }
            Run::Later(begin) => {
                self.counters.called(index);
                return Accepted::Later(begin(&self.session, &self.server, args));
            }
            Run::Blocking(begin) => {
                self.counters.called(index);
                return Accepted::Blocking(begin(&self.session, &self.server, args));
            }
            Run::Control(control) => self.control(control, args).await,
        };
        self.counters.count(index, &reply);
        self.answer(&reply);
        match command.run {
            Run::Control(Control::Quit) => Accepted::End,
            _ => Accepted::Done,
        }
    }

    /// Queues a command of a transaction that is not about tasks. As in Redis, a subcommand that does not exist breaks it.
    fn queue_call(&mut self, index: usize, args: Args<'_>) -> Reply {
        let refused = match self.registry.all()[index].name {
            "client" => client::refusal(args),
            "command" => introspection::refusal(args),
            "config" => server::refusal(args),
            _ => None,
        };
        match (refused, &mut self.session.transaction) {
            (None, Some(transaction)) => {
                transaction.queue(Queued::Call(index, Owned::of(args)), args.bytes())
            }
            (refused, _) => {
                self.break_transaction();
                refused.unwrap_or_else(|| Reply::err("EXEC without MULTI"))
            }
        }
    }

    fn join(&mut self, index: usize, reply: BoxFuture<'static, Reply>) {
        self.weight += 1;
        self.joined.push((index, reply));
    }

    /// Carries out the batch and answers it.
    pub async fn finish_batch(&mut self) {
        if !self.joined.is_empty() {
            let joined = std::mem::take(&mut self.joined);
            let (places, replies): (Vec<usize>, Vec<_>) = joined.into_iter().unzip();
            for (index, reply) in places.into_iter().zip(join_all(replies).await) {
                self.counters.count(index, &reply);
                self.answer(&reply);
            }
            (self.weight, self.bytes, self.values) = (0, 0, 0);
        }
        if self.batch.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut self.batch);
        (self.weight, self.bytes, self.values) = (0, 0, 0);
        let mut places = Vec::with_capacity(batch.len());
        let mut commands: Vec<Keyed> = Vec::with_capacity(batch.len());
        for (index, queued) in batch {
            match queued {
                Queued::Keyed(keyed) => {
                    commands.push(keyed);
                    places.push((index, None));
                }
                Queued::Answered(reply) => places.push((index, Some(reply))),
                // Between MULTI and EXEC only.
                Queued::Call(..) => {}
            }
        }
        let replies = match commands.is_empty() {
            true => Vec::new(),
            false => {
                let session = &self.session;
                let actor = Actor::new(&self.server, session.user.as_deref(), session.address);
                batch::run(&actor, commands).await
            }
        };
        let mut replies = replies.into_iter();
        for (index, known) in places {
            let reply = known.or_else(|| replies.next());
            let reply = reply.expect("one reply to one command");
            self.counters.count(index, &reply);
            self.answer(&reply);
        }
    }

    fn hides_value(&self, keyed: &Keyed) -> bool {
        let mut is_hidden = false;
        if let Some(user) = &self.session.user {
            keyed.each_key(|key| is_hidden |= user.masks.hides_payload(key));
        }
        is_hidden
    }

    fn may(&self, scope: Scope) -> bool {
        let user = self.session.user.as_ref();
        user.is_some_and(|user| user.has(scope))
    }

    /// Appends a reply.
    pub fn answer(&mut self, reply: &Reply) {
        reply.write(&mut self.replies, self.session.protocol);
    }

    /// Returns the replies that are not written yet.
    pub fn replies(&self) -> &[u8] {
        &self.replies
    }

    /// Forgets the replies, which are written.
    pub fn clear_replies(&mut self) {
        self.replies.clear();
        self.replies.shrink_to(REPLIES_KEPT);
    }

    /// Answers with an error, after the batch. An open transaction is discarded.
    fn refuse(&mut self, index: Option<usize>, error: Reply) -> Accepted {
        let is_exec = index.is_some_and(|index| self.registry.all()[index].name == "exec");
        let error = match (&error, self.session.transaction.is_some() && is_exec) {
            // As in Redis, an `EXEC` that is refused ends the transaction.
            (Reply::Error(code, text), true) => {
                transactions::discard(&mut self.session);
                match code {
                    ErrorCode::Err => aborted(&format!("of: {text}")),
                    code => aborted(&format!("of: {code} {text}")),
                }
            }
            _ => error,
        };
        self.break_transaction();
        match (index, self.batch.is_empty() && self.joined.is_empty()) {
            (Some(index), false) => self.batch.push((index, Queued::Answered(error))),
            (None, false) => self
                .batch
                .push((Counters::UNKNOWN, Queued::Answered(error))),
            (index, true) => {
                self.counters
                    .count(index.unwrap_or(Counters::UNKNOWN), &error);
                self.answer(&error);
            }
        }
        Accepted::Done
    }

    fn break_transaction(&mut self) {
        if let Some(transaction) = &mut self.session.transaction {
            transaction.break_off();
        }
    }

    async fn control(&mut self, control: Control, args: Args<'_>) -> Reply {
        let (session, server) = (&mut self.session, &self.server);
        let is_in_transaction = session.transaction.is_some();
        match control {
            Control::Quit => Reply::OK,
            Control::Reset => {
                session.reset(server.users.without_auth());
                Reply::Status("RESET")
            }
            Control::Auth | Control::Hello if is_in_transaction => {
                self.break_transaction();
                let name = String::from_utf8_lossy(args.name()).to_lowercase();
                Reply::err(format_args!(
                    "'{name}' is not allowed between MULTI and EXEC"
                ))
            }
            Control::Auth => control::auth(session, server, args).await,
            Control::Hello => control::hello(session, server, args).await,
            Control::Multi => transactions::multi(session),
            Control::Exec => transactions::exec(session, server, self.registry).await,
            Control::Discard => transactions::discard(session),
            Control::Watch => transactions::watch(session, server, args).await,
            Control::Unwatch => match &mut session.transaction {
                // Queued as any command. What is watched decides before it would be carried out.
                Some(transaction) => transaction.queue(Queued::Answered(Reply::OK), 0),
                None => {
                    session.watched.clear();
                    Reply::OK
                }
            },
            Control::Describe => introspection::describe(self.registry, args),
        }
    }
}

/// The work of a command in a batch.
fn weight(queued: &Queued) -> usize {
    match queued {
        Queued::Answered(_) | Queued::Call(..) => 1,
        Queued::Keyed(keyed) if keyed.reads_value() => 16,
        Queued::Keyed(keyed) => keyed.keys().max(1),
    }
}
