//! Carries out batches of commands about tasks. Each task is written when this returns.

use std::collections::HashMap;
use std::sync::Arc;

use super::actor::{Actor, Verb};
use super::keyed::{Expiry, Keyed, Set};
use super::keyspace::{Entry, Keyspace, Needs};
use super::pieces::{Whole, pieces};
use super::reply::Reply;
use lapsed::client::{ClientError, Receipt, Task};
use lapsed::contract::TaskRequest;
use lapsed::ledger::{Change, LedgerError};
use lapsed::task::{Due, State, TaskKey, UnixMs};

/// Carries out commands in order, as one statement or transaction where possible. Returns their replies.
///
/// # Cancel safety
/// Safe to drop: some commands may take effect.
pub async fn run(actor: &Actor<'_>, commands: Vec<Keyed>) -> Vec<Reply> {
    let is_alone =
        |command: &Keyed| matches!(command, Keyed::Repeat(_)) || command.keys() > PIECE_KEYS;
    if !commands.iter().any(is_alone) {
        return run_as_one(actor, &commands).await;
    }
    let mut replies = Vec::with_capacity(commands.len());
    for part in commands.chunk_by(|one, other| !is_alone(one) && !is_alone(other)) {
        match part {
            [Keyed::Repeat(request)] => replies.push(establish(actor, request).await),
            [long] if is_alone(long) => replies.push(in_pieces(actor, long).await),
            part => replies.extend(run_as_one(actor, part).await),
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
async fn in_pieces(actor: &Actor<'_>, command: &Keyed) -> Reply {
    let mut whole = Whole::of(command);
    for piece in pieces(command, PIECE_KEYS) {
        for reply in run_as_one(actor, &[piece]).await {
            if let Err(error) = whole.add(reply) {
                return error;
            }
        }
    }
    whole.reply()
}

async fn establish(actor: &Actor<'_>, request: &TaskRequest) -> Reply {
    match request.clone().create(&actor.server.tasks).await {
        Ok(receipt) => {
            actor.changed([("create", request.key())]);
            Reply::Int(receipt.due().0)
        }
        Err(error) => failure(&error),
    }
}

async fn run_as_one(actor: &Actor<'_>, commands: &[Keyed]) -> Vec<Reply> {
    let _turn = actor
        .server
        .turn(commands.iter().map(Keyed::keys).sum())
        .await;
    let result = attempt(actor, commands).await;
    match result {
        Ok(replies) => replies,
        Err(error) if is_too_large(&error) => in_small_parts(actor, commands).await,
        // One key is locked, or the ledger cannot hold it: the others must not fail with it.
        Err(error) if commands.len() > 1 && is_about_a_row(&error) => {
            one_by_one(actor, commands).await
        }
        Err(error) => vec![failure(&error); commands.len()],
    }
}

async fn one_by_one(actor: &Actor<'_>, commands: &[Keyed]) -> Vec<Reply> {
    let mut replies = Vec::with_capacity(commands.len());
    for command in commands {
        let one = attempt(actor, std::slice::from_ref(command)).await;
        replies.push(match one {
            Ok(mut one) => one.pop().expect("one reply to one command"),
            Err(error) => failure(&error),
        });
    }
    replies
}

/// Carries out commands about tasks that are too large to be changed together, a few keys at a time.
async fn in_small_parts(actor: &Actor<'_>, commands: &[Keyed]) -> Vec<Reply> {
    let mut replies = Vec::with_capacity(commands.len());
    for part in commands.chunks(SMALL_PIECE_KEYS) {
        if part.iter().map(Keyed::keys).sum::<usize>() <= SMALL_PIECE_KEYS {
            match attempt(actor, part).await {
                Ok(some) => replies.extend(some),
                Err(_) => replies.extend(one_by_one(actor, part).await),
            }
            continue;
        }
        for command in part {
            let mut whole = Whole::of(command);
            let done = async {
                for piece in pieces(command, SMALL_PIECE_KEYS) {
                    for reply in one_by_one(actor, &[piece]).await {
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

pub(super) fn changed_bytes_max(keys: usize) -> u64 {
    match keys {
        ..=SMALL_PIECE_KEYS => u64::MAX,
        _ => CHANGED_BYTES_MAX,
    }
}

/// Carries out commands of a batch in one transaction.
async fn transact(actor: &Actor<'_>, commands: Vec<Keyed>) -> Result<Vec<Reply>, ClientError> {
    let keys = keys_of(&commands);
    let names = keys.clone();
    let needs = Arc::new(Needs::of(&keys, &commands));
    let payloads = Arc::clone(&needs);
    let payload = move |place: usize| payloads[place].payload();
    let keep = move |place: usize, row| Entry::of(row, needs[place]);
    let decide = move |now: UnixMs, rows| {
        let mut keyspace = Keyspace::new(now, &names, rows);
        let replies: Vec<Reply> = commands.iter().map(|it| keyspace.run(it)).collect();
        let changes = keyspace.into_changes();
        let verbs = verbs(&changes);
        (changes, (replies, verbs))
    };
    let bytes_max = changed_bytes_max(keys.len());
    let changed = actor
        .server
        .tasks
        .change_seen(&keys, bytes_max, payload, keep, decide);
    let (replies, verbs) = changed.await?;
    note(actor, &verbs, &keys);
    Ok(replies)
}

/// Leaves this number of tasks as they are.
pub(super) fn no_changes(keys: usize) -> Vec<Change> {
    vec![Change::Keep; keys]
}

/// What the changes of keys are called in the audit log; `None` for a task that stays as it is.
pub(super) fn verbs(changes: &[Change]) -> Vec<Option<Verb>> {
    let verb = |change: &Change| match change {
        Change::Keep => None,
        Change::Write(..) => Some("create"),
        Change::Move(_) => Some("move"),
        Change::Cancel => Some("cancel"),
    };
    changes.iter().map(verb).collect()
}

pub(super) fn note(actor: &Actor<'_>, verbs: &[Option<Verb>], keys: &[TaskKey]) {
    let changes = verbs.iter().zip(keys);
    actor.changed(changes.filter_map(|(verb, key)| verb.map(|verb| (verb, key))));
}

/// The error for a failure of the ledger.
pub fn failure(error: &ClientError) -> Reply {
    Reply::err(error)
}

async fn attempt(actor: &Actor<'_>, commands: &[Keyed]) -> Result<Vec<Reply>, ClientError> {
    let plain = |command: &Keyed| match command {
        Keyed::Set(set) => set.is_plain(),
        _ => false,
    };
    if commands.iter().all(plain) {
        return create(actor, commands).await;
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
                actor.server.tasks.now().await?,
                actor.server.tasks.look(&keys, payload, keep).await?,
            ),
        };
        let mut keyspace = Keyspace::new(now, &keys, rows);
        return Ok(commands.iter().map(|it| keyspace.run(it)).collect());
    }
    transact(actor, commands.to_vec()).await
}

/// The different keys, in order: two transactions lock their rows in the same order.
pub(super) fn keys_of(commands: &[Keyed]) -> Vec<TaskKey> {
    let mut keys = Vec::with_capacity(commands.len());
    for command in commands {
        command.each_key(|key| keys.push(key.clone()));
    }
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Creates tasks in one statement. The last command of a key decides.
async fn create(actor: &Actor<'_>, commands: &[Keyed]) -> Result<Vec<Reply>, ClientError> {
    let sets: Vec<&Set> = commands.iter().flat_map(Keyed::sets).collect();
    let now = actor.server.tasks.now().await?;
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
    let receipts = actor.server.tasks.create_many(tasks).await?;
    let mut replies = Vec::with_capacity(sets.len());
    let is_again = |set: &Set, place: Option<usize>| {
        place.is_some_and(|place| has_started(&receipts[place], due_of(set, now)))
    };
    let plain = sets
        .iter()
        .zip(&written)
        .filter(|(set, place)| !is_again(set, **place));
    actor.changed(plain.map(|(set, _)| ("create", &set.key)));
    for (set, place) in sets.into_iter().zip(written) {
        let due = due_of(set, now);
        replies.push(match place {
            // It has run at this very time: whether that was this value, only its row tells.
            Some(_) if is_again(set, place) => {
                let expiry = Expiry::At(due.0);
                let again = Keyed::Set(Box::new(Set {
                    expiry,
                    ..set.clone()
                }));
                let mut replies = transact(actor, vec![again]).await?;
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

pub(super) fn is_too_large(error: &ClientError) -> bool {
    matches!(error, ClientError::Ledger(LedgerError::TooLarge { .. }))
}

fn is_about_a_row(error: &ClientError) -> bool {
    match error {
        ClientError::Ledger(error) => error.is_about_a_row(),
        _ => true,
    }
}
