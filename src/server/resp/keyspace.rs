//! Evaluates a batch of commands against ledger rows. Pure: rows in, replies and changes out.
//!
//! A key exists from its creation until its task starts, while it waits for a retry, too. A task that runs has expired, as
//! Redis sees it; one that was armed anew meanwhile exists, and starts after that run.

use std::collections::HashMap;

use super::keyed::{
    Expiry, Key, Keyed, NEEDS_DUE_TIME, NOT_IN_TRANSACTION, OnlyIf, Set, When, digest_of,
};
use super::reply::Reply;
use lapsed::client::Request;
use lapsed::ledger::{Change, IfPending, NewTask, RowSnapshot};
use lapsed::task::{Envelope, State, TaskKey, UnixMs};

/// The tasks of a batch of commands.
pub struct Keyspace<'a> {
    now: UnixMs,
    entries: Vec<Entry>,
    index: HashMap<&'a TaskKey, usize>,
}

/// What commands need of a row beside its state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// A command answers its value.
    value: bool,
    /// A command may repeat the request that has created it.
    request: bool,
}

impl Needs {
    /// True if the payload is read.
    pub fn payload(self) -> bool {
        self.value || self.request
    }

    /// What commands need of the rows of `keys`, which are in order.
    pub fn of(keys: &[TaskKey], commands: &[Keyed]) -> Vec<Self> {
        let mut needs = vec![Self::default(); keys.len()];
        for command in commands {
            let value = command.reads_value();
            let mut sets = command.sets().iter();
            let request = sets.any(|set| matches!(set.expiry, Expiry::At(_)));
            if value || request {
                command.each_key(|key| {
                    if let Ok(place) = keys.binary_search(key) {
                        needs[place].value |= value;
                        needs[place].request |= request;
                    }
                });
            }
        }
        needs
    }
}

/// What is kept of a row.
pub struct Entry {
    /// The row has an arming that can be cancelled.
    is_open: bool,
    /// The row is running.
    runs: bool,
    /// The arming that has started or ended, and so cannot begin again.
    started: Option<Started>,
    task: Option<Present>,
    change: Change,
}

/// An arming that runs or has ended.
struct Started {
    due: UnixMs,
    /// What it was created with, if a command may repeat that.
    request: Option<Request>,
}

/// A task that has not started.
struct Present {
    due: UnixMs,
    due_at: UnixMs,
    /// The payload column, if a command may answer it.
    payload: Option<String>,
}

impl<'a> Keyspace<'a> {
    /// Takes what was kept of the rows of `keys`, in their order.
    pub fn new(now: UnixMs, keys: &'a [TaskKey], entries: Vec<Option<Entry>>) -> Self {
        Self {
            now,
            entries: entries
                .into_iter()
                .map(|entry| entry.unwrap_or_else(Entry::missing))
                .collect(),
            index: keys.iter().zip(0..).collect(),
        }
    }

    /// Returns what becomes of each task, in the order of the keys.
    pub fn into_changes(self) -> Vec<Change> {
        self.entries.into_iter().map(|entry| entry.change).collect()
    }

    /// Carries out a command.
    pub fn run(&mut self, command: &Keyed) -> Reply {
        let now = self.now;
        match command {
            Keyed::Set(set) => self.set(set),
            Keyed::SetAll { sets, when } => self.set_all(sets, when),
            Keyed::Repeat(_) => Reply::err(NOT_IN_TRANSACTION),
            Keyed::Get(key) => match self.present(key) {
                Some(task) => Reply::Text(value(task)),
                None => Reply::Null,
            },
            Keyed::Digest(key) => match self.present(key) {
                Some(task) => Reply::Text(format!("{:016x}", digest_of(&value(task)))),
                None => Reply::Null,
            },
            Keyed::Exists(keys) => self.count(keys, |entry| entry.task.is_some()),
            Keyed::Type(key) => Reply::Status(match self.present(key) {
                Some(_) => "string",
                None => "none",
            }),
            Keyed::Delete(keys) => self.count(keys, Entry::cancel),
            Keyed::DeleteIf {
                key,
                value: condition,
            } => {
                let task = self.present(key);
                let holds = task.is_some_and(|task| condition.holds(&value(task)));
                Reply::flag(holds && self.entry(key).is_some_and(Entry::cancel))
            }
            Keyed::Cancel(keys) => {
                let each = keys.iter().map(|key| match self.entry(key) {
                    None => Reply::Null,
                    Some(entry) => match (entry.cancel(), entry.runs) {
                        // Perhaps an older arming of the key: a run goes on in any case.
                        (_, true) => Reply::Static("running"),
                        (true, false) => Reply::Static("cancelled"),
                        (false, false) => Reply::Null,
                    },
                });
                Reply::Array(each.collect())
            }
            Keyed::Persist(key) => Reply::flag(self.entry(key).is_some_and(Entry::cancel)),
            Keyed::Expire { key, expiry, only } => {
                let due = match *expiry {
                    Expiry::In(ms) => UnixMs(now.0.saturating_add(ms)),
                    Expiry::At(ms) => UnixMs(ms),
                    Expiry::Keep => return Reply::Int(0),
                };
                let changed = self.entry(key).is_some_and(|it| it.expire(due, *only, now));
                Reply::flag(changed)
            }
            Keyed::Remaining {
                key,
                in_ms,
                absolute,
            } => {
                let Some(task) = self.present(key) else {
                    return Reply::Int(-2);
                };
                let ms = match absolute {
                    true => task.due_at.0,
                    false => task.due_at.0.saturating_sub(now.0).max(0),
                };
                Reply::Int(if *in_ms {
                    ms
                } else {
                    ms.saturating_add(500) / 1000
                })
            }
        }
    }

    fn set(&mut self, set: &Set) -> Reply {
        let now = self.now;
        let Some(index) = self.index.get(&set.key) else {
            return Reply::err("the key of the command was not read");
        };
        let entry = &mut self.entries[*index];
        let before = match set.get {
            true => {
                let before = entry.task.as_ref().map(value);
                Some(before.map_or(Reply::Null, Reply::Text))
            }
            false => None,
        };
        let is_there = entry.task.is_some();
        let stays = match &set.when {
            When::Always | When::Policy(IfPending::Move) => false,
            When::Missing | When::Policy(IfPending::Keep) => is_there,
            When::Present => !is_there,
            When::Value(condition) => match &entry.task {
                Some(task) => !condition.holds(&value(task)),
                None => !condition.is_negative(),
            },
            When::Policy(IfPending::Refuse) => is_there || entry.runs,
        };
        if stays {
            let kept = entry.task.as_ref().map(|task| Reply::Int(task.due_at.0));
            let is_kept = set.when == When::Policy(IfPending::Keep);
            return before.or(kept.filter(|_| is_kept)).unwrap_or(Reply::Null);
        }
        let due = match (set.expiry, &entry.task) {
            (Expiry::In(ms), _) => UnixMs(now.0.saturating_add(ms)),
            (Expiry::At(ms), _) => UnixMs(ms),
            (Expiry::Keep, Some(task)) => task.due_at,
            (Expiry::Keep, None) => return Reply::err(NEEDS_DUE_TIME),
        };
        let started = entry.started.as_ref().filter(|it| it.due == due);
        let is_repeated = |started: &Started| {
            matches!(set.expiry, Expiry::At(_))
                && started.request.as_ref() == Some(&Request::to_create(&set.task))
        };
        if started.is_some_and(is_repeated) && entry.task.is_none() {
            // The same request again, whose task must not run twice.
            return match (before, set.answers_due) {
                (Some(before), _) => before,
                (None, true) => Reply::Int(due.0),
                (None, false) => Reply::OK,
            };
        }
        // No arming begins twice: what is stored now is another one.
        let due = UnixMs(due.0.saturating_add(i64::from(started.is_some())));
        entry.change = Change::Write(Box::new(set.task.clone().due_at(due)));
        entry.task = Some(Present {
            due,
            due_at: due,
            payload: set.task.payload_text().map(str::to_owned),
        });
        match (before, set.answers_due) {
            (Some(before), _) => before,
            (None, true) => Reply::Int(due.0),
            (None, false) => Reply::OK,
        }
    }

    /// Writes all of them or none.
    fn set_all(&mut self, sets: &[Set], when: &When) -> Reply {
        let is_there = |set: &Set| {
            let entry = self
                .index
                .get(&set.key)
                .and_then(|index| self.entries.get(*index));
            entry.is_some_and(|entry| entry.task.is_some())
        };
        let stays = match when {
            When::Missing => sets.iter().any(is_there),
            When::Present => !sets.iter().all(is_there),
            When::Always | When::Value(_) | When::Policy(_) => false,
        };
        if stays {
            return Reply::Int(0);
        }
        let mut kept = sets.iter().filter(|set| set.expiry == Expiry::Keep);
        if !kept.all(is_there) {
            return Reply::err(NEEDS_DUE_TIME);
        }
        for set in sets {
            self.set(set);
        }
        Reply::Int(1)
    }

    fn entry(&mut self, key: &Key) -> Option<&mut Entry> {
        let index = self.index.get(key.as_ref()?)?;
        self.entries.get_mut(*index)
    }

    fn present(&mut self, key: &Key) -> Option<&Present> {
        self.entry(key)?.task.as_ref()
    }

    fn count(&mut self, keys: &[Key], mut counts: impl FnMut(&mut Entry) -> bool) -> Reply {
        let mut count = 0;
        for key in keys {
            count += i64::from(self.entry(key).is_some_and(&mut counts));
        }
        Reply::Int(count)
    }
}

impl Entry {
    /// There is no row.
    fn missing() -> Self {
        Self {
            is_open: false,
            runs: false,
            started: None,
            task: None,
            change: Change::Keep,
        }
    }

    /// Keeps of a row what the commands about it need.
    pub fn of(row: RowSnapshot, needs: Needs) -> Self {
        let state = row.lookup.state;
        let waits_for_run = row.lookup.older_run && !row.lookup.cancelling;
        let is_pending = state.is_pending() || waits_for_run;
        let runs = state == State::Running;
        let has_started = match state {
            State::Running => !row.lookup.older_run,
            State::Done | State::Dead => true,
            State::Pending | State::Waiting | State::Cancelled => false,
        };
        let (due, due_at) = (row.lookup.arming.due, row.lookup.due_at);
        let started = has_started.then(|| Started {
            due,
            request: needs.request.then(|| Request::of(&row)),
        });
        let payload = row.contents.payload.filter(|_| needs.value);
        let task = is_pending.then_some(Present {
            due,
            due_at,
            payload,
        });
        Self {
            is_open: is_pending || runs,
            runs,
            started,
            task,
            change: Change::Keep,
        }
    }

    /// Bytes of the value.
    pub fn value_bytes(&self) -> usize {
        let payload = self.task.as_ref().and_then(|task| task.payload.as_ref());
        payload.map_or(0, String::len)
    }

    /// Forgets the value.
    pub fn forget_value(&mut self) {
        if let Some(task) = &mut self.task {
            task.payload = None;
        }
    }

    /// Returns true if a task will not start because of this. A run that has begun goes on, but is the last.
    fn cancel(&mut self) -> bool {
        self.change = match self.is_open {
            true => Change::Cancel,
            false => Change::Keep,
        };
        self.task.take().is_some()
    }

    fn expire(&mut self, due: UnixMs, only: OnlyIf, now: UnixMs) -> bool {
        let Some(task) = &mut self.task else {
            return false;
        };
        // Every task has a due time.
        let refused =
            only.none || (only.later && due <= task.due_at) || (only.earlier && due >= task.due_at);
        if refused {
            return false;
        }
        // As in Redis: an expiry in the past deletes the key.
        if due <= now {
            return self.cancel();
        }
        (task.due, task.due_at) = (due, due);
        self.change = match std::mem::replace(&mut self.change, Change::Keep) {
            Change::Write(task) => Change::Write(Box::new(NewTask { due, ..*task })),
            Change::Keep | Change::Move(_) | Change::Cancel => Change::Move(due),
        };
        true
    }
}

/// The value that was set: the payload, or an empty text.
fn value(task: &Present) -> String {
    let payload = Envelope::open(task.payload.clone()).payload;
    payload.unwrap_or_default()
}
