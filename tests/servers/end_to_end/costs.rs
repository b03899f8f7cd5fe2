//! What a task costs the servers, as their own logs show it: a task that uses none of a daemon's extras does not pay for
//! them.
//!
//! Counted are the commands that name the tasks' keys, and the statements that a daemon without tasks does not execute.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use lapsed::Handlers;
use redis::aio::MultiplexedConnection;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::support::daemon::Daemon;
use crate::support::redis_commands::ask;
use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::tasks::create_many;
use crate::support::wait::until;

/// How often each shape of a statement, or each command, was executed.
type Counts = BTreeMap<String, usize>;

/// Every command that a Redis server executes, as its `MONITOR` shows it.
struct RedisLog {
    lines: Arc<Mutex<Vec<String>>>,
    connection: MultiplexedConnection,
}

impl RedisLog {
    async fn of(rig: &Rig) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", rig.redis.port())).await;
        let mut stream = BufReader::new(stream.unwrap());
        stream.write_all(b"MONITOR\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_line(&mut answer).await.unwrap();
        assert_eq!(answer, "+OK\r\n");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&lines);
        tokio::spawn(async move {
            let mut executed = stream.lines();
            while let Ok(Some(line)) = executed.next_line().await {
                log.lock().unwrap().push(line);
            }
        });
        let connection = rig.redis_connection().await;
        Self { lines, connection }
    }

    /// Waits until all that was executed is here, and takes it.
    async fn take(&mut self, mark: &str) -> Vec<String> {
        let _: String = ask(&mut self.connection, &["ECHO", mark]).await;
        let echoed = format!("\"{mark}\"");
        until("the log is complete", async || {
            let lines = self.lines.lock().unwrap();
            lines.iter().any(|line| line.ends_with(&echoed))
        })
        .await;
        std::mem::take(&mut *self.lines.lock().unwrap())
    }
}

/// A daemon on servers of its own, whose handler does nothing.
struct Counted {
    rig: Rig,
    daemon: Daemon,
    ran: Arc<AtomicUsize>,
    redis: RedisLog,
    /// Statements that the daemon reads with, without any task.
    periodic: BTreeSet<String>,
}

impl Counted {
    async fn start() -> Self {
        let rig = Setup::new("").own_maria().start().await;
        // The daemon is told from the test by its user.
        rig.run_sql(
            "CREATE USER daemon@'%'; GRANT ALL ON *.* TO daemon@'%'; \
             SET GLOBAL log_output = 'TABLE'; SET GLOBAL general_log = ON",
        )
        .await;
        let url = rig.config().ledger.url.expose().replace("root", "daemon");
        let config = rig.config_with(&format!("ledger.url = '{url}'"));
        let ran = Arc::new(AtomicUsize::new(0));
        let mut handlers = Handlers::new();
        let counted = Arc::clone(&ran);
        handlers.on(("Job", "count"), move |_: Vec<String>| {
            counted.fetch_add(1, Ordering::Relaxed);
            async { Ok(()) }
        });
        let daemon = Daemon::start(&config, handlers);
        daemon.hears_events().await;
        daemon.has_audited().await;
        let mut counted = Self {
            redis: RedisLog::of(&rig).await,
            rig,
            daemon,
            ran,
            periodic: BTreeSet::new(),
        };
        until("all periodic statements have come by", async || {
            let counts = counted.statements().await;
            counts.values().filter(|count| **count >= 4).count() >= 4
        })
        .await;
        // It also writes, when it starts, to see whether it may.
        let shapes = counted.statements().await.into_keys();
        counted.periodic = shapes.filter(|it| it.starts_with("SELECT")).collect();
        counted
    }

    /// The statements of the daemon so far, but for those that are periodic.
    async fn statements(&self) -> Counts {
        let log = "SELECT CAST(argument AS BINARY) FROM mysql.general_log \
                   WHERE user_host LIKE 'daemon[%' AND command_type IN ('Query', 'Execute')";
        let log: Vec<Vec<u8>> = sqlx::query_scalar(log)
            .fetch_all(&self.rig.sql)
            .await
            .unwrap();
        let mut counts = Counts::new();
        for statement in log {
            let shape = shape(&String::from_utf8_lossy(&statement));
            if !self.periodic.contains(&shape) {
                *counts.entry(shape).or_default() += 1;
            }
        }
        counts
    }

    /// Checks what such tasks cost. A machine that stalls makes the daemon look again, so they are created up to five
    /// times; a task that costs one statement or command more does so each time.
    async fn cost_at_most(
        &mut self,
        label: &str,
        count: usize,
        apart_ms: i64,
        statements: Bounds<'_>,
        commands: Bounds<'_>,
    ) {
        let mut most = None;
        for round in 0..5 {
            let costs = self
                .costs(&format!("{label}{round}x"), count, apart_ms)
                .await;
            most = excess(&costs.0, count, statements).or(excess(&costs.1, count, commands));
            if most.is_none() {
                return;
            }
        }
        panic!("{}", most.unwrap());
    }

    /// What it costs to create and run tasks that fall due so far apart: statements, and commands that name their keys.
    async fn costs(&mut self, label: &str, count: usize, apart_ms: i64) -> (Counts, Counts) {
        let before = self.statements().await;
        let done = self.rig.with_status(1).await as usize;
        self.redis.take(&format!("before {label}")).await;
        let prefix = format!("Job@count@{label}");
        let made = create_many(&self.daemon.tasks, &prefix, count as i64, 3_000, apart_ms).await;
        assert!(made.iter().all(|made| made.armed));
        until("all have run and are settled", async || {
            self.rig.with_status(1).await as usize == done + count
                && self.ran.load(Ordering::Relaxed) == count
        })
        .await;
        // What comes after a run: the event of each key.
        until("all keys are gone from redis", async || {
            let left: Vec<String> = self.rig.redis_says(&["KEYS", "Job@*"]).await;
            left.is_empty()
        })
        .await;
        let (mut commands, mut armed_late) = (Counts::new(), 0);
        for line in self.redis.take(&format!("after {label}")).await {
            let words: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
            let keys = words.iter().filter(|word| word.starts_with(&prefix));
            *commands.entry(words[0].to_lowercase()).or_default() += keys.count();
            armed_late += usize::from(is_armed_late(&line, &words, count));
        }
        *commands.entry("pttl".to_owned()).or_default() -= armed_late;
        let mut statements = self.statements().await;
        for (shape, count) in &mut statements {
            *count -= before.get(shape).copied().unwrap_or(0);
        }
        self.ran.store(0, Ordering::Relaxed);
        println!("{label}: {count} tasks, {armed_late} armed late: {commands:?} {statements:#?}");
        (statements, commands)
    }
}

/// True if this arms a key that outlives the moment at which it is touched, because a slow machine armed it late: it is
/// touched once more.
fn is_armed_late(line: &str, words: &[&str], tasks: usize) -> bool {
    // As `timer/nudge.rs` has it, for a few and for a burst.
    let touched_after_ms = match tasks {
        ..256 => 2,
        _ => 20,
    };
    let ["SET", _, value, "PX", lives_ms, ..] = words else {
        return false;
    };
    let Some(due_ms) = value.strip_prefix("lapsed:") else {
        return false;
    };
    let executed_s: f64 = line.split(' ').next().unwrap()[1..].parse().unwrap();
    let gone_ms = (executed_s * 1_000.0) as i64 + lives_ms.parse::<i64>().unwrap();
    gone_ms >= due_ms.parse::<i64>().unwrap() + touched_after_ms
}

/// A statement without its values and lists: its words, but for what is quoted.
fn shape(statement: &str) -> String {
    let mut shape = String::new();
    let mut quoted = false;
    for char in statement.chars() {
        match char {
            '\'' => quoted = !quoted,
            _ if quoted => {}
            'a'..='z' | 'A'..='Z' | '_' => shape.push(char),
            _ if shape.ends_with(' ') => {}
            _ => shape.push(' '),
        }
    }
    shape
}

/// How often statements of these kinds were executed.
fn of(counts: &Counts, kinds: &[&str]) -> usize {
    let of_kind = |name: &str| kinds.iter().any(|kind| name.starts_with(kind));
    let counts = counts.iter().filter(|(name, _)| of_kind(name));
    counts.map(|(_, count)| *count).sum()
}

/// The most of each kind for each task: less than one more than what a task costs.
type Bounds<'a> = &'a [(&'a [&'a str], f64)];

/// Says of which kind there is more than its bound.
fn excess(counts: &Counts, tasks: usize, bounds: Bounds) -> Option<String> {
    let mut excess = None;
    for (kinds, bound) in bounds {
        let found = of(counts, kinds) as f64 / tasks as f64;
        println!("{kinds:?}: {found:.3} a task, expected at most {bound}");
        if found > *bound {
            excess.get_or_insert(format!(
                "{kinds:?}: {found:.3} a task, expected at most {bound}: {counts:#?}"
            ));
        }
    }
    excess
}

const WRITES: [&str; 5] = ["INSERT", "DELETE", "BEGIN", "START", "COMMIT"];

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_task_costs_what_it_always_did() {
    let mut counted = Counted::start().await;
    // `PTTL` when it is heard, when it falls due and right after it; `GETRANGE` when it is heard, and a second time for an
    // event that comes after its run.
    let commands: Bounds = &[
        (&["set"], 1.0),
        (&["pttl"], 3.8),
        (&["getrange"], 2.8),
        (&["eval"], 0.0),
    ];
    // A claim and a settlement; the claim's read-back; one `INSERT` for all.
    let alone: Bounds = &[(&["UPDATE"], 2.8), (&["SELECT"], 1.8), (&WRITES, 0.8)];
    counted
        .cost_at_most("alone", 40, 100, alone, commands)
        .await;
    // How large the batches are depends on how fast the machine is.
    let together: Bounds = &[(&["UPDATE"], 0.5), (&["SELECT"], 0.5), (&WRITES, 0.1)];
    counted
        .cost_at_most("together", 2_000, 0, together, commands)
        .await;
}
