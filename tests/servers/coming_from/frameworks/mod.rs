//! docs/coming-from/php-frameworks.md: producers and workers of frameworks as they are, beside a daemon that moves their jobs.

mod faults;
mod follow;
mod lateness;
mod leaving;
mod moves;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::owner::{PROGRAMS, window};
use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::shell::Shell;
use crate::support::wait::until;

const PAGE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/coming-from/php-frameworks.md"
);

/// A framework.
struct Framework {
    name: &'static str,
    /// The set in Redis.
    set: &'static str,
    /// Whether it runs the job of a dead worker again by itself.
    acknowledges: bool,
}

const LARAVEL: Framework = Framework {
    name: "laravel",
    set: "shop_database_queues:default:delayed",
    acknowledges: true,
};

const THINK_QUEUE: Framework = Framework {
    name: "think-queue",
    set: "{queues:default}:delayed",
    acknowledges: true,
};

const WEBMAN: Framework = Framework {
    name: "webman",
    set: "{redis-queue}-delayed",
    acknowledges: false,
};

const HYPERF: Framework = Framework {
    name: "hyperf",
    set: "{queue}:delayed",
    acknowledges: false,
};

/// What becomes of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Runs,
    /// Its first attempt fails.
    Fails,
    /// It kills its worker.
    Crashes,
    /// `lapsed cancel` removes it.
    Cancelled,
    /// A program removes it from the set.
    Removed,
}

struct Job {
    name: String,
    fate: Fate,
    due_s: i64,
    key: String,
}

struct Shop {
    framework: &'static Framework,
    rig: Rig,
    shell: Shell,
    directory: TempDir,
    jobs: Vec<Job>,
}

/// Workers, started again when they die.
struct Workers(Child);

impl Drop for Workers {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.0);
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.0.wait();
    }
}

impl Shop {
    async fn new(framework: &'static Framework) -> Self {
        let page = std::fs::read_to_string(PAGE).unwrap();
        let section = page.split("\n## ").find(|section| {
            let title = section.lines().next().unwrap();
            title.to_lowercase() == framework.name
        });
        let settings = section.unwrap().split("```toml\n").nth(1).unwrap();
        let settings = settings.split("```").next().unwrap();
        Self::with(framework, settings, TempDir::new().unwrap()).await
    }

    async fn with(framework: &'static Framework, settings: &str, directory: TempDir) -> Self {
        let rig = Setup::new(settings).without_table().start().await;
        let shell = Shell::of(&rig);
        shell.text(&["migrate"]);
        Self {
            framework,
            shell,
            rig,
            directory,
            jobs: Vec::new(),
        }
    }

    fn php(&self, role: &str) -> Command {
        let mut command = Command::new("php");
        command.arg(format!("{PROGRAMS}/frameworks.php"));
        command.args([self.framework.name, role]);
        command.arg(self.rig.redis.port().to_string());
        command
    }

    /// The producer delays jobs. Their names say what becomes of them.
    fn produce(&mut self, batch: &str, count: usize) {
        let fate = |number: usize| match number % 20 {
            0 | 10 => ("run-cancelled", Fate::Cancelled),
            1 | 11 => ("run-removed", Fate::Removed),
            3 | 4 => ("fail", Fate::Fails),
            5 if number % 100 == 5 => ("crash", Fate::Crashes),
            _ => ("run", Fate::Runs),
        };
        let jobs = (0..count).map(|number| {
            let (word, fate) = fate(number);
            let delay = match fate {
                // Last, so that a busy machine has time to cancel them.
                Fate::Cancelled | Fate::Removed => 40 + window(),
                _ => 8 + number * window() / count,
            };
            (format!("{word}-{batch}-{number}"), fate, delay)
        });
        let jobs: Vec<(String, Fate, usize)> = jobs.collect();
        self.delay(jobs);
    }

    /// The producer delays these jobs.
    fn delay(&mut self, jobs: Vec<(String, Fate, usize)>) {
        let lines: Vec<Value> = jobs
            .iter()
            .map(|(name, _, delay)| json!([name, delay]))
            .collect();
        let mut command = self.php("produce");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .expect("`php` was not found; run `scripts/install-servers`");
        let mut stdin = child.stdin.take().unwrap();
        stdin
            .write_all(json!(lines).to_string().as_bytes())
            .unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        let written: Vec<Value> = serde_json::from_str(&text).unwrap();
        for ((name, fate, _), written) in jobs.into_iter().zip(written) {
            let member = written["member"].as_str().unwrap_or_default();
            let member = BASE64_STANDARD.decode(member).unwrap();
            self.jobs.push(Job {
                key: self.key(&written["id"], &member),
                due_s: written["due_s"].as_i64().unwrap(),
                name,
                fate,
            });
        }
    }

    /// The key that the page promises.
    fn key(&self, id: &Value, member: &[u8]) -> String {
        let digest = Sha256::digest(member);
        let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let id = id.as_str().unwrap_or_default();
        match self.framework.name {
            "webman" => format!("webman@send-mail@{id}.{}", &digits[..8]),
            "hyperf" => format!("hyperf@queue@~{}", &digits[..32]),
            name => format!("{name}@default@{id}"),
        }
    }

    fn ran_file(&self) -> PathBuf {
        self.directory.path().join("ran")
    }

    /// Starts workers, with the framework's own poller or without it.
    fn work(&self, polls: bool) -> Workers {
        let php = self.php("work");
        let words = php.get_args().map(|word| word.to_str().unwrap());
        let line = format!(
            "while :; do php {} '{}' {}; done",
            words.collect::<Vec<_>>().join(" "),
            self.ran_file().display(),
            u8::from(polls)
        );
        let mut command = Command::new("sh");
        let log = std::fs::File::create(self.directory.path().join("log")).unwrap();
        command.args(["-c", &line]).process_group(0).stderr(log);
        Workers(command.stdin(Stdio::null()).spawn().unwrap())
    }

    /// The runs by name: attempt, and when.
    fn ran(&self) -> BTreeMap<String, Vec<(u64, i64)>> {
        let text = std::fs::read_to_string(self.ran_file()).unwrap_or_default();
        let mut runs: BTreeMap<String, Vec<(u64, i64)>> = BTreeMap::new();
        let whole = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        for line in whole {
            let line: Value = serde_json::from_str(line).unwrap();
            let name = line["name"].as_str().unwrap().to_owned();
            let attempt = line["attempt"].as_u64().unwrap();
            let at_ms = line["at_ms"].as_i64().unwrap();
            runs.entry(name).or_default().push((attempt, at_ms));
        }
        runs
    }

    async fn until_mirrored(&self) {
        until("each job is a row", async || {
            let rows = self.rig.number("SELECT COUNT(*) FROM tb_time_limit_task");
            rows.await >= self.jobs.len() as i64
        })
        .await;
    }

    /// Cancels the jobs of a batch that shall be, in both ways.
    async fn cancel(&self, batch: &str) {
        let part = format!("-{batch}-");
        for job in self.jobs.iter().filter(|job| job.name.contains(&part)) {
            match job.fate {
                Fate::Cancelled => {
                    self.shell.text(&["cancel", &job.key]);
                }
                Fate::Removed => self.remove(job).await,
                _ => {}
            }
        }
    }

    async fn remove(&self, job: &Job) {
        let mut redis = self.rig.redis.connect(0).await.unwrap();
        let members: Vec<Vec<u8>> = redis::cmd("ZRANGE")
            .arg(self.framework.set)
            .arg(0)
            .arg(-1)
            .query_async(&mut redis)
            .await
            .unwrap();
        let name = format!("\"{}\"", job.name).into_bytes();
        let has_name = |member: &&Vec<u8>| member.windows(name.len()).any(|part| part == name);
        let member = members.iter().find(has_name);
        let removed: i64 = redis::cmd("ZREM")
            .arg(self.framework.set)
            .arg(member)
            .query_async(&mut redis)
            .await
            .unwrap();
        assert_eq!(removed, 1, "{}", job.name);
    }

    fn expected(&self, fate: Fate) -> usize {
        match fate {
            Fate::Runs => 1,
            Fate::Fails => 2,
            Fate::Crashes => 1 + usize::from(self.framework.acknowledges),
            Fate::Cancelled | Fate::Removed => 0,
        }
    }

    async fn all_is_well(&self) {
        let expected: usize = self.jobs.iter().map(|job| self.expected(job.fate)).sum();
        until("all jobs have run", async || {
            self.ran().values().map(Vec::len).sum::<usize>() >= expected
        })
        .await;
        // What was cancelled would have run by then.
        let last_s = self.jobs.iter().map(|job| job.due_s).max().unwrap();
        let last = lapsed::UnixMs(last_s * 1_000 + 3_000);
        self.rig.until_clock(last).await;
        until("no task waits", async || {
            let waits = "SELECT COUNT(*) FROM tb_time_limit_task WHERE status = 0 AND sts = 0";
            self.rig.number(waits).await == 0
        })
        .await;
        let ran = self.ran();
        for job in &self.jobs {
            let runs = ran.get(&job.name).map_or(&[][..], Vec::as_slice);
            assert_eq!(
                runs.len(),
                self.expected(job.fate),
                "{}: {runs:?}",
                job.name
            );
            for (_, at_ms) in runs {
                assert!(
                    *at_ms >= job.due_s * 1_000,
                    "{} is early: {runs:?}",
                    job.name
                );
            }
        }
        let with = async |fates: &[Fate]| {
            let jobs = self.jobs.iter().filter(|job| fates.contains(&job.fate));
            jobs.count() as i64
        };
        let cancelled = with(&[Fate::Cancelled, Fate::Removed]).await;
        assert_eq!(self.rig.with_status(3).await, cancelled);
        assert_eq!(self.rig.with_status(2).await, 0);
    }
}
