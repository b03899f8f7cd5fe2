//! The roster in Redis: a hash with a field for each member.

use async_trait::async_trait;

use super::{AUDIT_TURN, Audit, LIFETIME, MemberId, Note, Roster, RosterError, Turn, weight};
use crate::config::RedisConfig;
use crate::redis::{Board, Commands, Endpoint, Keyspace, LedgerName, RedisError};
use crate::task::UnixMs;

/// A note that has been over for so many lifetimes is removed by whoever sees it.
const LIFETIMES_KEPT: u32 = 20;

/// Most notes removed at once.
const REMOVED_AT_ONCE: usize = 64;

/// Before when the last audit began and the skills of its daemon, once it is finished.
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
    pub fn new(redis: &RedisConfig, ledger: LedgerName) -> Result<Self, RedisError> {
        let commands = Commands::new(Endpoint::new(redis)?);
        let plain = format!("{:016x}", weight::fnv1a(ledger.text().as_bytes()));
        let keyspace = Keyspace::new(commands, &redis.key_prefix);
        Ok(Self(Board::new(keyspace, ledger.with_plain(&plain))))
    }

    /// The notes of all daemons that still live at `now`, without showing one: for diagnosis.
    ///
    /// # Errors
    /// When Redis refuses or does not answer.
    pub async fn members(&self, now: UnixMs) -> Result<Vec<Note>, RedisError> {
        let found = self.0.read().await?;
        let notes = found
            .iter()
            .filter_map(|(id, json)| Note::read(id, json))
            .filter(|note| note.until >= now);
        Ok(notes.collect())
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
        let me = id.to_string();
        let given_up = self.0.give_up_audit(&me).await;
        let removed = self.0.remove(&[me.into_bytes()]).await;
        given_up
            .and(removed)
            .map_err(|error| told("cannot take this daemon off the list", error))
    }

    async fn hears(&self, id: MemberId) -> Result<bool, RosterError> {
        let hears = self.0.hears_hints(id.0).await;
        hears.map_err(|error| told("cannot ask whether another daemon is there", error))
    }

    async fn take_audit(&self, id: MemberId, wanted: Audit) -> Result<Turn, RosterError> {
        let me = id.to_string();
        let found = self.0.take_audit(&me, AUDIT_TURN).await;
        let found = found.map_err(|error| told(AUDIT, error))?;
        if found == me.as_bytes() {
            return Ok(Turn::Ours);
        }
        let Some(mark) = found.strip_prefix(AUDITED.as_bytes()) else {
            let holder = std::str::from_utf8(&found).ok();
            return Ok(Turn::Others(holder.and_then(MemberId::parse)));
        };
        match read_mark(mark) {
            Some(audit) if audit.serves(wanted) => Ok(Turn::Over),
            _ => {
                let taken = self.0.set_audit(&me, AUDIT_TURN).await;
                taken.map_err(|error| told(AUDIT, error))?;
                Ok(Turn::Ours)
            }
        }
    }

    async fn release_audit(&self, gone: MemberId) -> Result<(), RosterError> {
        let released = self.0.give_up_audit(&gone.to_string()).await;
        released.map_err(|error| told(AUDIT, error))
    }

    async fn audited(&self, _: MemberId, audit: Audit) -> Result<(), RosterError> {
        let Audit { began, skills } = audit;
        let mark = format!("{AUDITED}{}:{skills:016x}", began.0);
        let told_all = self.0.set_audit(&mark, AUDIT_TURN).await;
        told_all.map_err(|error| told(AUDIT, error))
    }
}

/// The finished audit that a mark tells of; `None` for what cannot be read, such as an older version's.
fn read_mark(mark: &[u8]) -> Option<Audit> {
    let (began, skills) = std::str::from_utf8(mark).ok()?.split_once(':')?;
    Some(Audit {
        began: UnixMs(began.parse().ok()?),
        skills: u64::from_str_radix(skills, 16).ok()?,
    })
}

fn told(message: &str, error: RedisError) -> RosterError {
    RosterError::new(message, error.is_transient(), error)
}
