//! Carries out the commands of `EXEC` in one transaction of the ledger.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::actor::Actor;
use super::batch::{changed_bytes_max, is_too_large, keys_of, no_changes, note, verbs};
use super::keyed::Keyed;
use super::keyspace::{Entry, Keyspace, Needs};
use super::reply::Reply;
use super::watched::Watched;
use lapsed::client::ClientError;
use lapsed::ledger::RowSnapshot;
use lapsed::task::UnixMs;

/// Why a transaction is not carried out.
#[derive(Debug)]
pub enum Refused {
    /// Its replies would be too long.
    TooLong,
    /// The tasks that it changes are too large.
    TooLarge,
    /// The ledger has failed.
    Failed(ClientError),
}

/// Carries out commands in one transaction. `None`: one of the watched rows has changed.
///
/// # Errors
/// [`Refused`]: none took effect, unless the ledger did not answer.
///
/// # Cancel safety
/// Safe to drop: all commands take effect, or none.
pub async fn execute(
    actor: &Actor<'_>,
    commands: Vec<Keyed>,
    watched: Vec<Watched>,
    reply_bytes_max: usize,
) -> Result<Option<Vec<Reply>>, Refused> {
    let mut keys = Vec::with_capacity(watched.len() + commands.len());
    keys.extend(watched.iter().map(|watched| watched.key.clone()));
    keys.extend(keys_of(&commands));
    keys.sort_unstable();
    keys.dedup();
    let names = keys.clone();
    let needs = Arc::new(Needs::of(&keys, &commands));
    let mut seen_before: Vec<Option<Watched>> = vec![None; keys.len()];
    for watched in watched {
        if let Ok(place) = keys.binary_search(&watched.key) {
            seen_before[place] = Some(watched);
        }
    }
    let (watched, values) = (Arc::new(seen_before), Arc::new(Values::new(keys.len())));
    let (payloads, watching) = (Arc::clone(&needs), Arc::clone(&watched));
    // What is watched is read no further: another program may have made it long.
    let has_changed = Arc::new(AtomicBool::new(false));
    let changed = Arc::clone(&has_changed);
    let payload = move |place: usize| {
        !changed.load(Ordering::Relaxed) && (payloads[place].payload() || watching[place].is_some())
    };
    let (watches, counts) = (Arc::clone(&watched), Arc::clone(&values));
    let keep = move |place: usize, row: RowSnapshot| {
        let watched = watches[place].as_ref();
        let is_still = watched.is_none_or(|watched| watched.is_still(Some(&row)));
        if !is_still {
            has_changed.store(true, Ordering::Relaxed);
        }
        let mut entry = Entry::of(row, needs[place]);
        if counts.count(place, entry.value_bytes()) > reply_bytes_max {
            // Refused below, even if the value would be written over before it is answered.
            entry.forget_value();
        }
        (entry, is_still)
    };
    let decide = move |now: UnixMs, rows: Vec<Option<(Entry, bool)>>| {
        let nothing = |answer| (no_changes(names.len()), (answer, Vec::new()));
        let is_still = |(row, watched): (&Option<(Entry, bool)>, &Option<Watched>)| match row {
            Some((_, is_still)) => *is_still,
            None => watched.as_ref().is_none_or(|it| it.is_still(None)),
        };
        if !rows.iter().zip(watched.iter()).all(is_still) {
            return nothing(Some(None));
        }
        if values.total() > reply_bytes_max {
            return nothing(None);
        }
        let entries = rows.into_iter().map(|row| row.map(|(entry, _)| entry));
        let mut keyspace = Keyspace::new(now, &names, entries.collect());
        let (mut replies, mut bytes) = (Vec::with_capacity(commands.len()), 0);
        for command in &commands {
            let reply = keyspace.run(command);
            bytes += reply.bytes();
            if bytes > reply_bytes_max {
                return nothing(None);
            }
            replies.push(reply);
        }
        let changes = keyspace.into_changes();
        let verbs = verbs(&changes);
        (changes, (Some(Some(replies)), verbs))
    };
    let _turn = actor.server.turn(keys.len()).await;
    let bytes_max = changed_bytes_max(keys.len());
    let changed = actor
        .server
        .tasks
        .change_seen(&keys, bytes_max, payload, keep, decide);
    match changed.await {
        Ok((done, verbs)) => {
            note(actor, &verbs, &keys);
            done.ok_or(Refused::TooLong)
        }
        Err(error) if is_too_large(&error) => Err(Refused::TooLarge),
        Err(error) => Err(Refused::Failed(error)),
    }
}

/// Bytes of the values that were read for a transaction.
struct Values(Mutex<(Vec<usize>, usize)>);

impl Values {
    fn new(keys: usize) -> Self {
        Self(Mutex::new((vec![0; keys], 0)))
    }

    /// Counts the value of the key at a place, again if the transaction is repeated. Returns the bytes of all.
    fn count(&self, place: usize, bytes: usize) -> usize {
        let (each, total) = &mut *self.values();
        *total += bytes;
        *total -= std::mem::replace(&mut each[place], bytes);
        *total
    }

    fn total(&self) -> usize {
        self.values().1
    }

    fn values(&self) -> MutexGuard<'_, (Vec<usize>, usize)> {
        self.0.lock().expect("nothing panics while holding it")
    }
}
