//! `MULTI`, `EXEC`, `DISCARD`, `WATCH`.

use super::actor::Actor;
use super::batch;
use super::command::{Control, Registry, Run};
use super::error_code::ErrorCode;
use super::execute::{Refused, execute};
use super::introspection;
use super::keyed::Keyed;
use super::parser::Args;
use super::reply::Reply;
use super::server_state::ServerState;
use super::session::{Queued, Session, Transaction};
use super::watched::Watched;
use lapsed::client::ClientError;
use lapsed::ledger::RowSnapshot;
use lapsed::task::TaskKey;

/// Most keys that are watched.
const WATCHED_MAX: usize = 1_000;

/// Rows that are read at a time with their values, so that others are not kept waiting.
const READ_MAX: usize = 64;

/// Most bytes of the values of watched keys. `EXEC` reads them again, and nothing else is written meanwhile.
const WATCHED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Most bytes of the replies of a transaction.
pub const REPLIES_BYTES_MAX: usize = 4 * 1024 * 1024;

/// `MULTI`
pub fn multi(session: &mut Session) -> Reply {
    if session.transaction.is_some() {
        return Reply::err("MULTI calls can not be nested");
    }
    session.transaction = Some(Transaction::default());
    Reply::OK
}

/// `DISCARD`
pub fn discard(session: &mut Session) -> Reply {
    if session.transaction.take().is_none() {
        return Reply::err("DISCARD without MULTI");
    }
    session.watched.clear();
    Reply::OK
}

/// `EXEC`: one transaction of the ledger.
pub async fn exec(session: &mut Session, server: &ServerState, registry: &Registry) -> Reply {
    let Some(transaction) = session.transaction.take() else {
        return Reply::err("EXEC without MULTI");
    };
    let watched = std::mem::take(&mut session.watched);
    if transaction.is_broken {
        return aborted("of previous errors.");
    }
    let mut commands: Vec<Keyed> = Vec::new();
    // The replies in order; `None` for those of the ledger.
    let mut known: Vec<Option<Reply>> = Vec::with_capacity(transaction.queued.len());
    let mut bytes = 0;
    for queued in transaction.queued {
        let reply = match queued {
            Queued::Keyed(keyed) => {
                commands.push(keyed);
                None
            }
            Queued::Answered(reply) => Some(reply),
            Queued::Call(index, args) => Some(match registry.all()[index].run {
                Run::Now(answer) => answer(session, server, args.args()),
                Run::Control(Control::Describe) => introspection::describe(registry, args.args()),
                _ => Reply::err("this command is not allowed between MULTI and EXEC"),
            }),
        };
        bytes += reply.as_ref().map_or(0, Reply::bytes);
        known.push(reply);
        if bytes > REPLIES_BYTES_MAX {
            return too_long();
        }
    }
    let replies = match commands.is_empty() && watched.is_empty() {
        true => Ok(Some(Vec::new())),
        false => {
            let actor = Actor::new(server, session.user.as_deref(), session.address);
            execute(&actor, commands, watched, REPLIES_BYTES_MAX - bytes).await
        }
    };
    let mut replies = match replies {
        Ok(Some(replies)) => replies.into_iter(),
        Ok(None) => return Reply::NullArray,
        Err(Refused::TooLong) => return too_long(),
        Err(Refused::TooLarge) => {
            let most = batch::CHANGED_BYTES_MAX;
            return aborted(&format!("it changes tasks of more than {most} bytes"));
        }
        Err(Refused::Failed(error)) => return batch::failure(&error),
    };
    let all = known.into_iter().map(|known| {
        let reply = known.or_else(|| replies.next());
        reply.expect("one reply to one command")
    });
    Reply::Array(all.collect())
}

fn too_long() -> Reply {
    aborted(&format!(
        "its replies have more than {REPLIES_BYTES_MAX} bytes"
    ))
}

/// The error for a transaction that is not carried out.
pub fn aborted(why: &str) -> Reply {
    Reply::error(
        ErrorCode::ExecAbort,
        format_args!("Transaction discarded because {why}"),
    )
}

/// `WATCH`: remembers the rows as they are.
pub async fn watch(session: &mut Session, server: &ServerState, args: Args<'_>) -> Reply {
    if session.transaction.is_some() {
        return Reply::err("WATCH inside MULTI is not allowed");
    }
    let mut keys: Vec<TaskKey> = args.from(1).filter_map(super::keys::key).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.retain(|key| !session.watched.iter().any(|known| known.key == *key));
    if session.watched.len() + keys.len() > WATCHED_MAX {
        return Reply::err(format_args!("at most {WATCHED_MAX} keys can be watched"));
    }
    let left = WATCHED_BYTES_MAX - bytes_of(&session.watched);
    match read(server, keys, left).await {
        Ok(Some(watched)) => {
            session.watched.extend(watched);
            Reply::OK
        }
        Ok(None) => Reply::err(format_args!(
            "the values of watched keys have more than {WATCHED_BYTES_MAX} bytes"
        )),
        Err(error) => batch::failure(&error),
    }
}

/// Reads the rows of keys. `None` if their values have more than `bytes_max` bytes.
async fn read(
    server: &ServerState,
    keys: Vec<TaskKey>,
    bytes_max: usize,
) -> Result<Option<Vec<Watched>>, ClientError> {
    let mut watched = Vec::with_capacity(keys.len());
    for part in keys.chunks(READ_MAX) {
        let _turn = server.turn(part.len()).await;
        let names = part.to_vec();
        let keep = move |place: usize, row: RowSnapshot| Watched::new(&names[place], Some(&row));
        let rows = server.tasks.look(part, |_| true, keep).await?;
        let seen = rows.into_iter().zip(part);
        watched.extend(seen.map(|(row, key)| row.unwrap_or_else(|| Watched::new(key, None))));
        if bytes_of(&watched) > bytes_max {
            return Ok(None);
        }
    }
    Ok(Some(watched))
}

fn bytes_of(watched: &[Watched]) -> usize {
    watched.iter().map(Watched::bytes).sum()
}
