//! A daemon on a file with an ordinary client, whose answers and tasks are timed.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::attacks::{Attack, BIG_KEYS, Target};
use crate::support::process::Process;
use crate::support::resp_wire::{Reply, Wire, command};
use crate::support::wait::until;

/// The password of every client.
pub const PASSWORD: &str = "a long enough password";

/// The token of every client of HTTP.
pub const TOKEN: &str = "a-long-enough-token";

/// Time between two commands of the ordinary client.
const COMMAND_EVERY: Duration = Duration::from_millis(50);

/// Time between the due times of two tasks.
const DUE_EVERY_MS: u64 = 100;

/// Time until the first of them.
const DUE_AFTER_MS: u64 = 300;

/// What the ordinary client has noticed.
pub struct Figures {
    /// Its commands.
    pub answered: usize,
    pub answered_ms_max: u64,
    /// Its tasks.
    pub started: usize,
    pub late_ms_max: i64,
    /// Of the daemon, resident.
    pub memory_mib_max: u64,
}

impl Figures {
    pub const HEAD: &str =
        "attack                              SETEX ms   late ms   RSS MiB   answers    starts";

    pub fn line(&self, name: &str) -> String {
        format!(
            "{name:<34}{:>10}{:>10}{:>10}{:>10}{:>10}",
            self.answered_ms_max,
            self.late_ms_max,
            self.memory_mib_max,
            self.answered,
            self.started
        )
    }
}

pub struct Scene {
    daemon: Process,
    target: Target,
    _directory: TempDir,
}

impl Scene {
    /// A daemon whose ledger has many tasks with the longest payload.
    pub async fn open() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let hash = lapsed_server::resp::hash_password(PASSWORD.as_bytes()).unwrap();
        let text = format!(
            "http.listen = '127.0.0.1:0'\nhttp.tokens = ['{TOKEN}']\n\
             resp.listen = '127.0.0.1:0'\nresp.password = '{hash}'\n\
             [[routes]]\nmatch = '^Due@'\nlog = {{}}\n\
             [[routes]]\nmatch = '^Mail@'\npull = {{ queue = 'mail', visibility = '30s' }}\n\
             [[routes]]\nmatch = '^'\nlog = {{}}\n"
        );
        let daemon = Process::on_a_file(directory.path(), &text);
        daemon.until_logged("audited").await;
        let target = Target {
            resp: daemon.address("resp").await.port(),
            http: daemon.address("http").await.port(),
        };
        let scene = Self {
            daemon,
            target,
            _directory: directory,
        };
        tokio::task::block_in_place(|| scene.store());
        scene
    }

    /// Stores the tasks that attacks read.
    fn store(&self) {
        let mut wire = self.target.wire();
        let value = "x".repeat(65_534);
        for part in 0..BIG_KEYS / 10 {
            let keys = (0..10).map(|at| format!("Big@value@{}", part * 10 + at));
            let sets = keys.flat_map(|key| command(&["SETEX", &key, "100000", &value]));
            wire.send(&sets.collect::<Vec<u8>>());
            for _ in 0..10 {
                assert_eq!(wire.reply(), Reply::Simple("OK".to_owned()));
            }
        }
    }

    /// Times the ordinary client while attacks go on.
    pub async fn during(&self, attacks: &[&'static Attack], lasting: Duration) -> Figures {
        tokio::task::block_in_place(|| self.forget_memory());
        let stop = Arc::new(AtomicBool::new(false));
        let mut ordinary = self.target.wire();
        let name = attacks
            .iter()
            .fold(String::new(), |name, attack| name + attack.name + "-");
        let ms = u64::try_from(lasting.as_millis()).unwrap();
        let tasks = ms / DUE_EVERY_MS;
        for number in 0..tasks {
            let delay = DUE_AFTER_MS + number * DUE_EVERY_MS;
            let key = format!("Due@in@{name}@{number}");
            let set = ordinary.ask(&["PSETEX", &key, &delay.to_string(), ""]);
            assert_eq!(set, Reply::Simple("OK".to_owned()));
        }
        let mut clients: Vec<thread::JoinHandle<()>> = Vec::new();
        for &attack in attacks {
            for _ in 0..attack.clients {
                let (stop, target) = (Arc::clone(&stop), self.target);
                clients.push(thread::spawn(move || (attack.run)(&target, &stop)));
            }
        }
        let begun = Instant::now();
        let mut answers: Vec<Duration> = Vec::new();
        while begun.elapsed() < lasting || answers.is_empty() {
            let asked = Instant::now();
            let key = format!("Other@key@{}", answers.len());
            let set =
                tokio::task::block_in_place(|| ordinary.ask(&["SETEX", &key, "100000", "{}"]));
            assert_eq!(set, Reply::Simple("OK".to_owned()), "{name}");
            answers.push(asked.elapsed());
            sleep(COMMAND_EVERY.saturating_sub(asked.elapsed())).await;
        }
        let late = || self.lateness(&format!("Due@in@{name}@"));
        until(
            format!("the tasks beside {name} have started"),
            async || late().len() as u64 >= tasks,
        )
        .await;
        stop.store(true, Ordering::Relaxed);
        tokio::task::block_in_place(|| {
            for client in clients {
                client.join().unwrap();
            }
        });
        let late = late();
        Figures {
            answered: answers.len(),
            answered_ms_max: answers.iter().max().map_or(0, millis),
            started: late.len(),
            late_ms_max: late.into_iter().max().unwrap_or(0),
            memory_mib_max: self.memory_mib("VmHWM"),
        }
    }

    /// Lateness of the tasks with this prefix, as the daemon has logged it.
    fn lateness(&self, prefix: &str) -> Vec<i64> {
        let log = self.daemon.log();
        let lines = log.lines().filter(|line| line.contains(prefix));
        let of = |line: &str| {
            let (_, rest) = line.split_once("lateness_ms=")?;
            rest.split(' ').next()?.trim().parse().ok()
        };
        lines.filter_map(of).collect()
    }

    /// Has the kernel count the peak of memory anew.
    fn forget_memory(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.daemon.id()), "5").unwrap();
    }

    fn memory_mib(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.daemon.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kib = line.and_then(|line| line.split_whitespace().nth(1));
        kib.unwrap().parse::<u64>().unwrap() / 1024
    }

    /// Ends the daemon as an operator does: nothing hangs.
    pub async fn close(mut self) {
        self.daemon.signal(Signal::TERM);
        assert!(self.daemon.until_ended().await.success());
        assert!(!self.daemon.log().contains("panicked"));
    }
}

impl Target {
    /// A client that has authenticated.
    pub fn wire(&self) -> Wire {
        let mut wire = Wire::connect(self.resp);
        let said = wire.ask(&["AUTH", PASSWORD]);
        assert_eq!(said, Reply::Simple("OK".to_owned()));
        wire
    }
}

fn millis(time: &Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap()
}
