//! Carries out batches of commands about tasks. Each task is written when this returns.

use std::collections::HashMap;

use super::door::Door;
use super::keyed::{Expiry, Keyed, Repeat, Set, When};
use super::keyspace::Keyspace;
use super::reply::Reply;
use crate::client::{ClientError, Receipt, Stands, Task, Wish};
use crate::ledger::{IfPending, SeriesRow};
use crate::task::{Due, TaskKey, UnixMs};

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
        let changed = |(key, row): &(TaskKey, Option<SeriesRow>)| rows[place[key]] != *row;
        if watched.iter().any(changed) {
            return (vec![Wish::Keep; names.len()], None);
        }
        let mut keyspace = Keyspace::new(now, &names, rows);
        let replies: Vec<Reply> = commands.iter().map(|it| keyspace.run(it)).collect();
        (keyspace.into_wishes(), Some(replies))
    };
    door.tasks.change(&keys, decide).await
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
    let has_policy = |set: &&Set| !matches!(set.when, When::Always);
    // With a policy, each command of a key depends on the one before.
    if repeats && last.len() < sets.len() && sets.iter().any(has_policy) {
        let replies = transact(door, commands.to_vec(), Vec::new()).await?;
        return Ok(replies.expect("nothing is watched"));
    }
    let mut tasks: Vec<(Task, Due)> = Vec::with_capacity(sets.len());
    let mut written = Vec::with_capacity(sets.len());
    for (index, set) in sets.iter().enumerate() {
        let is_last = !repeats || last[&set.key] == index;
        written.push(is_last.then_some(tasks.len()));
        if is_last {
            let ms = match set.expiry {
                Expiry::In(ms) => now.0.saturating_add(ms),
                Expiry::At(_) | Expiry::Keep => unreachable!("it is plain"),
            };
            let due = door.distinct_due(&set.key, UnixMs(ms));
            let policy = match set.when {
                When::Policy(policy) => policy,
                _ => IfPending::Move,
            };
            tasks.push((set.task.clone().if_pending(policy), Due::at(due)?));
        }
    }
    let receipts = door.tasks.create_many(tasks).await?;
    let replies = sets.iter().zip(written);
    Ok(replies
        .map(|(set, place)| match (place, set.answers_due) {
            (Some(place), true) => created(&receipts[place]),
            (None, _) | (_, false) => Reply::OK,
        })
        .collect())
}

fn created(receipt: &Receipt) -> Reply {
    match receipt.stands() {
        Stands::Asked | Stands::Kept => Reply::Int(receipt.due().0),
        Stands::Refused => Reply::Null,
    }
}

fn is_about_a_row(error: &ClientError) -> bool {
    match error {
        ClientError::Ledger(error) => error.is_about_a_row(),
        _ => true,
    }
}
