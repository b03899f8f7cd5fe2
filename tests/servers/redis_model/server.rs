//! A server, the client that commands it, and the subscriber that hears what happens to keys.

use std::collections::VecDeque;
use std::net::TcpListener;
use std::thread::JoinHandle;

use lapsed::UnixMs;
use lapsed_model_redis::{ModelRedis, Options};
use lapsed_sandbox::PrivateRedis;
use tokio_util::sync::CancellationToken;

use crate::support::resp_wire::{Reply, Wire};

/// Milliseconds after which a key of a line is due: enough for the commands before.
pub const SHORT_MS: i64 = 100;

/// The model on a port of its own, and in real time.
pub struct ModelServer {
    pub port: u16,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl ModelServer {
    pub fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let thread = std::thread::spawn(move || {
            runtime.block_on(stopped.run_until_cancelled(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let start = UnixMs(jiff::Timestamp::now().as_millisecond());
                let redis = ModelRedis::new(Options {
                    start,
                    ..Options::default()
                });
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    let redis = std::sync::Arc::clone(&redis);
                    tokio::spawn(async move { redis.serve(stream).await });
                }
            }));
        });
        Self {
            port,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.stop.cancel();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_none_or(|ended| ended.is_ok()));
    }
}

/// The server program to judge in place of redis-server: another version, or Valkey's.
const PROGRAM: &str = "LAPSED_TEST_REDIS_SERVER";

/// A redis-server whose keys expire when they are used.
pub async fn redis_server() -> PrivateRedis {
    let options = PrivateRedis::options();
    let options = match std::env::var(PROGRAM) {
        Ok(program) => options.program(program),
        Err(_) => options,
    };
    options
        .set("enable-debug-command", "yes")
        .start()
        .await
        .unwrap()
}

/// A client and a subscriber of one server.
pub struct Client {
    pub commands: Wire,
    events: Wire,
    fences: u64,
}

/// What a command did: its reply, and the messages that came before it.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    pub reply: Reply,
    /// Each as the name of the event, a space, and the key; with `@` and the database in front if that is not 0.
    pub events: Vec<String>,
}

impl Client {
    /// With all events, and without the active expiry.
    pub fn new(port: u16) -> Self {
        let mut events = Wire::connect(port);
        events.ask(&["PSUBSCRIBE", "*"]);
        let mut client = Self {
            commands: Wire::connect(port),
            events,
            fences: 0,
        };
        client
            .commands
            .ask(&["CONFIG", "SET", "notify-keyspace-events", "KEA"]);
        client.commands.ask(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
        client.commands.ask(&["FLUSHALL"]);
        client
    }

    /// Runs a command, and waits for what the subscriber hears of it.
    pub fn run<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Done {
        let reply = self.commands.ask(words);
        Done {
            reply,
            events: self.heard(),
        }
    }

    pub fn heard(&mut self) -> Vec<String> {
        self.fences += 1;
        let fence = self.fences.to_string();
        self.commands.ask(&["PUBLISH", "fence", &fence]);
        let mut found = Vec::new();
        loop {
            let Reply::Array(words) = self.events.reply() else {
                panic!("a message is an array");
            };
            let mut words: VecDeque<Vec<u8>> = words.into_iter().skip(2).map(bytes).collect();
            let (channel, message) = (words.pop_front().unwrap(), words.pop_front().unwrap());
            let (channel, message) = (
                String::from_utf8_lossy(&channel),
                String::from_utf8_lossy(&message),
            );
            if channel == "fence" && message == fence {
                return found;
            }
            if let Some(event) = channel.strip_prefix("__keyevent@") {
                let (db, event) = event.split_once("__:").unwrap();
                let db = if db == "0" {
                    String::new()
                } else {
                    format!("@{db} ")
                };
                found.push(format!("{db}{event} {message}"));
            }
        }
    }

    /// True if the subscription has ended.
    pub fn has_ended(&mut self) -> bool {
        self.events.is_closed()
    }

    /// Waits until keys that were armed for this many milliseconds are due, without using them.
    pub fn wait(&mut self, ms: i64) {
        let until = self.now_ms() + ms + 2;
        while self.now_ms() < until {
            std::thread::yield_now();
        }
    }

    pub fn now_ms(&mut self) -> i64 {
        let Reply::Array(parts) = self.commands.ask(&["TIME"]) else {
            panic!("the time has two parts");
        };
        let parts = parts
            .into_iter()
            .map(|part| String::from_utf8(bytes(part)).unwrap());
        let parts: Vec<i64> = parts.map(|part| part.parse().unwrap()).collect();
        parts[0] * 1_000 + parts[1] / 1_000
    }
}

pub fn bytes(reply: Reply) -> Vec<u8> {
    match reply {
        Reply::Bulk(bytes) => bytes,
        reply => panic!("{reply:?} is no string"),
    }
}
