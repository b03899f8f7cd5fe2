//! Commands that Redis does not have: tasks with all their options, and as they are.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::auth::Scope;
use super::batch::failure;
use super::command::{Command, Run};
use super::door::Door;
use super::keyed::Keyed;
use super::keys::key;
use super::parser::Args;
use super::reply::Reply;
use super::session::Session;

/// The commands of this file.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command { name: "lapsed.cancel", arity: -2, scope: Scope::Schedule, run: Run::Keyed(cancel), keys: (1, -1, 1),
        summary: "Cancels tasks. Returns for each `cancelled`, `running` (it runs, and is not tried again) or null.",
        usage: "key [key ...]" },
    Command { name: "lapsed.show", arity: 2, scope: Scope::Read, run: Run::Later(show), keys: (1, 1, 1),
        summary: "Returns a task as JSON, as `lapsed show --json` prints it; null if there is none.",
        usage: "key" },
];

fn cancel(_: &Door, args: Args<'_>) -> Result<Keyed, Reply> {
    Ok(Keyed::Cancel(args.from(1).map(key).collect()))
}

fn show(_: &Session, door: &Arc<Door>, args: Args<'_>) -> BoxFuture<'static, Reply> {
    let (door, key) = (Arc::clone(door), args.get(1).and_then(key));
    async move {
        let Some(key) = key else {
            return Reply::Null;
        };
        match door.tasks.find(key).await {
            Ok(None) => Reply::Null,
            Ok(Some(task)) => match serde_json::to_string(&task) {
                Ok(json) => Reply::Text(json),
                Err(error) => Reply::err(format_args!("task cannot be written as JSON: {error}")),
            },
            Err(error) => failure(&error),
        }
    }
    .boxed()
}
