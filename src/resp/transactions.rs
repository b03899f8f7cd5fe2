//! `MULTI`, `EXEC`, `DISCARD`, `WATCH`.

use super::batch;
use super::door::Door;
use super::keyed::Keyed;
use super::parser::Args;
use super::reply::Reply;
use super::session::{Queued, Session, Transaction};
use crate::task::TaskKey;

/// Most keys that are watched.
const WATCHED_MAX: usize = 1_000;

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
pub async fn exec(session: &mut Session, door: &Door) -> Reply {
    let Some(transaction) = session.transaction.take() else {
        return Reply::err("EXEC without MULTI");
    };
    let watched = std::mem::take(&mut session.watched);
    if transaction.is_broken {
        let text = "EXECABORT Transaction discarded because of previous errors.";
        return Reply::Error(text.to_owned());
    }
    let commands: Vec<Keyed> = transaction
        .queued
        .iter()
        .filter_map(|queued| match queued {
            Queued::Keyed(keyed) => Some(keyed.clone()),
            Queued::Answered(_) => None,
        })
        .collect();
    let replies = match commands.is_empty() && watched.is_empty() {
        true => Ok(Some(Vec::new())),
        false => batch::transact(door, commands, watched).await,
    };
    let mut replies = match replies {
        Ok(Some(replies)) => replies.into_iter(),
        Ok(None) => return Reply::NullArray,
        Err(error) => return batch::failure(&error),
    };
    let all = transaction.queued.into_iter().map(|queued| match queued {
        Queued::Keyed(_) => replies.next().expect("one reply to one command"),
        Queued::Answered(reply) => reply,
    });
    Reply::Array(all.collect())
}

/// `WATCH`: remembers the rows as they are.
pub async fn watch(session: &mut Session, door: &Door, args: Args<'_>) -> Reply {
    if session.transaction.is_some() {
        return Reply::err("WATCH inside MULTI is not allowed");
    }
    let known = |key: &TaskKey| session.watched.iter().any(|(watched, _)| watched == key);
    let mut keys: Vec<TaskKey> = args.from(1).filter_map(super::keys::key).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.retain(|key| !known(key));
    if session.watched.len() + keys.len() > WATCHED_MAX {
        return Reply::err(format_args!("at most {WATCHED_MAX} keys can be watched"));
    }
    if keys.is_empty() {
        return Reply::OK;
    }
    match door.tasks.standing(&keys).await {
        Ok(rows) => {
            session.watched.extend(keys.into_iter().zip(rows));
            Reply::OK
        }
        Err(error) => batch::failure(&error),
    }
}
