//! Commands: a name, how many words it takes, and what it does.

mod dumps;
mod hashes;
mod keys;
mod lists;
mod scripts;
pub(crate) mod server;
mod sets;
mod sorted;
mod streams;
mod strings;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use indexmap::IndexMap;

use crate::events::Class;
use crate::keyspace::{Bytes, Sorted, Value};
use crate::reply::Reply;
use crate::request::Words;
use crate::server::State;

pub(crate) const WRONG_TYPE: &str =
    "WRONGTYPE Operation against a key holding the wrong kind of value";
const SYNTAX: &str = "ERR syntax error";
const NO_INTEGER: &str = "ERR value is not an integer or out of range";
const NO_FLOAT: &str = "ERR value is not a valid float";

/// A command that runs on a database.
pub(crate) struct Call<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) db: u32,
    pub(crate) words: &'a Arc<Words>,
    pub(crate) is_script: bool,
}

/// The reply, or the text of an error.
pub(crate) type Answer = Result<Reply, String>;

/// How a command is called: what it does, how many words it has (at least, if negative), and whether it writes.
type Command = (fn(&mut Call<'_>) -> Answer, isize, bool);

fn command(name: &str) -> Option<Command> {
    let by_topic: &[fn(&str) -> Option<Command>] = &[
        strings::command,
        keys::command,
        hashes::command,
        lists::command,
        sets::command,
        sorted::command,
        streams::command,
        scripts::command,
        dumps::command,
        server::command,
    ];
    let of_connection: Option<Command> = match name {
        "select" => Some((refused_here, 2, false)),
        "watch" | "client" => Some((refused_here, -2, false)),
        "unwatch" => Some((refused_here, 1, false)),
        "quit" => Some((refused_here, -1, false)),
        _ => None,
    };
    of_connection.or_else(|| by_topic.iter().find_map(|of| of(name)))
}

fn refused_here(call: &mut Call<'_>) -> Answer {
    match call.is_script {
        true => Err("ERR This Redis command is not allowed from script".to_owned()),
        false => Ok(Reply::ok()),
    }
}

/// Refuses a command that Redis does not know, or with a wrong number of words.
pub(crate) fn check(words: &Words) -> Result<(), String> {
    find(words).map(drop)
}

fn find(words: &Words) -> Result<Command, String> {
    let name = String::from_utf8_lossy(&words[0]).into_owned();
    let lower = name.to_ascii_lowercase();
    let Some(command) = command(&lower) else {
        let named = words[1..].iter();
        let named = named.map(|word| format!("'{}' ", String::from_utf8_lossy(word)));
        let named = named.collect::<String>();
        return Err(format!(
            "ERR unknown command '{name}', with args beginning with: {named}"
        ));
    };
    let fits = match command.1 {
        exact @ 0.. => words.len() == exact.unsigned_abs(),
        least => words.len() >= least.unsigned_abs(),
    };
    match fits {
        true => Ok(command),
        false => Err(format!(
            "ERR wrong number of arguments for '{lower}' command"
        )),
    }
}

/// Runs a command on a database.
pub(crate) fn run_in(state: &mut State, db: u32, words: &Arc<Words>) -> Reply {
    let before = state.command.replace(Arc::clone(words));
    let reply = run(&mut Call {
        state,
        db,
        words,
        is_script: false,
    });
    state.command = before;
    reply
}

fn run(call: &mut Call<'_>) -> Reply {
    if call.words.is_empty() {
        return Reply::Error("ERR unknown command ''".to_owned());
    }
    let answer = find(call.words).and_then(|(run, _, writes)| match writes {
        true if call.state.is_replica => {
            Err("READONLY You can't write against a read only replica.".to_owned())
        }
        _ => run(call),
    });
    answer.unwrap_or_else(Reply::Error)
}

impl<'a> Call<'a> {
    /// The word at this place. The number of words was checked.
    pub(crate) fn word(&self, at: usize) -> &'a [u8] {
        let words: &'a Arc<Words> = self.words;
        words.get(at).map_or(&[], |word| word)
    }

    pub(crate) fn words_from(&self, at: usize) -> &'a [Bytes] {
        let words: &'a Arc<Words> = self.words;
        words.get(at..).unwrap_or_default()
    }

    /// The word in lower case, for options.
    pub(crate) fn option(&self, at: usize) -> String {
        String::from_utf8_lossy(self.word(at)).to_ascii_lowercase()
    }

    /// The name of the command in lower case.
    pub(crate) fn name(&self) -> String {
        self.option(0)
    }

    pub(crate) fn int(&self, at: usize) -> Result<i64, String> {
        int(self.word(at)).ok_or_else(|| NO_INTEGER.to_owned())
    }

    pub(crate) fn kind_or_missing<T>(
        &mut self,
        key: &[u8],
        read: impl FnOnce(&mut Value) -> Option<&mut T>,
    ) -> Result<Option<&mut T>, String> {
        match self.state.used(self.db, key) {
            None => Ok(None),
            Some(entry) => match read(&mut entry.value) {
                None => Err(WRONG_TYPE.to_owned()),
                found => Ok(found),
            },
        }
    }

    pub(crate) fn string(&mut self, key: &[u8]) -> Result<Option<&mut Bytes>, String> {
        self.kind_or_missing(key, |value| match value {
            Value::String(text) => Some(text),
            _ => None,
        })
    }

    pub(crate) fn hash(
        &mut self,
        key: &[u8],
    ) -> Result<Option<&mut IndexMap<Bytes, Bytes>>, String> {
        self.kind_or_missing(key, |value| match value {
            Value::Hash(hash) => Some(hash),
            _ => None,
        })
    }

    pub(crate) fn list(&mut self, key: &[u8]) -> Result<Option<&mut VecDeque<Bytes>>, String> {
        self.kind_or_missing(key, |value| match value {
            Value::List(list) => Some(list),
            _ => None,
        })
    }

    pub(crate) fn set(&mut self, key: &[u8]) -> Result<Option<&mut BTreeSet<Bytes>>, String> {
        self.kind_or_missing(key, |value| match value {
            Value::Set(set) => Some(set),
            _ => None,
        })
    }

    pub(crate) fn sorted(&mut self, key: &[u8]) -> Result<Option<&mut Sorted>, String> {
        self.kind_or_missing(key, |value| match value {
            Value::Sorted(sorted) => Some(sorted),
            _ => None,
        })
    }

    /// Says that something was removed from a key, and that the key is deleted if that was all.
    pub(crate) fn removed(
        &mut self,
        class: Class,
        event: &'static str,
        key: &[u8],
        is_empty: bool,
    ) {
        if is_empty {
            self.state.db(self.db).remove(key);
        }
        self.state.notify(class, event, self.db, key);
        if is_empty {
            self.state.notify(Class::Generic, "del", self.db, key);
        }
    }

    /// Writes an empty value if the key is missing.
    pub(crate) fn create(&mut self, key: &[u8], value: Value) {
        if self.state.used(self.db, key).is_none() {
            self.state.put(self.db, key, value, None);
        }
    }
}

/// Reads an integer as Redis does: no sign `+`, no leading zero, no space.
pub(crate) fn int(word: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(word).ok()?;
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// The range of places that Redis means by `start` and `end`, negative ones from the end.
pub(crate) fn span(start: i64, end: i64, length: usize) -> std::ops::Range<usize> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let place = |at: i64| if at < 0 { (length + at).max(0) } else { at };
    let end = if end < 0 {
        length + end
    } else {
        end.min(length - 1)
    };
    let (start, end) = (place(start), end + 1);
    match start < end {
        true => start as usize..end as usize,
        false => 0..0,
    }
}
