//! Carries out batches of commands about tasks. Each task is written when this returns.

use std::collections::HashMap;

use super::door::Door;
use super::keyed::{Expiry, Keyed, Repeat, Set};
use super::keyspace::Keyspace;
use super::reply::Reply;
use crate::client::{ClientError, Receipt, Task, Wish};
use crate::ledger::SeriesRow;
use crate::task::{Due, State, TaskKey, UnixMs};

/// Carries out commands in order, as one statement or transaction where possible. Returns their replies.
///
/// # Cancel safety
/// Safe to drop: some commands may take effect.
pub async fn run(door: &Door, commands: Vec<Keyed>) -> Vec<Reply> {
    let is_repeat = |command: &Keyed| matches!(command, Keyed::Repeat(_));
    if !commands.iter().any(is_repeat) {
        return run_as_one(door, &commands).await;
    }
    let mut replies = Vec::with_capacity(commands.len());
    for part in commands.chunk_by(|one, other| is_repeat(one) == is_repeat(other)) {
        for command in part {
            match command {
                Keyed::Repeat(repeat) => replies.push(establish(door, repeat).await),
                _ => {
                    replies.extend(run_as_one(door, part).await);
                    break;
                }
            }
        }
    }
    replies
}

async fn establish(door: &Door, repeat: &Repeat) -> Reply {
    let (task, recurrence) = (repeat.task.clone(), repeat.recurrence.clone());
    match door.tasks.create_recurring(task, recurrence).await {
        Ok(receipt) => Reply::Int(receipt.due().0),
        Err(error) => failure(&error),
    }
}

async fn run_as_one(door: &Door, commands: &[Keyed]) -> Vec<Reply> {
    let result = attempt(door, commands).await;
    match result {
        Ok(replies) => replies,
        // One key is locked, or the ledger cannot hold it: the others must not fail with it.
        Err(error) if commands.len() > 1 && is_about_a_row(&error) => {
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
        Err(error) => vec![failure(&error); commands.len()],
    }
}

/// Carries out commands in one transaction. `None`: one of the watched rows has changed.
///
/// # Errors
/// [`ClientError`]: none took effect, unless the ledger did not answer.
///
/// # Cancel safety
/// Safe to drop: all commands take effect, or none.
pub async fn transact(
    door: &Door,
    commands: Vec<Keyed>,
    watched: Vec<(TaskKey, Option<SeriesRow>)>,
) -> Result<Option<Vec<Reply>>, ClientError> {
    let mut keys = keys_of(&commands);
    for (key, _) in &watched {
        if !keys.contains(key) {
            keys.push(key.clone());
        }
    }
    let names = keys.clone();
    let decide = move |now: UnixMs, rows: &[Option<SeriesRow>]| {
        let place: HashMap<&TaskKey, usize> = names.iter().zip(0..).collect();
        let changed = |(key, row): &(TaskKey, Option<SeriesRow>)| {
            settled_state(rows[place[key]].clone()) != settled_state(row.clone())
        };
        if watched.iter().any(changed) {
            return (vec![Wish::Keep; names.len()], None);
        }
        let mut keyspace = Keyspace::new(now, &names, rows);
        let replies: Vec<Reply> = commands.iter().map(|it| keyspace.run(it)).collect();
        (keyspace.into_wishes(), Some(replies))
    };
    door.tasks.change(&keys, decide).await
}

/// The row without what passing time changes: a retry that becomes due is no change of the key.
fn settled_state(row: Option<SeriesRow>) -> Option<SeriesRow> {
    row.map(|mut row| {
        if row.lookup.state == State::Waiting {
            row.lookup.state = State::Pending;
        }
        row
    })
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
        let (now, rows) = match keys.is_empty() {
            true => (UnixMs(0), Vec::new()),
            false => (door.tasks.now().await?, door.tasks.standing(&keys).await?),
        };
        let mut keyspace = Keyspace::new(now, &keys, &rows);
        return Ok(commands.iter().map(|it| keyspace.run(it)).collect());
    }
    let replies = transact(door, commands.to_vec(), Vec::new()).await?;
    Ok(replies.expect("nothing is watched"))
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
            tasks.push((set.task.clone().replacing(), Due::at(due_of(set, now))?));
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
                let replies = transact(door, vec![again], Vec::new()).await?;
                replies.and_then(|mut one| one.pop()).unwrap_or(Reply::OK)
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

fn is_about_a_row(error: &ClientError) -> bool {
    match error {
        ClientError::Ledger(error) => error.is_about_a_row(),
        _ => true,
    }
}
