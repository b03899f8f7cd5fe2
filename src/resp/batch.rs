//! Carries out batches of commands about tasks. Each task is written when this returns.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::door::Door;
use super::keyed::{Expiry, Key, Keyed, Set};
use super::keyspace::{Entry, Keyspace, Needs};
use super::reply::Reply;
use super::watched::Watched;
use crate::client::{ClientError, Receipt, Task};
use crate::contract::TaskRequest;
use crate::ledger::{Change, LedgerError, RowSnapshot};
use crate::task::{Due, State, TaskKey, UnixMs};

/// Carries out commands in order, as one statement or transaction where possible. Returns their replies.
///
/// # Cancel safety
/// Safe to drop: some commands may take effect.
pub async fn run(door: &Door, commands: Vec<Keyed>) -> Vec<Reply> {
    let is_alone =
        |command: &Keyed| matches!(command, Keyed::Repeat(_)) || command.keys() > PIECE_KEYS;
    if !commands.iter().any(is_alone) {
        return run_as_one(door, &commands).await;
    }
    let mut replies = Vec::with_capacity(commands.len());
    for part in commands.chunk_by(|one, other| !is_alone(one) && !is_alone(other)) {
        match part {
            [Keyed::Repeat(request)] => replies.push(establish(door, request).await),
            [long] if is_alone(long) => replies.push(in_pieces(door, long).await),
            part => replies.extend(run_as_one(door, part).await),
        }
    }
    replies
}

/// Keys of a command that are read or written at a time.
const PIECE_KEYS: usize = 1024;

/// Keys that are written together however large their tasks are.
const SMALL_PIECE_KEYS: usize = 32;

/// Most bytes of the tasks that are changed together, if they are more than [`SMALL_PIECE_KEYS`].
pub const CHANGED_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Carries out a command with many keys in pieces, so that others are not kept waiting. An error ends it: pieces before it
/// have taken effect.
async fn in_pieces(door: &Door, command: &Keyed) -> Reply {
    let mut whole = Whole::of(command);
    for piece in pieces(command, PIECE_KEYS) {
        for reply in run_as_one(door, &[piece]).await {
            if let Err(error) = whole.add(reply) {
                return error;
            }
        }
    }
    whole.reply()
}

/// Divides a command with many keys.
fn pieces(command: &Keyed, keys_max: usize) -> Vec<Keyed> {
    let (Keyed::Delete(keys) | Keyed::Exists(keys) | Keyed::Cancel(keys)) = command else {
        return vec![command.clone()];
    };
    let piece = |keys: &[Key]| match command {
        Keyed::Delete(_) => Keyed::Delete(keys.to_vec()),
        Keyed::Exists(_) => Keyed::Exists(keys.to_vec()),
        _ => Keyed::Cancel(keys.to_vec()),
    };
    keys.chunks(keys_max).map(piece).collect()
}

/// The reply to a command, from those to its pieces.
enum Whole {
    /// To a command that is not divided.
    One(Option<Reply>),
    Count(i64),
    Each(Vec<Reply>),
}

impl Whole {
    fn of(command: &Keyed) -> Self {
        match command {
            Keyed::Delete(_) | Keyed::Exists(_) => Self::Count(0),
            Keyed::Cancel(_) => Self::Each(Vec::new()),
            _ => Self::One(None),
        }
    }

    /// Adds the reply to a piece. Returns it if it is an error.
    fn add(&mut self, reply: Reply) -> Result<(), Reply> {
        match (self, reply) {
            (Self::One(one), reply) => *one = Some(reply),
            (Self::Count(count), Reply::Int(number)) => *count += number,
            (Self::Each(each), Reply::Array(replies)) => each.extend(replies),
            (_, error) => return Err(error),
        }
        Ok(())
    }

    fn reply(self) -> Reply {
        match self {
            Self::One(one) => one.expect("one reply to one command"),
            Self::Count(count) => Reply::Int(count),
            Self::Each(each) => Reply::Array(each),
        }
    }
}

async fn establish(door: &Door, request: &TaskRequest) -> Reply {
    match request.clone().create(&door.tasks).await {
        Ok(receipt) => Reply::Int(receipt.due().0),
        Err(error) => failure(&error),
    }
}

async fn run_as_one(door: &Door, commands: &[Keyed]) -> Vec<Reply> {
    let _turn = door.turn(commands.iter().map(Keyed::keys).sum()).await;
    let result = attempt(door, commands).await;
    match result {
        Ok(replies) => replies,
        Err(error) if is_too_large(&error) => divided(door, commands).await,
        // One key is locked, or the ledger cannot hold it: the others must not fail with it.
        Err(error) if commands.len() > 1 && is_about_a_row(&error) => {
            one_by_one(door, commands).await
        }
        Err(error) => vec![failure(&error); commands.len()],
    }
}

async fn one_by_one(door: &Door, commands: &[Keyed]) -> Vec<Reply> {
    let mut replies = Vec::with_capacity(commands.len());
    for command in commands {
        let one = attempt(door, std::slice::from_ref(command)).await;
        replies.push(match one {
            Ok(mut one) => one.pop().expect("one reply to one command"),
            Err(error) => failure(&error),
        });
    }
    replies
}

/// Carries out commands about tasks that are too large to be changed together, a few keys at a time.
async fn divided(door: &Door, commands: &[Keyed]) -> Vec<Reply> {
    let mut replies = Vec::with_capacity(commands.len());
    for part in commands.chunks(SMALL_PIECE_KEYS) {
        if part.iter().map(Keyed::keys).sum::<usize>() <= SMALL_PIECE_KEYS {
            match attempt(door, part).await {
                Ok(some) => replies.extend(some),
                Err(_) => replies.extend(one_by_one(door, part).await),
            }
            continue;
        }
        for command in part {
            let mut whole = Whole::of(command);
            let done = async {
                for piece in pieces(command, SMALL_PIECE_KEYS) {
                    for reply in one_by_one(door, &[piece]).await {
                        whole.add(reply)?;
                    }
                }
                Ok(whole.reply())
            };
            replies.push(done.await.unwrap_or_else(|error: Reply| error));
        }
    }
    replies
}

fn changed_bytes_max(keys: usize) -> u64 {
    match keys {
        ..=SMALL_PIECE_KEYS => u64::MAX,
        _ => CHANGED_BYTES_MAX,
    }
}

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
    door: &Door,
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
        let nothing = || vec![Change::Keep; names.len()];
        let is_still = |(row, watched): (&Option<(Entry, bool)>, &Option<Watched>)| match row {
            Some((_, is_still)) => *is_still,
            None => watched.as_ref().is_none_or(|it| it.is_still(None)),
        };
        if !rows.iter().zip(watched.iter()).all(is_still) {
            return (nothing(), Some(None));
        }
        if values.total() > reply_bytes_max {
            return (nothing(), None);
        }
        let entries = rows.into_iter().map(|row| row.map(|(entry, _)| entry));
        let mut keyspace = Keyspace::new(now, &names, entries.collect());
        let (mut replies, mut bytes) = (Vec::with_capacity(commands.len()), 0);
        for command in &commands {
            let reply = keyspace.run(command);
            bytes += reply.bytes();
            if bytes > reply_bytes_max {
                return (nothing(), None);
            }
            replies.push(reply);
        }
        (keyspace.into_changes(), Some(Some(replies)))
    };
    let _turn = door.turn(keys.len()).await;
    let bytes_max = changed_bytes_max(keys.len());
    let changed = door
        .tasks
        .change_seen(&keys, bytes_max, payload, keep, decide);
    match changed.await {
        Ok(done) => done.ok_or(Refused::TooLong),
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

/// Carries out commands of a batch in one transaction.
async fn transact(door: &Door, commands: Vec<Keyed>) -> Result<Vec<Reply>, ClientError> {
    let keys = keys_of(&commands);
    let names = keys.clone();
    let needs = Arc::new(Needs::of(&keys, &commands));
    let payloads = Arc::clone(&needs);
    let payload = move |place: usize| payloads[place].payload();
    let keep = move |place: usize, row| Entry::of(row, needs[place]);
    let decide = move |now: UnixMs, rows| {
        let mut keyspace = Keyspace::new(now, &names, rows);
        let replies: Vec<Reply> = commands.iter().map(|it| keyspace.run(it)).collect();
        (keyspace.into_changes(), replies)
    };
    let bytes_max = changed_bytes_max(keys.len());
    let changed = door
        .tasks
        .change_seen(&keys, bytes_max, payload, keep, decide);
    changed.await
}

/// The error for a failure of the ledger.
pub fn failure(error: &ClientError) -> Reply {
    Reply::err(error)
}

async fn attempt(door: &Door, commands: &[Keyed]) -> Result<Vec<Reply>, ClientError> {
    let plain = |command: &Keyed| match command {
        Keyed::Set(set) => set.is_plain(),
        _ => false,
    };
    if commands.iter().all(plain) {
        return create(door, commands).await;
    }
    let keys = keys_of(commands);
    if commands.iter().all(Keyed::only_reads) {
        let needs = Arc::new(Needs::of(&keys, commands));
        let payloads = Arc::clone(&needs);
        let payload = move |place: usize| payloads[place].payload();
        let keep = move |place: usize, row| Entry::of(row, needs[place]);
        let (now, rows) = match keys.is_empty() {
            true => (UnixMs(0), Vec::new()),
            false => (
                door.tasks.now().await?,
                door.tasks.look(&keys, payload, keep).await?,
            ),
        };
        let mut keyspace = Keyspace::new(now, &keys, rows);
        return Ok(commands.iter().map(|it| keyspace.run(it)).collect());
    }
    transact(door, commands.to_vec()).await
}

/// The different keys, in order: two transactions lock their rows in the same order.
fn keys_of(commands: &[Keyed]) -> Vec<TaskKey> {
    let mut keys = Vec::with_capacity(commands.len());
    for command in commands {
        command.each_key(|key| keys.push(key.clone()));
    }
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Creates tasks in one statement. The last command of a key decides.
async fn create(door: &Door, commands: &[Keyed]) -> Result<Vec<Reply>, ClientError> {
    let sets: Vec<&Set> = commands.iter().filter_map(Keyed::as_set).collect();
    let now = door.tasks.now().await?;
    let mut last: HashMap<&TaskKey, usize> = HashMap::with_capacity(sets.len());
    let repeats = sets.len() > 1;
    if repeats {
        last.extend(sets.iter().map(|set| &set.key).zip(0..));
    }
    let mut tasks: Vec<(Task, Due)> = Vec::with_capacity(sets.len());
    let mut written = Vec::with_capacity(sets.len());
    for (index, set) in sets.iter().enumerate() {
        let is_last = !repeats || last[&set.key] == index;
        written.push(is_last.then_some(tasks.len()));
        if is_last {
            tasks.push((set.task.clone(), Due::at(due_of(set, now))?));
        }
    }
    let receipts = door.tasks.create_many(tasks).await?;
    let mut replies = Vec::with_capacity(sets.len());
    for (set, place) in sets.into_iter().zip(written) {
        let due = due_of(set, now);
        replies.push(match place {
            // It has run at this very time: whether that was this value, only its row tells.
            Some(place) if has_started(&receipts[place], due) => {
                let expiry = Expiry::At(due.0);
                let again = Keyed::Set(Box::new(Set {
                    expiry,
                    ..set.clone()
                }));
                let mut replies = transact(door, vec![again]).await?;
                replies.pop().unwrap_or(Reply::OK)
            }
            Some(place) if set.answers_due => Reply::Int(receipts[place].due().0),
            None if set.answers_due => Reply::Int(due.0),
            Some(_) | None => Reply::OK,
        });
    }
    Ok(replies)
}

/// The due time of a plain command.
fn due_of(set: &Set, now: UnixMs) -> UnixMs {
    match set.expiry {
        Expiry::In(ms) => UnixMs(now.0.saturating_add(ms)),
        Expiry::At(_) | Expiry::Keep => unreachable!("it is plain"),
    }
}

/// True if the task of this receipt had started at this due time, perhaps before it was written.
fn has_started(receipt: &Receipt, due: UnixMs) -> bool {
    let has_started = match receipt.state() {
        State::Running => !receipt.older_run(),
        State::Done | State::Dead => true,
        State::Pending | State::Waiting | State::Cancelled => false,
    };
    has_started && receipt.due() == due
}

fn is_too_large(error: &ClientError) -> bool {
    matches!(error, ClientError::Ledger(LedgerError::TooLarge { .. }))
}

fn is_about_a_row(error: &ClientError) -> bool {
    match error {
        ClientError::Ledger(error) => error.is_about_a_row(),
        _ => true,
    }
}
