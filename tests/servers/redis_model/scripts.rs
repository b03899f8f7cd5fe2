//! Random calls of the scripts of lapsed, on a Redis server and on the model of it: the results and the data are the same.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use lapsed::config::{Config, RedisConfig};
use lapsed::{Rate, TaskKey, UnixMs};
use lapsed_redis::{
    Commands, Endpoint, EntryToTake, FullAt, Handling, Keyspace, Names, Register, Run, ScoreChange,
    ScoredEntry, ScoredSets, Taking, TokenBuckets, WheelKeys, WriteMode,
};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use super::server::{Client, ModelServer, redis_server};
use crate::support::resp_wire::Reply;

const SEEDS: u64 = 40;
const CALLS: usize = 60;

/// Scores from here on are written by lapsed.
const OWN_FROM: f64 = 1e14;
const NOW: f64 = 1_800_000_000_000_000.0;

/// The scripts on one server.
struct Scripts {
    sets: ScoredSets,
    wheel: WheelKeys,
    buckets: TokenBuckets,
    keyspace: Keyspace,
    client: Client,
}

impl Scripts {
    fn new(port: u16) -> Self {
        let url = format!("redis://127.0.0.1:{port}/0");
        let config = RedisConfig {
            url: url.as_str().into(),
            ..Config::default().redis
        };
        let commands = Commands::new(Endpoint::new(&config).unwrap());
        let register = Register::new(Names::new(""), "test".into(), "scope".to_owned());
        let keyspace = Keyspace::new(commands.clone(), "");
        Self {
            sets: ScoredSets::new(commands.clone(), OWN_FROM, Some(register)),
            wheel: WheelKeys::new(commands, "task_".to_owned(), 60, 1_000),
            buckets: TokenBuckets::new(keyspace.clone(), "test".into()),
            keyspace,
            client: Client::new(port),
        }
    }

    /// What is in the database, without what differs between two servers.
    async fn data(&mut self) -> BTreeMap<String, String> {
        let run_id = self.keyspace.server().await.unwrap().run_id.unwrap();
        let held = self.sets.held().await.unwrap();
        let nonce = held.map(|held| held.nonce).unwrap_or_default();
        let Reply::Array(names) = self.client.commands.ask(&["KEYS", "*"]) else {
            panic!("names are an array");
        };
        let mut data = BTreeMap::new();
        for name in names {
            let name = String::from_utf8(super::server::bytes(name)).unwrap();
            let Reply::Simple(kind) = self.client.commands.ask(&["TYPE", &name]) else {
                panic!("a type is a status");
            };
            let value = self.client.commands.ask(&match &kind[..] {
                "hash" => vec!["HGETALL", &name],
                "zset" => vec!["ZRANGE", &name, "0", "-1", "WITHSCORES"],
                "list" => vec!["LRANGE", &name, "0", "-1"],
                _ => vec!["TYPE", &name],
            });
            let text = text(&value).replace(&run_id, "RUN");
            let text = if nonce.is_empty() {
                text
            } else {
                text.replace(&nonce, "NONCE")
            };
            let text = match text.split_once(" seen ") {
                Some((before, after)) => {
                    let rest = after.split_once(' ').map_or("", |(_, rest)| rest);
                    format!("{before} {rest}")
                }
                None => text,
            };
            data.insert(name, text);
        }
        data
    }
}

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Array(all) => all.iter().map(text).collect::<Vec<_>>().join(" "),
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        reply => format!("{reply:?}"),
    }
}

/// A random call: the same for both servers.
#[derive(Debug, Clone)]
enum Call {
    Write(Vec<ScoredEntry>, WriteMode),
    Change(Vec<ScoreChange>),
    Settle(Vec<ScoredEntry>),
    Remove(Vec<ScoredEntry>),
    Take(Vec<EntryToTake>),
    Range(f64, f64),
    Members,
    Proof,
    Hold,
    Mark(bool, Option<i64>),
    ForgetLoss,
    Producer(&'static str, f64),
    Arm(Vec<(TaskKey, UnixMs)>, Option<UnixMs>),
    Disarm(Vec<(TaskKey, Option<UnixMs>)>),
    DueTimes,
    DueIn(UnixMs),
    MarkTick(i64, bool),
    Push(&'static str),
    ReadList(u64, usize),
    Handle(Vec<(Vec<u8>, Handling)>),
    Taken,
    Forget(TaskKey),
    RefuseTaken(TaskKey),
    Tokens(u32),
}

const MEMBERS: [&str; 4] = ["Job@run@1", "Job@run@2", "Job@run@3", ""];
const ELEMENTS: [&str; 3] = [r#"{"method":"a"}"#, r#"{"method":"b"}"#, "no entry"];
const SETS: [&str; 2] = ["one", "two"];
const SLOT: u32 = 7;

struct Draw(StdRng);

impl Draw {
    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        *all.choose(&mut self.0).unwrap()
    }

    fn several<T>(&mut self, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = self.0.random_range(1..4);
        (0..count).map(|_| one(self)).collect()
    }

    fn score(&mut self) -> f64 {
        let scores = [
            1.0,
            2.5,
            1_700_000_000.0,
            1_900_000_000.5,
            NOW - 5.0,
            NOW,
            NOW + 7.0,
            f64::INFINITY,
        ];
        self.of(&scores)
    }

    fn due(&mut self) -> i64 {
        self.of(&[1, 2, 61_000, 1_800_000_000_000])
    }

    fn key(&mut self) -> TaskKey {
        TaskKey::parse(self.of(&MEMBERS[..3])).unwrap()
    }

    fn place(&mut self) -> (Option<usize>, String, Option<String>) {
        let only = self.of(&[None, None, Some(0), Some(1)]);
        let member = self.of(&MEMBERS);
        let other = self.of(&[Some("Job@run@1"), Some("other"), None]);
        // Without a member, the other form names the key.
        let other = if member.is_empty() {
            Some("Job@run@1")
        } else {
            other
        };
        (only, member.to_owned(), other.map(str::to_owned))
    }

    fn entry(&mut self) -> ScoredEntry {
        let (only, member, other) = self.place();
        ScoredEntry {
            home: self.of(&[0, 1]),
            only,
            member,
            other,
            score: self.score(),
            due_ms: self.due(),
        }
    }

    fn change(&mut self) -> ScoreChange {
        let to = self.score();
        ScoreChange {
            set: self.of(&[0, 1]),
            member: self.of(&MEMBERS).as_bytes().to_vec(),
            from: self.score(),
            to: self.of(&[Some(to), None]),
            key: self.of(&MEMBERS).to_owned(),
            due_ms: self.due(),
            keeps_member: self.of(&[true, false]),
        }
    }

    fn entry_to_take(&mut self) -> EntryToTake {
        let (only, member, other) = self.place();
        let due_ms = self.due();
        EntryToTake {
            due_ms,
            only,
            member,
            other,
        }
    }

    fn handling(&mut self) -> (Vec<u8>, Handling) {
        let taking = Taking {
            key: TaskKey::parse(self.of(&["Wheel@a@~0123456789abc", "Wheel@b@~1123456789abc"]))
                .unwrap(),
            counted_for: UnixMs(self.of(&[1, 2])),
            counted: Duration::from_secs(500),
            due: UnixMs(self.due()),
            heard: UnixMs(5),
        };
        let element = self.of(&ELEMENTS).as_bytes().to_vec();
        (
            element,
            match self.0.random_range(0..5) {
                0..3 => Handling::Take(taking),
                3 => Handling::Refuse,
                _ => Handling::Drop,
            },
        )
    }

    fn mode(&mut self) -> WriteMode {
        let now = self.score();
        self.of(&[
            WriteMode::Replace,
            WriteMode::Keep { now },
            WriteMode::Move { now },
        ])
    }

    fn call(&mut self) -> Call {
        match self.0.random_range(0..24) {
            0 | 1 => {
                let mode = self.mode();
                Call::Write(self.several(Self::entry), mode)
            }
            2 => Call::Change(self.several(Self::change)),
            3 => Call::Settle(self.several(Self::entry)),
            4 => Call::Remove(self.several(Self::entry)),
            5 => Call::Take(self.several(Self::entry_to_take)),
            6 => Call::Range(self.score(), self.score()),
            7 => Call::Members,
            8 => Call::Proof,
            9 => match self.of(&[true, false]) {
                true => Call::Hold,
                false => Call::ForgetLoss,
            },
            10 => {
                let lost_ms = self.of(&[None, Some(7), Some(8)]);
                Call::Mark(self.of(&[true, false]), lost_ms)
            }
            11 => Call::Producer(self.of(&MEMBERS), self.score()),
            12 | 13 => {
                let keep = self.due();
                let keep = self.of(&[None, Some(UnixMs(keep))]);
                Call::Arm(self.several(|draw| (draw.key(), UnixMs(draw.due()))), keep)
            }
            14 => {
                let one = |draw: &mut Self| {
                    let latest = UnixMs(draw.due());
                    (draw.key(), draw.of(&[None, Some(latest)]))
                };
                Call::Disarm(self.several(one))
            }
            15 => Call::DueTimes,
            16 => Call::DueIn(UnixMs(self.due())),
            17 => Call::MarkTick(self.of(&[1, 2, 3]), self.of(&[true, false])),
            18 => Call::Push(self.of(&ELEMENTS)),
            19 => Call::ReadList(self.of(&[0, 1]), self.of(&[5, 500])),
            20 => Call::Handle(self.several(Self::handling)),
            21 => Call::Taken,
            22 => match self.of(&[true, false]) {
                true => Call::Forget(self.key()),
                false => Call::RefuseTaken(self.key()),
            },
            _ => Call::Tokens(self.of(&[1, 3])),
        }
    }
}

/// The result as text, or of a refusal its reason.
fn shown<T: Debug>(result: Result<T, lapsed_redis::RedisError>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("error: {}", error.reason()),
    }
}

impl Scripts {
    async fn run(&mut self, call: &Call) -> String {
        let sets = SETS.map(str::to_owned);
        let run = |is_marked| Run {
            id: Arc::from("abc"),
            is_marked,
        };
        let (scored, wheel) = (&self.sets, &self.wheel);
        match call {
            Call::Write(entries, mode) => shown(scored.write(&sets, entries, *mode).await),
            Call::Change(changes) => shown(scored.change(&sets, changes).await),
            Call::Settle(entries) => shown(scored.settle(&sets, entries).await),
            Call::Remove(entries) => shown(scored.remove(&sets, entries).await),
            Call::Take(entries) => shown(scored.take(&sets, entries, "auto", 1e11, NOW).await),
            Call::Range(from, below) => shown(scored.range(SETS[0], *from, *below, 0, 10).await),
            Call::Members => shown(scored.members(&MEMBERS[..3]).await),
            Call::Proof => shown(scored.proof(&sets).await),
            Call::Hold => shown(
                scored
                    .hold()
                    .await
                    .map(|held| held.map(|held| held.lost_ms)),
            ),
            Call::ForgetLoss => shown(scored.forget_loss(7).await),
            Call::Mark(over, lost) => {
                let server = self.keyspace.server().await.unwrap();
                let held = scored.held().await.unwrap();
                let nonce = held.map(|held| held.nonce).unwrap_or_default();
                let mark = format!("kept:{}:{nonce}", server.run_id.unwrap());
                let over = over.then_some(&mark[..]);
                shown(scored.mark(SETS[0], &mark, over, *lost).await)
                    + &shown(scored.mark(SETS[1], &mark, over, *lost).await)
            }
            Call::Producer(member, score) => {
                let words = ["ZADD", SETS[0], &score.to_string(), member];
                format!("{:?}", self.client.commands.ask(&words))
            }
            Call::Arm(entries, keep) => {
                let entries: Vec<_> = entries.iter().map(|(key, due)| (key, *due)).collect();
                shown(wheel.arm(&entries, *keep).await)
            }
            Call::Disarm(entries) => {
                let entries: Vec<_> = entries.iter().map(|(key, due)| (key, *due)).collect();
                shown(wheel.remove(&entries).await)
            }
            Call::DueTimes => {
                let keys = MEMBERS[..3].iter().map(|key| TaskKey::parse(key).unwrap());
                shown(wheel.due_times(&keys.collect::<Vec<_>>()).await)
            }
            Call::DueIn(below) => shown(wheel.due_in(&[0, 1], None, *below, 0..10).await),
            Call::MarkTick(tick, is_marked) => {
                shown(wheel.mark_tick(*tick, &run(*is_marked), 1).await)
                    + &shown(wheel.last_tick().await)
            }
            Call::Push(element) => {
                let words = ["RPUSH", "task_7", element, element];
                format!("{:?}", self.client.commands.ask(&words))
            }
            Call::ReadList(skip, longest) => {
                shown(wheel.read_list(SLOT, *skip, 10, *longest).await)
            }
            Call::Handle(elements) => shown(wheel.handle(SLOT, &run(false), elements).await),
            Call::Taken => shown(wheel.taken(0).await) + &shown(wheel.count_taken().await),
            Call::Forget(key) => shown(wheel.forget_taken(&[key]).await),
            Call::RefuseTaken(key) => shown(wheel.refuse_taken(key).await),
            Call::Tokens(wanted) => {
                let rate: Rate = "10/h".parse().unwrap();
                let taken = self
                    .buckets
                    .take("route", rate, *wanted, FullAt::default())
                    .await;
                shown(taken.map(|(grant, _)| grant.granted))
            }
        }
    }
}

#[tokio::test]
async fn scripts_do_the_same_on_redis_server_and_on_the_model() {
    let (redis, model) = (redis_server().await, ModelServer::start());
    let (mut redis, mut model) = (Scripts::new(redis.port()), Scripts::new(model.port));
    let mut results = String::new();
    for seed in 0..SEEDS {
        for scripts in [&mut redis, &mut model] {
            scripts.client.commands.ask(&["FLUSHALL"]);
            scripts.client.heard();
        }
        let mut draw = Draw(StdRng::seed_from_u64(seed));
        for number in 0..CALLS {
            let call = draw.call();
            let context = format!("seed {seed}, call {number}: {call:?}");
            let (expected, found) = (redis.run(&call).await, model.run(&call).await);
            assert_eq!(expected, found, "{context}");
            results += &expected;
            assert_eq!(redis.client.heard(), model.client.heard(), "{context}");
            assert_eq!(redis.data().await, model.data().await, "{context}");
        }
    }
    let told = [
        "Kept",
        "Lost",
        "Written",
        "Missing",
        "Taken",
        "Removed",
        "Later",
        "Unknown",
        "Some(1)",
        "Some(2)",
        "error: replaced",
        "too_long: 1",
    ];
    let untold = told.iter().filter(|result| !results.contains(**result));
    let untold: Vec<_> = untold.collect();
    assert!(untold.is_empty(), "no call has given {untold:?}");
}
