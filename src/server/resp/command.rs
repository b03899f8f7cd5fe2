//! The description of a command, and the table of all commands.
//!
//! A file of commands has a `const COMMANDS: &[Command]`; [`commands`](super::commands) lists them.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::keyed::Keyed;
use super::parser::Args;
use super::reply::Reply;
use super::server_state::ServerState;
use super::session::Session;
use lapsed_core::access::AccessScope;

/// A command.
#[derive(Clone, Copy)]
pub struct Command {
    /// Its name, in lower case.
    pub name: &'static str,
    /// Number of arguments, the name included. Negative: at least as many.
    pub arity: i32,
    /// The scope that it needs; `None`: a login suffices.
    pub scope: Option<AccessScope>,
    /// What it does.
    pub run: Run,
    /// Place of the first key, of the last one (negative: from the end; [`COUNTED`]), and the step between keys; zeros
    /// without keys.
    pub keys: (i32, i32, i32),
    /// A line for `COMMAND DOCS`.
    pub summary: &'static str,
    /// Arguments behind the name, in the notation of Redis' manual.
    pub usage: &'static str,
}

/// In place of that of the last key: the argument before the first key is the number of keys.
pub const COUNTED: i32 = i32::MIN;

/// What a command does.
#[derive(Clone, Copy)]
pub enum Run {
    /// Answers at once.
    Now(fn(&mut Session, &ServerState, Args<'_>) -> Reply),
    /// Is about tasks by key: batched with its neighbours, and allowed between `MULTI` and `EXEC`.
    Keyed(fn(&ServerState, Args<'_>) -> Result<Keyed, Reply>),
    /// Answers later. Nothing else of the connection is answered before.
    Later(Begin),
    /// Answers later. Neighbours of this kind run at the same time, so that the ledger writes them together.
    Joined(Begin),
    /// As [`Later`](Self::Later), for a command that waits for something to happen: it is dropped if the client
    /// disconnects.
    Blocking(Begin),
    /// Changes the connection itself.
    Control(Control),
}

/// Begins a command. The reply borrows nothing.
pub type Begin = fn(&Session, &Arc<ServerState>, Args<'_>) -> BoxFuture<'static, Reply>;

/// A command that changes the connection itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// `AUTH`
    Auth,
    /// `HELLO`
    Hello,
    /// `MULTI`
    Multi,
    /// `EXEC`
    Exec,
    /// `DISCARD`
    Discard,
    /// `WATCH`
    Watch,
    /// `UNWATCH`
    Unwatch,
    /// `RESET`
    Reset,
    /// `QUIT`
    Quit,
    /// `COMMAND`, which needs the table
    Describe,
}

/// A command without keys, for which a login suffices. It is answered at once.
pub const fn now(
    name: &'static str,
    arity: i32,
    run: fn(&mut Session, &ServerState, Args<'_>) -> Reply,
    usage: &'static str,
    summary: &'static str,
) -> Command {
    Command {
        name,
        arity,
        scope: None,
        run: Run::Now(run),
        keys: (0, 0, 0),
        summary,
        usage,
    }
}

impl Command {
    /// True if a client may call it before it has authenticated, too.
    pub fn is_open(&self) -> bool {
        let Run::Control(control) = self.run else {
            return false;
        };
        matches!(
            control,
            Control::Auth | Control::Hello | Control::Quit | Control::Reset
        )
    }

    /// Places of its keys. `skip` arguments come before its name.
    pub fn key_places(&self, args: Args<'_>, skip: usize) -> impl Iterator<Item = usize> + use<> {
        let (first, last, step) = self.keys;
        let len = i64::try_from(args.len().saturating_sub(skip)).unwrap_or(0);
        let last = match last {
            COUNTED => {
                let count = args.get(skip + 1).and_then(|count| integer(count).ok());
                let wanted = count.unwrap_or(0).clamp(0, len) * i64::from(step);
                // The value of the last pair has to be there, too.
                (i64::from(first) + wanted - i64::from(step)).min(len - i64::from(step))
            }
            last if last < 0 => len + i64::from(last),
            last => i64::from(last),
        };
        let last = usize::try_from(last).unwrap_or(0);
        let first = usize::try_from(first).unwrap_or(0);
        let range = if first == 0 { 1..1 } else { first..last + 1 };
        range.step_by(usize::try_from(step).unwrap_or(1).max(1))
    }

    /// True if it may have this many arguments, the name included.
    pub fn takes(&self, args: usize) -> bool {
        let count = self.arity.unsigned_abs() as usize;
        match self.arity < 0 {
            true => args >= count,
            false => args == count,
        }
    }
}

/// The table of all commands.
pub struct Registry {
    commands: Vec<Command>,
    by_name: HashMap<&'static str, usize>,
}

/// Longest name of a command that is looked up.
const NAME_MAX: usize = 32;

impl Registry {
    /// Creates the table.
    pub fn new(topics: &[&[Command]]) -> Self {
        let commands: Vec<Command> = topics.concat();
        let by_name = commands.iter().map(|command| command.name);
        let by_name = by_name.enumerate().map(|(index, name)| (name, index));
        Self {
            by_name: by_name.collect(),
            commands,
        }
    }

    /// Finds a command by its name in any case. Returns its place in the table, too.
    pub fn find(&self, name: &[u8]) -> Option<(usize, &Command)> {
        let mut lower = [0; NAME_MAX];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        let index = *self.by_name.get(std::str::from_utf8(lower).ok()?)?;
        Some((index, &self.commands[index]))
    }

    /// Returns all commands.
    pub fn all(&self) -> &[Command] {
        &self.commands
    }
}

/// The error for an unknown command, in Redis' words: clients tell by them what a server is.
pub fn unknown(args: Args<'_>) -> Reply {
    const NAME_SHOWN: usize = 128;
    let shown = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(NAME_SHOWN)]);
        text.replace(['\r', '\n'], " ")
    };
    let mut with = String::new();
    for arg in args.from(1) {
        if with.len() >= NAME_SHOWN {
            break;
        }
        with.push_str(&format!("'{}' ", shown(arg)));
    }
    Reply::err(format_args!(
        "unknown command '{}', with args beginning with: {with}",
        shown(args.name())
    ))
}

/// The error for a wrong number of arguments.
pub fn wrong_arity(name: &str) -> Reply {
    Reply::err(format_args!(
        "wrong number of arguments for '{name}' command"
    ))
}

/// The error for a syntax that Redis does not have either.
pub fn syntax_error() -> Reply {
    Reply::err("syntax error")
}

/// The error for an unknown second word.
pub fn unknown_subcommand(name: &str, sub: &[u8]) -> Reply {
    let sub = String::from_utf8_lossy(&sub[..sub.len().min(128)]);
    Reply::err(format_args!(
        "unknown subcommand '{sub}'. Try {} HELP.",
        name.to_uppercase()
    ))
}

/// Reads a number as Redis does.
///
/// # Errors
/// Redis' error.
pub fn integer(text: &[u8]) -> Result<i64, Reply> {
    super::parser::number(text).ok_or_else(|| Reply::err("value is not an integer or out of range"))
}

/// Reads milliseconds. Only for commands that Redis does not have.
///
/// # Errors
/// Redis' error for a number, with the unit.
pub fn milliseconds(text: &[u8]) -> Result<i64, Reply> {
    super::parser::number(text).ok_or_else(|| {
        Reply::err(
            "value is not an integer or out of range, expected milliseconds: 30000 for 30 seconds",
        )
    })
}

/// True if the argument is this word, in any case.
pub fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}
