//! The roster in Redis: a hash with a field for each member.

use async_trait::async_trait;

use super::{AUDIT_TURN, LIFETIME, MemberId, Note, Roster, RosterError, Turn, weight};
use crate::config::RedisConfig;
use crate::redis::{Board, Commands, Endpoint, Keyspace, RedisError};
use crate::task::UnixMs;

/// A note that has been over for so many lifetimes is removed by whoever sees it.
const LIFETIMES_KEPT: u32 = 20;

/// Most notes removed at once.
const REMOVED_AT_ONCE: usize = 64;

/// Before when the last audit began, once it is over.
const AUDITED: &str = "audited:";

const AUDIT: &str = "cannot ask whose turn it is to audit";

/// Notes in Redis, on a connection of their own: they must not queue behind a thousand keys being armed.
#[derive(Debug)]
pub struct RedisRoster(Board);

impl RedisRoster {
    /// Does no I/O. Members of another ledger are not seen; `ledger` is its name, the same for whoever uses it.
    ///
    /// # Errors
    /// When the URL cannot be read.
    pub fn new(redis: &RedisConfig, ledger: &str) -> Result<Self, RedisError> {
        let commands = Commands::new(Endpoint::new(redis)?);
        let ledger = format!("{:016x}", weight::fnv1a(ledger.as_bytes()));
        let keyspace = Keyspace::new(commands, &redis.key_prefix);
        Ok(Self(Board::new(keyspace, &ledger)))
    }
}

#[async_trait]
impl Roster for RedisRoster {
    async fn exchange(&self, own: &Note, now: UnixMs) -> Result<Vec<Note>, RosterError> {
        let found = self.0.post(&own.id.to_string(), &own.to_json()).await;
        let found = found.map_err(|error| told("cannot show this daemon to the others", error))?;
        let (mut notes, mut over) = (Vec::with_capacity(found.len()), Vec::new());
        for (id, json) in found {
            match Note::read(&id, &json) {
                Some(note) if note.until.plus(LIFETIMES_KEPT * LIFETIME) < now => over.push(id),
                Some(note) => notes.push(note),
                // Not ours to remove: it may be a newer version's.
                None => {}
            }
        }
        over.truncate(REMOVED_AT_ONCE);
        if !over.is_empty()
            && let Err(error) = self.0.remove(&over).await
        {
            tracing::debug!(%error, notes = over.len(), "could not remove the notes of daemons that are gone");
        }
        Ok(notes)
    }

    async fn leave(&self, id: MemberId) -> Result<(), RosterError> {
        let removed = self.0.remove(&[id.to_string().into_bytes()]).await;
        removed.map_err(|error| told("cannot take this daemon off the list", error))
    }

    async fn take_audit(&self, id: MemberId, since: UnixMs) -> Result<Turn, RosterError> {
        let me = id.to_string();
        let found = self.0.take_audit(&me, AUDIT_TURN).await;
        let found = found.map_err(|error| told(AUDIT, error))?;
        if found == me.as_bytes() {
            return Ok(Turn::Ours);
        }
        match over_since(&found) {
            None => Ok(Turn::Others),
            Some(began) if began >= since => Ok(Turn::Over),
            Some(_) => {
                let taken = self.0.set_audit(&me, AUDIT_TURN).await;
                taken.map_err(|error| told(AUDIT, error))?;
                Ok(Turn::Ours)
            }
        }
    }

    async fn audited(&self, _: MemberId, began: UnixMs) -> Result<(), RosterError> {
        let told_all = self
            .0
            .set_audit(&format!("{AUDITED}{}", began.0), AUDIT_TURN)
            .await;
        told_all.map_err(|error| told(AUDIT, error))
    }
}

/// When the audit began that this mark says is over; `None` if it is a holder's.
fn over_since(mark: &[u8]) -> Option<UnixMs> {
    let began = mark.strip_prefix(AUDITED.as_bytes())?;
    // What cannot be read serves nobody.
    let began = std::str::from_utf8(began)
        .ok()
        .and_then(|began| began.parse().ok());
    Some(UnixMs(began.unwrap_or(0)))
}

fn told(message: &str, error: RedisError) -> RosterError {
    RosterError::new(message, error.is_transient(), error)
}
