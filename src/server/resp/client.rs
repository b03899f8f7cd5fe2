//! `CLIENT`: names and facts of connections.

use super::command::{Command, Run, integer, is, syntax_error, unknown_subcommand};
use super::control::{NAME_ERROR, client_name};
use super::parser::Args;
use super::reply::Reply;
use super::server_state::ServerState;
use super::session::Session;

/// The commands of this file.
pub const COMMANDS: &[Command] = &[Command {
    name: "client",
    arity: -2,
    scope: None,
    run: Run::Now(client),
    keys: (0, 0, 0),
    summary: "Names the connection, and tells about it.",
    usage: "ID | INFO | LIST | GETNAME | SETNAME name | SETINFO LIB-NAME | LIB-VER value | NO-EVICT ON | OFF | NO-TOUCH ON | OFF",
}];

const HELP: [&str; 9] = [
    "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GETNAME: the name of this connection.",
    "ID: the number of this connection.",
    "INFO: facts about this connection.",
    "LIST: as INFO; other connections are not shown.",
    "NO-EVICT (ON|OFF), NO-TOUCH (ON|OFF): accepted, without effect.",
    "SETINFO <option> <value>: LIB-NAME or LIB-VER of this connection.",
    "SETNAME <name>: names this connection.",
    "HELP: this text.",
];

/// Subcommands with their numbers of arguments, as in the table of commands.
const SUBCOMMANDS: [(&str, i32); 11] = [
    ("GETNAME", 2),
    ("ID", 2),
    ("INFO", 2),
    ("LIST", -2),
    ("SETNAME", 3),
    ("SETINFO", 4),
    ("NO-EVICT", 3),
    ("NO-TOUCH", 3),
    ("REPLY", 3),
    ("TRACKING", -3),
    ("HELP", 2),
];

/// The error for an unknown subcommand, or a wrong number of arguments.
pub fn refusal(args: Args<'_>) -> Option<Reply> {
    subcommand(args).err()
}

fn subcommand(args: Args<'_>) -> Result<&'static str, Reply> {
    let sub = args.get(1).unwrap_or_default();
    let found = SUBCOMMANDS.into_iter().find(|(name, _)| is(sub, name));
    let (name, arity) = found.ok_or_else(|| unknown_subcommand("client", sub))?;
    let fits = match arity {
        at_least if at_least < 0 => args.len() as i32 >= -at_least,
        exactly => args.len() as i32 == exactly,
    };
    match fits {
        true => Ok(name),
        false => Err(super::command::wrong_arity(&format!(
            "client|{}",
            name.to_lowercase()
        ))),
    }
}

fn client(session: &mut Session, _: &ServerState, args: Args<'_>) -> Reply {
    let arg = |index| args.get(index).unwrap_or_default();
    let name = match subcommand(args) {
        Ok(name) => name,
        Err(error) => return error,
    };
    match name {
        "ID" => Reply::Int(session.id.cast_signed()),
        "GETNAME" if session.name.is_empty() => Reply::Null,
        "GETNAME" => Reply::Text(session.name.clone()),
        "SETNAME" => match client_name(arg(2)) {
            Some(name) => {
                session.name = name;
                Reply::OK
            }
            None => Reply::err(NAME_ERROR),
        },
        "SETINFO" => set_info(session, arg(2), arg(3)),
        "INFO" => Reply::Verbatim(facts(session) + "\n"),
        "LIST" => list(session, args),
        "NO-EVICT" | "NO-TOUCH" if is(arg(2), "ON") || is(arg(2), "OFF") => Reply::OK,
        "REPLY" if is(arg(2), "ON") => Reply::OK,
        "REPLY" => Reply::err("CLIENT REPLY OFF and SKIP are not supported"),
        "TRACKING" if is(arg(2), "OFF") => Reply::OK,
        "TRACKING" => Reply::err("CLIENT TRACKING is not supported: nothing is cached"),
        "HELP" => Reply::Array(HELP.map(Reply::Status).to_vec()),
        _ => syntax_error(),
    }
}

fn set_info(session: &mut Session, option: &[u8], value: &[u8]) -> Reply {
    let (place, name) = match option {
        option if is(option, "LIB-NAME") => (&mut session.lib_name, "lib-name"),
        option if is(option, "LIB-VER") => (&mut session.lib_version, "lib-ver"),
        option => {
            let option = String::from_utf8_lossy(&option[..option.len().min(128)]);
            return Reply::err(format_args!("Unrecognized option '{option}'"));
        }
    };
    match client_name(value) {
        Some(value) => {
            *place = value;
            Reply::OK
        }
        None => Reply::err(format_args!(
            "{name} cannot contain spaces, newlines or special characters."
        )),
    }
}

/// `CLIENT LIST [TYPE type] [ID id ..]`, of this connection only.
fn list(session: &Session, args: Args<'_>) -> Reply {
    let is_meant = match args.get(2) {
        None => true,
        Some(option) if is(option, "TYPE") && args.len() == 4 => {
            args.get(3).is_some_and(|kind| is(kind, "normal"))
        }
        Some(option) if is(option, "ID") && args.len() > 3 => {
            let mut ids = args.from(3).map(integer);
            ids.any(|id| id == Ok(session.id.cast_signed()))
        }
        Some(_) => return syntax_error(),
    };
    Reply::Verbatim(if is_meant {
        facts(session) + "\n"
    } else {
        String::new()
    })
}

fn facts(session: &Session) -> String {
    let multi = session.transaction.as_ref().map(|it| it.queued.len());
    format!(
        "id={} addr={} laddr={} name={} age={} idle=0 flags=N db=0 sub={} psub={} ssub=0 multi={} watch={} resp={} user={} lib-name={} lib-ver={}",
        session.id,
        session.address,
        session.local,
        session.name,
        session.since.elapsed().as_secs(),
        session.subscriptions.channels.len(),
        session.subscriptions.patterns.len(),
        multi.map_or(-1, |count| i64::try_from(count).unwrap_or(i64::MAX)),
        session.watched.len(),
        session.protocol.version(),
        session.user.as_ref().map_or("", |user| &user.name),
        session.lib_name,
        session.lib_version,
    )
}
