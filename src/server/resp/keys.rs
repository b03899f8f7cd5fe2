//! Commands about keys: `DEL`, `EXISTS`, `TYPE`, `SCAN`.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::command::{Command, Run, integer, is, syntax_error};
use super::glob::Glob;
use super::keyed::{Key, Keyed};
use super::parser::Args;
use super::reply::Reply;
use super::server_state::ServerState;
use super::session::Session;
use lapsed::ledger::{ListCursor, ListFilter};
use lapsed::task::TaskKey;
use lapsed_core::access::{AccessScope as Scope, Principal};

type Parse = fn(&ServerState, Args<'_>) -> Result<Keyed, Reply>;

const fn keyed(
    name: &'static str,
    arity: i32,
    scope: Scope,
    parse: Parse,
    keys: (i32, i32, i32),
    usage: &'static str,
    summary: &'static str,
) -> Command {
    Command {
        name,
        arity,
        scope: Some(scope),
        run: Run::Keyed(parse),
        keys,
        summary,
        usage,
    }
}

/// The commands of this file.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    keyed("del", -2, Scope::Schedule, delete, (1, -1, 1), "key [key ...]", "Cancels tasks. Counts those that will not start."),
    keyed("unlink", -2, Scope::Schedule, delete, (1, -1, 1), "key [key ...]", "As DEL."),
    keyed("exists", -2, Scope::Read, exists, (1, -1, 1), "key [key ...]", "Counts keys with a task that has not started."),
    keyed("touch", -2, Scope::Read, exists, (1, -1, 1), "key [key ...]", "As EXISTS."),
    keyed("type", 2, Scope::Read, kind, (1, 1, 1), "key", "Returns `string` for a task that has not started, else `none`."),
    Command {
        name: "scan",
        arity: -2,
        scope: Some(Scope::Read),
        run: Run::Later(scan),
        keys: (0, 0, 0),
        summary: "Iterates over the keys of tasks that have not started.",
        usage: "cursor [MATCH pattern] [COUNT count] [TYPE type]",
    },
];

/// Returns the task key of an argument; `None` if no task can have it.
pub fn key(arg: &[u8]) -> Key {
    let text = std::str::from_utf8(arg).ok()?;
    TaskKey::parse(text).ok()
}

/// Returns the task key of an argument that a task is to be created with.
///
/// # Errors
/// An error that says what a key looks like.
pub fn new_key(arg: &[u8]) -> Result<TaskKey, Reply> {
    let text = std::str::from_utf8(arg).map_err(|_| {
        Reply::err("key is not UTF-8, expected `Class@method` and then any `@argument`")
    })?;
    TaskKey::parse(text).map_err(Reply::err)
}

fn delete(_: &ServerState, args: Args<'_>) -> Result<Keyed, Reply> {
    Ok(Keyed::Delete(args.from(1).map(key).collect()))
}

fn exists(_: &ServerState, args: Args<'_>) -> Result<Keyed, Reply> {
    Ok(Keyed::Exists(args.from(1).map(key).collect()))
}

fn kind(_: &ServerState, args: Args<'_>) -> Result<Keyed, Reply> {
    Ok(Keyed::Type(args.get(1).and_then(key)))
}

/// Keys that are compared with a pattern before others have their turn.
const YIELD_EVERY: u32 = 16;

/// Most tasks of one reply.
const COUNT_MAX: i64 = 1_000;

/// The cursor of `SCAN` is the row id behind which the next page begins, so the list is that of no filter but the prefix of
/// the pattern: it has the order of row ids.
fn scan(session: &Session, server: &Arc<ServerState>, args: Args<'_>) -> BoxFuture<'static, Reply> {
    let asked = Scan::parse(args);
    let (server, user) = (Arc::clone(server), session.user.clone());
    async move {
        match asked {
            Ok(asked) => asked.answer(&server, user.as_deref()).await,
            Err(error) => error,
        }
    }
    .boxed()
}

struct Scan {
    after: u64,
    pattern: Option<Glob>,
    count: u32,
    /// A type that no task has.
    is_empty: bool,
}

impl Scan {
    fn parse(args: Args<'_>) -> Result<Self, Reply> {
        let cursor = std::str::from_utf8(args.get(1).unwrap_or_default()).ok();
        let cursor = cursor.and_then(|text| text.parse().ok());
        let mut scan = Self {
            after: cursor.ok_or_else(|| Reply::err("invalid cursor"))?,
            pattern: None,
            count: 10,
            is_empty: false,
        };
        let mut at = 2;
        while let Some(option) = args.get(at) {
            let value = args.get(at + 1).ok_or_else(syntax_error)?;
            if is(option, "COUNT") {
                let count = integer(value)?;
                if count < 1 {
                    return Err(syntax_error());
                }
                scan.count = count.min(COUNT_MAX) as u32;
            } else if is(option, "MATCH") {
                scan.pattern = Some(Glob::new(value)?);
            } else if is(option, "TYPE") {
                scan.is_empty = !is(value, "string");
            } else {
                return Err(syntax_error());
            }
            at += 2;
        }
        Ok(scan)
    }

    async fn answer(self, server: &ServerState, user: Option<&Principal>) -> Reply {
        let (next, keys) = match self.is_empty {
            true => (0, Vec::new()),
            false => match self.page(server, user).await {
                Ok(page) => page,
                Err(error) => return super::batch::failure(&error),
            },
        };
        Reply::Array(vec![Reply::Text(next.to_string()), Reply::Array(keys)])
    }

    /// Rows that have finished are passed over: a page may be empty before the end, as in Redis.
    async fn page(
        &self,
        server: &ServerState,
        user: Option<&Principal>,
    ) -> Result<(u64, Vec<Reply>), lapsed::ClientError> {
        let filter = ListFilter {
            cursor: (self.after > 0).then_some(ListCursor::Row(self.after)),
            limit: self.count.max(100),
            brief: true,
            only: user.map_or_else(Vec::new, |user| user.classes.clone()),
            ..ListFilter::default()
        };
        let page = server.tasks.list(&filter).await?;
        let next = match page.next {
            Some(ListCursor::Row(row)) => row,
            _ => 0,
        };
        let tasks = page.tasks.iter().filter(|task| task.has_not_started());
        let mut keys = Vec::new();
        // The time of a comparison is that of both lengths multiplied: one `SCAN` at a time, and others of the runtime between.
        let _turn = match &self.pattern {
            Some(_) => server.scans.acquire().await.ok(),
            None => None,
        };
        for (task, number) in tasks.zip(1_u32..) {
            let key = match user {
                Some(user) => user.masks.shown(&task.key),
                None => task.key.clone(),
            };
            let name = format!("{}{key}", server.config.key_prefix);
            let fits = match &self.pattern {
                Some(pattern) => {
                    if number % YIELD_EVERY == 0 {
                        tokio::task::yield_now().await;
                    }
                    let bare = &name.as_bytes()[server.config.key_prefix.len()..];
                    pattern.matches(name.as_bytes()) || pattern.matches(bare)
                }
                None => true,
            };
            if fits {
                keys.push(Reply::Text(name));
            }
        }
        Ok((next, keys))
    }
}
