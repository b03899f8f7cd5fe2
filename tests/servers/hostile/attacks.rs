//! What a hostile client does that has authenticated, and some that have not.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::scene::{PASSWORD, TOKEN};
use crate::support::resp_wire::command;

/// Tasks `Big@value@{n}` with the longest payload.
pub const BIG_KEYS: usize = 1_000;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Where the daemon listens.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    pub resp: u16,
    pub http: u16,
}

/// An attack: `run` returns when it is stopped.
pub struct Attack {
    pub name: &'static str,
    /// Number of threads that carry it out.
    pub clients: usize,
    pub run: fn(&Target, &AtomicBool),
}

macro_rules! attacks {
    ($($run:ident * $clients:literal),* $(,)?) => {
        /// All attacks.
        pub const ATTACKS: &[Attack] = &[$(Attack { name: stringify!($run), clients: $clients, run: $run }),*];
    };
}

attacks![
    gets_in_multi * 4,
    looks_in_multi * 4,
    changes_in_multi * 2,
    dels_in_multi * 2,
    looks * 8,
    watches * 8,
    names * 4,
    echoes * 4,
    half_commands * 2,
    unread * 4,
    patterns * 4,
    sets * 4,
    takes * 4,
    guesses * 4,
    silent * 1,
    tiny_elements * 3,
    half_bodies * 2,
    long_lists * 4,
    bulk_changes * 2,
];

/// A connection whose other end may close it or take nothing at any time.
struct Conn(TcpStream);

impl Conn {
    fn open(port: u16) -> Option<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
        stream
            .set_read_timeout(Some(Duration::from_millis(20)))
            .ok()?;
        stream
            .set_write_timeout(Some(Duration::from_millis(200)))
            .ok()?;
        Some(Self(stream))
    }

    /// A client of RESP that has authenticated.
    fn resp(target: &Target) -> Option<Self> {
        let mut conn = Self::open(target.resp)?;
        conn.send(&command(&["AUTH", PASSWORD])).then_some(conn)
    }

    /// False if not everything was sent.
    fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).is_ok()
    }

    /// Reads and drops until `bytes` were read, nothing came for some time, or the attack is stopped. False if the connection
    /// has ended.
    fn drain(&mut self, bytes: usize, stop: &AtomicBool) -> bool {
        let mut buffer = vec![0; 64 * KIB];
        let (mut count, begun) = (0, Instant::now());
        while count < bytes && begun.elapsed() < Duration::from_secs(2) && goes_on(stop) {
            match self.0.read(&mut buffer) {
                Ok(0) => return false,
                Ok(read) => count += read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
        }
        true
    }
}

fn goes_on(stop: &AtomicBool) -> bool {
    !stop.load(Ordering::Relaxed)
}

/// Sends the same to new connections again and again, and reads this many bytes of the answer.
fn again(target: &Target, stop: &AtomicBool, bytes: &[u8], answer: usize) {
    while goes_on(stop) {
        let Some(mut conn) = Conn::resp(target) else {
            continue;
        };
        while goes_on(stop) && conn.send(bytes) && conn.drain(answer, stop) {}
    }
}

/// Keeps this many connections, to each of which `bytes` are sent once. Closed ones are replaced.
fn keep(port: u16, stop: &AtomicBool, count: usize, bytes: &[u8]) {
    let mut kept: Vec<Conn> = Vec::new();
    while goes_on(stop) {
        if kept.len() < count
            && let Some(mut conn) = Conn::open(port)
        {
            conn.send(bytes);
            kept.push(conn);
            continue;
        }
        kept.retain_mut(|conn| {
            let _ = conn.0.set_nonblocking(true);
            match conn.0.read(&mut [0; 1024]) {
                Ok(0) => false,
                Ok(_) => true,
                Err(error) => error.kind() == ErrorKind::WouldBlock,
            }
        });
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

fn authenticated(bytes: &[u8]) -> Vec<u8> {
    [&command(&["AUTH", PASSWORD]), bytes].concat()
}

fn in_multi(commands: &[u8]) -> Vec<u8> {
    [b"MULTI\r\n", commands, b"EXEC\r\n"].concat()
}

fn big_keys() -> impl Iterator<Item = String> {
    (0..BIG_KEYS).map(|number| format!("Big@value@{number}"))
}

fn of_all(name: &str, keys: impl Iterator<Item = String>) -> Vec<u8> {
    let words: Vec<String> = std::iter::once(name.to_owned()).chain(keys).collect();
    command(&words)
}

/// Reads values of 64 KiB, as many as may be answered, and far more.
fn gets_in_multi(target: &Target, stop: &AtomicBool) {
    let get = |count| -> Vec<u8> {
        let keys = big_keys().take(count);
        in_multi(
            &keys
                .flat_map(|key| command(&["GET", &key]))
                .collect::<Vec<u8>>(),
        )
    };
    let same = in_multi(&b"GET Big@value@0\r\n".repeat(9_000));
    while goes_on(stop) {
        let Some(mut conn) = Conn::resp(target) else {
            continue;
        };
        let goes = conn.send(&get(60)) && conn.drain(60 * 65_534, stop);
        if goes && conn.send(&get(BIG_KEYS)) {
            conn.drain(10 * BIG_KEYS, stop);
        }
        if conn.send(&same) {
            conn.drain(10 * 9_000, stop);
        }
    }
}

/// Looks at many tasks with long values in a transaction that changes something.
fn looks_in_multi(target: &Target, stop: &AtomicBool) {
    let looks = of_all("EXISTS", big_keys());
    let looks = [&looks[..], b"SETEX Looks@in@multi 100000 {}\r\n"].concat();
    again(target, stop, &in_multi(&looks), 40);
}

/// Moves many tasks with long values, as many as one transaction may and far more, and without a transaction.
fn changes_in_multi(target: &Target, stop: &AtomicBool) {
    let moves = |count| -> Vec<u8> {
        let moves = big_keys()
            .take(count)
            .flat_map(|key| command(&["EXPIRE", &key, "200000"]));
        moves.collect()
    };
    let sent = [in_multi(&moves(120)), in_multi(&moves(500)), moves(500)].concat();
    again(target, stop, &sent, 120 * 10 + 500 * 10 + 500 * 4);
}

/// Deletes as many keys as a transaction may name, some of which are there.
fn dels_in_multi(target: &Target, stop: &AtomicBool) {
    let value = "x".repeat(60 * KIB);
    let keys = || (0..9_900).map(|number| format!("Gone@soon@{number}"));
    let dels: Vec<u8> = (0..11)
        .flat_map(|at| of_all("DEL", keys().skip(at * 900).take(900)))
        .collect();
    let dels = in_multi(&dels);
    let sets: Vec<u8> = keys()
        .step_by(200)
        .flat_map(|key| command(&["SETEX", &key, "100000", &value]))
        .collect();
    while goes_on(stop) {
        let Some(mut conn) = Conn::resp(target) else {
            continue;
        };
        while goes_on(stop) && conn.send(&sets) && conn.send(&dels) && conn.drain(250 + 100, stop) {
        }
    }
}

/// Looks at many tasks with long values outside of transactions.
fn looks(target: &Target, stop: &AtomicBool) {
    let ttls: Vec<u8> = big_keys()
        .flat_map(|key| command(&["PTTL", &key]))
        .collect();
    let looks = [of_all("EXISTS", big_keys()), ttls].concat();
    again(target, stop, &looks, BIG_KEYS * 11);
}

/// Watches as many long values as allowed, and more.
fn watches(target: &Target, stop: &AtomicBool) {
    let of = |count| {
        let watch = of_all("WATCH", big_keys().take(count));
        [&watch[..], b"MULTI\r\nPING\r\nEXEC\r\nUNWATCH\r\n"].concat()
    };
    again(target, stop, &[of(60), of(1_000)].concat(), 80);
}

/// Names of channels, as many and as long as allowed.
fn names(target: &Target, stop: &AtomicBool) {
    let name = |kind: &str| -> Vec<u8> {
        let names = (0..1_000).map(|number| format!("{number:0>255}"));
        of_all(kind, names)
    };
    let sent = authenticated(&[name("SUBSCRIBE"), name("PSUBSCRIBE")].concat());
    keep(target.resp, stop, 100, &sent);
}

/// Echoes of 1 MiB that are read, and some that are not.
fn echoes(target: &Target, stop: &AtomicBool) {
    let echo = command(&["ECHO", &"x".repeat(MIB)]);
    let queued = in_multi(&echo.repeat(3));
    while goes_on(stop) {
        let Some(mut conn) = Conn::resp(target) else {
            continue;
        };
        for _ in 0..4 {
            if !conn.send(&echo) || !conn.drain(MIB, stop) {
                break;
            }
        }
        conn.send(&queued);
        conn.drain(3 * MIB, stop);
        conn.send(&echo.repeat(8));
    }
}

/// Commands that lack their last byte.
fn half_commands(target: &Target, stop: &AtomicBool) {
    let echo = command(&["ECHO", &"x".repeat(MIB)]);
    let sent = authenticated(&echo[..MIB]);
    keep(target.resp, stop, 200, &sent);
}

/// Pipelines whose replies are not read.
fn unread(target: &Target, stop: &AtomicBool) {
    let gets = b"GET Big@value@1\r\n".repeat(1_000);
    keep(target.resp, stop, 100, &authenticated(&gets));
}

fn patterns(target: &Target, stop: &AtomicBool) {
    let set: String = "b-y".repeat(300);
    let pattern = format!("*[{set}]*[{}]!", &set[..60]);
    let scan = command(&["SCAN", "0", "MATCH", &pattern, "COUNT", "1000"]);
    again(target, stop, &scan, 20);
}

/// Writes as much as it can.
fn sets(target: &Target, stop: &AtomicBool) {
    let value = "x".repeat(60 * KIB);
    let sets: Vec<u8> = (0..100)
        .flat_map(|number| command(&["SETEX", &format!("Sets@many@{number}"), "100000", &value]))
        .collect();
    again(target, stop, &sets, 500);
}

/// Takes tasks with long payloads, and says nothing of them.
fn takes(target: &Target, stop: &AtomicBool) {
    let value = "x".repeat(60 * KIB);
    let mut number = 0;
    while goes_on(stop) {
        let (Some(mut conn), Some(mut waiting)) = (Conn::resp(target), Conn::resp(target)) else {
            continue;
        };
        let sets: Vec<u8> = (0..100)
            .flat_map(|_| {
                number += 1;
                let key = format!("Mail@to@{:?}@{number}", std::thread::current().id());
                command(&["PSETEX", &key.replace(['(', ')'], ""), "1", &value])
            })
            .collect();
        conn.send(&sets);
        waiting.send(&command(&[
            "LAPSED.TAKE",
            "mail",
            "COUNT",
            "1000",
            "BLOCK",
            "100",
        ]));
        conn.drain(500, stop);
        waiting.drain(4 * MIB, stop);
    }
}

/// Wrong passwords before any login, as many as fit.
fn guesses(target: &Target, stop: &AtomicBool) {
    let mut number = 0;
    while goes_on(stop) {
        let Some(mut conn) = Conn::open(target.resp) else {
            continue;
        };
        let guesses: Vec<u8> = (0..500)
            .flat_map(|_| {
                number += 1;
                command(&["AUTH", &format!("guess{number}")])
            })
            .collect();
        conn.send(&guesses);
        conn.drain(MIB, stop);
    }
}

/// Connections that send nothing, more than there are places for.
fn silent(target: &Target, stop: &AtomicBool) {
    keep(target.http, stop, 4_300, b"");
}

fn request(method: &str, path: &str, length: usize) -> Vec<u8> {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
    .into_bytes()
}

/// Sends a request again and again, and reads until nothing more comes.
fn ask(target: &Target, stop: &AtomicBool, head: &[u8], body: &[u8]) {
    while goes_on(stop) {
        let Some(mut conn) = Conn::open(target.http) else {
            continue;
        };
        if conn.send(head) && conn.send(body) {
            conn.drain(KIB, stop);
        }
    }
}

/// Bodies that are far larger once they are parsed.
fn tiny_elements(target: &Target, stop: &AtomicBool) {
    let batch = format!("[0{}]", ",0".repeat(7 * MIB));
    let args = format!(
        "{{\"class\":\"C\",\"method\":\"m\",\"in\":\"1h\",\"args\":[\"\"{}]}}",
        ",\"\"".repeat(600 * KIB)
    );
    let batch_of_args = format!(
        "[{{\"class\":\"C\",\"method\":\"m\",\"in\":\"1h\",\"args\":[\"\"{}]}}]",
        ",\"\"".repeat(5 * MIB)
    );
    let payload = format!(
        "{{\"key\":\"C@m\",\"in\":\"1h\",\"payload\":[0{}]}}",
        ",0".repeat(MIB / 2)
    );
    let mut round = 0;
    while goes_on(stop) {
        round += 1;
        let (path, body) = match round % 4 {
            0 => ("/v1/tasks/batch", &batch),
            1 => ("/v1/tasks", &args),
            2 => ("/v1/tasks/batch", &batch_of_args),
            _ => ("/v1/tasks", &payload),
        };
        let Some(mut conn) = Conn::open(target.http) else {
            continue;
        };
        if conn.send(&request("POST", path, body.len())) && conn.send(body.as_bytes()) {
            conn.drain(100, stop);
        }
    }
}

/// Bodies of batches that lack their last bytes.
fn half_bodies(target: &Target, stop: &AtomicBool) {
    let mut sent = request("POST", "/v1/tasks/batch", 16 * MIB);
    sent.extend(vec![b' '; 15 * MIB]);
    keep(target.http, stop, 20, &sent);
}

fn long_lists(target: &Target, stop: &AtomicBool) {
    let head = request("GET", "/v1/tasks?limit=1000&class=Big", 0);
    ask(target, stop, &head, b"");
}

/// Changes of everything that a filter matches, which are tried without effect.
fn bulk_changes(target: &Target, stop: &AtomicBool) {
    let body = b"{\"prefix\":\"Big@\",\"dry_run\":true}";
    let head = request("POST", "/v1/cancel", body.len());
    ask(target, stop, &head, body);
}
