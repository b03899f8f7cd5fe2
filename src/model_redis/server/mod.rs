//! The state of the server: databases, clients, settings, clock. One lock holds it; each command runs to its end.

mod expiring;
mod publishing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lapsed_core::task::UnixMs;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::events::{Class, Flags, Judge, Odds};
use crate::history::Change;
use crate::keyspace::{Bytes, Db, Entry, Value};
use crate::lua::Scripts;
use crate::options::Options;
use crate::request::Words;

/// Number of databases.
pub(crate) const DATABASES: u32 = 16;

/// A connection.
#[derive(Debug)]
pub(crate) struct Client {
    /// What is to be written. Without it, the connection ends.
    pub(crate) out: mpsc::UnboundedSender<Bytes>,
    pub(crate) link: Arc<str>,
    pub(crate) name: String,
    pub(crate) channels: BTreeSet<Bytes>,
    pub(crate) patterns: BTreeSet<Bytes>,
    pub(crate) watched: BTreeSet<(u32, Bytes)>,
    /// True if a watched key has changed.
    pub(crate) is_dirty: bool,
}

/// A copy of the data.
pub(crate) type Data = BTreeMap<u32, Db>;

/// The state behind the lock.
pub(crate) struct State {
    pub(crate) options: Options,
    pub(crate) data: Data,
    pub(crate) snapshot: Option<Data>,
    pub(crate) settings: BTreeMap<String, String>,
    pub(crate) flags: Flags,
    pub(crate) clients: BTreeMap<u64, Client>,
    pub(crate) next_client: u64,
    pub(crate) odds: Odds,
    pub(crate) judge: Option<Judge>,
    pub(crate) random: StdRng,
    pub(crate) run_id: String,
    pub(crate) is_replica: bool,
    pub(crate) expires_actively: bool,
    pub(crate) history: Vec<Change>,
    /// The command that runs.
    pub(crate) command: Option<Arc<Words>>,
    pub(crate) scripts: Option<Scripts>,
    pub(crate) expired_keys: u64,
    /// How far the server's clock was set, in microseconds.
    offset_us: i64,
    born: Instant,
    pub(crate) started: Instant,
    /// The earliest expiry may have changed.
    pub(crate) expiries: Arc<Notify>,
}

impl State {
    pub(crate) fn new(options: Options) -> Self {
        let now = Instant::now();
        let mut state = Self {
            data: Data::new(),
            snapshot: None,
            settings: BTreeMap::new(),
            flags: Flags::default(),
            clients: BTreeMap::new(),
            next_client: 1,
            odds: Odds::default(),
            judge: None,
            random: StdRng::seed_from_u64(options.seed),
            run_id: String::new(),
            is_replica: false,
            expires_actively: true,
            history: Vec::new(),
            command: None,
            scripts: None,
            expired_keys: 0,
            offset_us: 0,
            born: now,
            started: now,
            expiries: Arc::default(),
            options,
        };
        state.start();
        state
    }

    /// Starts the process: a new run, with the settings of its file.
    pub(crate) fn start(&mut self) {
        self.run_id = format!(
            "{:032x}{:08x}",
            self.random.random::<u128>(),
            self.random.random::<u32>()
        );
        self.started = Instant::now();
        self.clients.clear();
        self.scripts = None;
        self.expired_keys = 0;
        let hz = self.options.hz.to_string();
        let defaults = [
            ("active-expire-effort", "1"),
            ("appendonly", "no"),
            (
                "client-output-buffer-limit",
                "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
            ),
            ("databases", "16"),
            ("hz", &hz),
            ("maxmemory", "0"),
            ("maxmemory-policy", "noeviction"),
            ("save", ""),
            ("timeout", "0"),
        ];
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        self.settings = defaults.map(own).into();
        self.flags = Flags::parse(&self.options.notify).unwrap_or_default();
    }

    pub(crate) fn now_us(&self) -> i64 {
        let passed = i64::try_from(self.born.elapsed().as_micros()).unwrap_or(i64::MAX);
        self.options.start.0 * 1000 + passed + self.offset_us
    }

    pub(crate) fn now(&self) -> i64 {
        self.now_us().div_euclid(1000)
    }

    pub(crate) fn step_clock(&mut self, by_us: i64) {
        self.offset_us += by_us;
        self.expiries.notify_one();
    }

    pub(crate) fn db(&mut self, db: u32) -> &mut Db {
        self.data.entry(db).or_default()
    }

    /// Adds a line to the history.
    pub(crate) fn note(&mut self, what: &'static str, db: u32, key: &[u8], due: Option<i64>) {
        if self.options.history {
            let at = UnixMs(self.now());
            self.history.push(Change {
                at,
                db,
                key: key.to_vec(),
                what,
                due: due.map(UnixMs),
                command: self.command.clone(),
            });
        }
    }

    /// Marks the clients that watch the key.
    pub(crate) fn changed(&mut self, db: u32, key: &[u8]) {
        for client in self.clients.values_mut() {
            if !client.watched.is_empty() && client.watched.contains(&(db, key.to_vec())) {
                client.is_dirty = true;
            }
        }
    }

    /// Deletes the key if it is due, and says so. True if it is missing to the caller.
    pub(crate) fn expire_if_due(&mut self, db: u32, key: &[u8]) -> bool {
        let now = self.now();
        let due = self.db(db).get(key).and_then(|entry| entry.due);
        let Some(due) = due.filter(|due| *due < now) else {
            return false;
        };
        if !self.is_replica {
            self.expire(db, key, due);
        }
        true
    }

    /// The key, unless it is due.
    pub(crate) fn entry(&mut self, db: u32, key: &[u8]) -> Option<&mut Entry> {
        match self.expire_if_due(db, key) {
            true => None,
            false => self.db(db).get_mut(key),
        }
    }

    /// The same, as a use of the key.
    pub(crate) fn used(&mut self, db: u32, key: &[u8]) -> Option<&mut Entry> {
        let now = self.now();
        let entry = self.entry(db, key)?;
        entry.used_ms = now;
        Some(entry)
    }

    /// Writes a new key, or a new value of one.
    pub(crate) fn put(&mut self, db: u32, key: &[u8], value: Value, due: Option<i64>) {
        let used_ms = self.now();
        let entry = Entry {
            value,
            due,
            used_ms,
        };
        let is_new = self.db(db).get(key).is_none();
        self.db(db).insert(key.to_vec(), entry);
        if is_new {
            self.notify(Class::New, "new", db, key);
        }
        self.expiries.notify_one();
    }

    pub(crate) fn set_due(&mut self, db: u32, key: &[u8], due: Option<i64>) {
        self.db(db).set_due(key, due);
        self.expiries.notify_one();
    }
}
