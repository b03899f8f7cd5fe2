//! `COMMAND`: describes the commands, for clients that complete or route them.

use super::command::{COUNTED, Command, Registry, Run, is, unknown_subcommand, wrong_arity};
use super::parser::Args;
use super::reply::Reply;
use lapsed_core::access::AccessScope as Scope;

/// Most commands that are described in one reply to a client that names them.
const NAMED_MAX: usize = 256;

/// The error for an unknown subcommand, a wrong number of arguments, or too many names.
pub fn refusal(args: Args<'_>) -> Option<Reply> {
    let sub = args.get(1)?;
    let known = ["COUNT", "LIST", "INFO", "DOCS", "GETKEYS"];
    let Some(name) = known.into_iter().find(|name| is(sub, name)) else {
        return Some(unknown_subcommand("command", sub));
    };
    match name {
        "GETKEYS" if args.len() < 3 => Some(wrong_arity("command|getkeys")),
        "INFO" | "DOCS" if args.len() > NAMED_MAX => Some(Reply::err(format_args!(
            "expected at most {NAMED_MAX} names of commands"
        ))),
        _ => None,
    }
}

/// `COMMAND`, `COMMAND COUNT`, `LIST`, `INFO`, `DOCS`, `GETKEYS`.
pub fn describe(registry: &Registry, args: Args<'_>) -> Reply {
    if let Some(error) = refusal(args) {
        return error;
    }
    let Some(sub) = args.get(1) else {
        return Reply::Array(registry.all().iter().map(info).collect());
    };
    let find = |name: &[u8]| registry.find(name).map(|(_, command)| command);
    match sub {
        sub if is(sub, "COUNT") => Reply::Int(registry.all().len().try_into().unwrap_or(i64::MAX)),
        sub if is(sub, "LIST") => {
            let names = registry.all().iter().map(|it| Reply::Static(it.name));
            Reply::Array(names.collect())
        }
        sub if is(sub, "INFO") && args.len() == 2 => {
            Reply::Array(registry.all().iter().map(info).collect())
        }
        sub if is(sub, "INFO") => {
            let infos = args
                .from(2)
                .map(|name| find(name).map_or(Reply::Null, info));
            Reply::Array(infos.collect())
        }
        sub if is(sub, "DOCS") => {
            let asked: Vec<&Command> = match args.len() {
                2 => registry.all().iter().collect(),
                _ => args.from(2).filter_map(find).collect(),
            };
            let docs = asked
                .into_iter()
                .map(|it| (Reply::Static(it.name), docs(it)));
            Reply::Map(docs.collect())
        }
        sub if is(sub, "GETKEYS") => match find(args.get(2).unwrap_or_default()) {
            None => Reply::err("Invalid command specified"),
            Some(command) if command.keys.0 == 0 => Reply::err("The command has no key arguments"),
            Some(command) if !command.takes(args.len() - 2) => {
                Reply::err("Invalid number of arguments specified for command")
            }
            Some(command) => keys(command, args),
        },
        sub => unknown_subcommand("command", sub),
    }
}

fn keys(command: &Command, args: Args<'_>) -> Reply {
    let places = command.key_places(args, 2);
    let keys = places.filter_map(|place| args.get(2 + place));
    Reply::Array(keys.map(|key| Reply::Bytes(key.to_vec())).collect())
}

fn flags(command: &Command) -> Vec<&'static str> {
    let mut flags = Vec::new();
    match command.scope {
        Some(Scope::Read) => flags.push("readonly"),
        Some(_) => flags.push("write"),
        None if command.is_open() => flags.push("no_auth"),
        None => {}
    }
    if command.keys.1 == COUNTED {
        flags.push("movablekeys");
    }
    match command.run {
        Run::Blocking(_) => flags.push("blocking"),
        Run::Now(_) => flags.push("fast"),
        Run::Keyed(_) | Run::Later(_) | Run::Joined(_) | Run::Control(_) => {}
    }
    flags
}

fn group(command: &Command) -> &'static str {
    match command.scope {
        _ if command.name.starts_with("lapsed.") => "module",
        None => "connection",
        Some(_) => "generic",
    }
}

/// As in Redis 7: name, arity, flags, keys, categories, tips, key specifications, subcommands.
fn info(command: &Command) -> Reply {
    let (first, last, step) = match command.keys {
        (_, COUNTED, _) => (0, 0, 0),
        keys => keys,
    };
    let flags = flags(command).into_iter().map(Reply::Status);
    Reply::Array(vec![
        Reply::Static(command.name),
        Reply::Int(i64::from(command.arity)),
        Reply::Set(flags.collect()),
        Reply::Int(i64::from(first)),
        Reply::Int(i64::from(last)),
        Reply::Int(i64::from(step)),
        Reply::Set(Vec::new()),
        Reply::Array(Vec::new()),
        Reply::Array(Vec::new()),
        Reply::Array(Vec::new()),
    ])
}

/// The usage is one argument, since `redis-cli` shows its name as it is.
fn docs(command: &Command) -> Reply {
    let field = |name, value| (Reply::Static(name), Reply::Static(value));
    let mut docs = vec![
        field("summary", command.summary),
        field("since", env!("CARGO_PKG_VERSION")),
        field("group", group(command)),
    ];
    if !command.usage.is_empty() {
        let argument = vec![
            field("name", command.usage),
            field("type", "string"),
            field("display_text", command.usage),
        ];
        docs.push((
            Reply::Static("arguments"),
            Reply::Array(vec![Reply::Map(argument)]),
        ));
    }
    Reply::Map(docs)
}
