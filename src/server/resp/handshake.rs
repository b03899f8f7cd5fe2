//! Commands about the connection.

use super::command::{Command, Control, Run, integer, now, wrong_arity};
use super::parser::Args;
use super::reply::Reply;
use super::server_state::ServerState;
use super::session::Session;
use lapsed_core::access::AccessScope as Scope;

const fn control(
    name: &'static str,
    arity: i32,
    control: Control,
    usage: &'static str,
    summary: &'static str,
) -> Command {
    Command {
        name,
        arity,
        scope: None,
        run: Run::Control(control),
        keys: (0, 0, 0),
        summary,
        usage,
    }
}

/// The commands of this file.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    control("auth", -2, Control::Auth, "[username] password", "Authenticates the connection."),
    control("hello", -1, Control::Hello, "[protover [AUTH username password] [SETNAME clientname]]", "Handshakes with the server."),
    control("quit", -1, Control::Quit, "", "Closes the connection."),
    control("reset", 1, Control::Reset, "", "Resets the connection."),
    control("multi", 1, Control::Multi, "", "Starts a transaction."),
    control("exec", 1, Control::Exec, "", "Executes all commands in a transaction, as one transaction of the ledger."),
    control("discard", 1, Control::Discard, "", "Discards a transaction."),
    Command { scope: Some(Scope::Read), keys: (1, -1, 1), ..control("watch", -2, Control::Watch, "key [key ...]", "Makes the next EXEC depend on tasks that do not change.") },
    control("unwatch", 1, Control::Unwatch, "", "Forgets watched keys."),
    control("command", -1, Control::Describe, "[COUNT | LIST | INFO | DOCS | GETKEYS] [command ...]", "Describes the commands of this server."),
    now("ping", -1, ping, "[message]", "Returns the server's liveness response."),
    now("echo", 2, echo, "message", "Returns the given string."),
    now("select", 2, select, "index", "Accepts the databases 0 to 15, which are all the same."),
];

fn ping(session: &mut Session, _: &ServerState, args: Args<'_>) -> Reply {
    let message = args.get(1).map(<[u8]>::to_vec);
    match message {
        _ if args.len() > 2 => wrong_arity("ping"),
        message if session.is_subscriber() => Reply::Array(vec![
            Reply::Static("pong"),
            Reply::Bytes(message.unwrap_or_default()),
        ]),
        Some(message) => Reply::Bytes(message),
        None => Reply::Status("PONG"),
    }
}

fn echo(_: &mut Session, _: &ServerState, args: Args<'_>) -> Reply {
    Reply::Bytes(args.get(1).unwrap_or_default().to_vec())
}

/// Frameworks select a database in their configuration, and there is only one ledger.
fn select(_: &mut Session, _: &ServerState, args: Args<'_>) -> Reply {
    match integer(args.get(1).unwrap_or_default()) {
        Ok(0..=15) => Reply::OK,
        Ok(_) => Reply::err("DB index is out of range"),
        Err(error) => error,
    }
}
