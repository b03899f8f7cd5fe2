//! An owner of another design.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::process::{Process, config_file};
use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::shell::Shell;
use crate::support::wait::until;

pub const PROGRAMS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/servers/coming_from/programs"
);

/// The number of tasks of a test.
pub fn tasks() -> usize {
    std::env::var("LAPSED_TEST_TASKS").map_or(200, |count| count.parse().unwrap())
}

/// The first block of code of a page, in a language.
pub fn block(page: &str, language: &str) -> String {
    let path = format!(
        "{}/../../docs/coming-from/{page}",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(path).unwrap();
    let begin = format!("```{language}\n");
    let mut blocks = text.split(&begin).skip(1);
    let block = blocks
        .next()
        .unwrap_or_else(|| panic!("{page} has no block of {language}"));
    block.split("```").next().unwrap().to_owned()
}

/// All words of the lines of a page that begin with this command.
pub fn commands(page: &str, begin: &str) -> Vec<Vec<String>> {
    let path = format!(
        "{}/../../docs/coming-from/{page}",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with(begin));
    let commands: Vec<Vec<String>> = lines
        .map(|line| line.split(' ').map(str::to_owned).collect())
        .collect();
    assert!(!commands.is_empty(), "{page} has no command `{begin}`");
    commands
}

/// The code in the sentences and tables of a page that begins so.
pub fn code_in_text(page: &str, begin: &str) -> Vec<String> {
    let path = format!(
        "{}/../../docs/coming-from/{page}",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(path).unwrap();
    let code = text.split('`').skip(1).step_by(2);
    let code = code.filter(|code| code.starts_with(begin));
    let code: Vec<String> = code.map(str::to_owned).collect();
    assert!(!code.is_empty(), "{page} has no code `{begin}`");
    code
}

/// What becomes of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It runs once.
    Runs,
    /// Its first attempt fails, its second succeeds.
    FailsOnce,
    /// It runs once, and never again.
    Never,
    Cancelled,
}

/// A task, as its owner wants it.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub fate: Fate,
    pub due_s: i64,
    /// Whether the daemon was there when it fell due.
    pub watched: bool,
}

/// A run that a program has written down.
#[derive(Debug, Deserialize)]
struct Ran {
    name: String,
    attempt: u32,
    at_ms: i64,
}

pub struct Owner {
    pub rig: Rig,
    pub shell: Shell,
    directory: TempDir,
    /// The tasks by name.
    pub wanted: BTreeMap<String, Wanted>,
}

impl Owner {
    /// Installs `lapsed` as the first block of the page configures it. `script` is the program of its route.
    pub async fn new(page: &str, script: &str) -> Self {
        Self::with(&block(page, "toml"), script, 0).await
    }

    /// The same with this configuration, and a database of Redis that is not the producer's.
    pub async fn with(configured: &str, script: &str, database: u8) -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path().to_str().unwrap();
        let program = match script {
            "run-delay-queue.php" => {
                let examples = concat!(
                    env!("CARGO_MANIFEST_DIR"),
                    "/../../examples/delay-queue/run-delay-queue.php"
                );
                std::fs::copy(examples, directory.path().join(script)).unwrap();
                let tasks = std::fs::read_to_string(format!("{PROGRAMS}/tasks.php")).unwrap();
                let tasks = tasks.replace("'RAN'", &format!("'{path}/ran'"));
                std::fs::write(directory.path().join("tasks.php"), tasks).unwrap();
                format!("\"{path}/{script}\"")
            }
            // What it writes is beside it.
            "task.py" => {
                let program = format!("{PROGRAMS}/celery/{script}");
                std::fs::copy(program, directory.path().join(script)).unwrap();
                format!("\"{path}/{script}\"")
            }
            _ => format!("\"{PROGRAMS}/worker.php\", \"{path}/ran\""),
        };
        let quoted = format!("\"{script}\"");
        assert!(configured.contains(&quoted), "no route has {script}");
        let settings = configured.replace(&quoted, &program);
        // The name of a type is no argument of this program.
        let settings = settings.replace("\"{method}\"]", "]").replace(", ]", "]");
        let setup = Setup::new(&settings).redis_database(database);
        let rig = setup.without_table().start().await;
        let shell = Shell::of(&rig);
        Self {
            rig,
            shell,
            directory,
            wanted: BTreeMap::new(),
        }
    }

    fn dsn(&self) -> String {
        let url = self.rig.config().ledger.url.expose().to_owned();
        let (address, database) = url.rsplit_once('@').unwrap().1.split_once('/').unwrap();
        let (host, port) = address.split_once(':').unwrap();
        format!("mysql:host={host};port={port};dbname={database};charset=utf8mb4")
    }

    /// Lets the owner's program do this. Returns what it has written.
    pub fn php(&self, does: &[Value]) -> Vec<Value> {
        let mut command = Command::new("php");
        command.arg(format!("{PROGRAMS}/producer.php"));
        command
            .arg(self.rig.redis.port().to_string())
            .arg(self.dsn());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .expect("`php` was not found; run `scripts/install-servers`");
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(json!(does).to_string().as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Remembers what shall become of a task that falls due then.
    pub fn wants(&mut self, name: String, fate: Fate, due_s: i64) {
        let wanted = Wanted {
            fate,
            due_s,
            watched: true,
        };
        assert!(self.wanted.insert(name, wanted).is_none());
    }

    /// Schedules tasks by the command of the design, one each second or more. Their names say what becomes of them. Returns
    /// names and what was written.
    pub fn schedule(
        &mut self,
        batch: &str,
        verb: &str,
        count: usize,
        more: &Value,
    ) -> Vec<(String, Value)> {
        let fates = |number: usize| match number % 10 {
            0 => ("cancel", Fate::Cancelled),
            2 | 3 => ("fail", Fate::FailsOnce),
            4 if verb.starts_with("row.") => ("never", Fate::Never),
            _ => ("run", Fate::Runs),
        };
        let window = window();
        // An entry of a wheel may wait for the next round, an hour later, if its list was read and its visit was then missed. So
        // a busy machine gets more time to take it.
        let lead = if verb == "entry.add" { 20 } else { 8 };
        let (mut does, mut names) = (Vec::new(), Vec::new());
        for number in 0..count {
            let (word, fate) = fates(number);
            let name = format!("{word}-{batch}-{number}");
            let mut task = more.clone();
            task["do"] = json!(verb);
            task["name"] = json!(name);
            task["delay"] = json!(lead + number * window / count.max(1));
            does.push(task);
            names.push((name, fate));
        }
        let written = self.php(&does);
        let mut scheduled = Vec::new();
        for ((name, fate), written) in names.into_iter().zip(written) {
            let due_s = written["due_s"].as_i64().unwrap();
            self.wants(name.clone(), fate, due_s);
            scheduled.push((name, written));
        }
        scheduled
    }

    /// The first step of the pages: the table, and a check of the installation.
    pub fn install(&self) {
        self.shell.text(&["migrate"]);
        let (code, stdout, stderr) = self.shell.run(&["doctor"]);
        assert_eq!(code, 0, "{stdout}{stderr}");
        assert!(!stdout.contains("no route takes"), "{stdout}");
    }

    /// `lapsed listen`, with the environment of the page.
    pub async fn listen(&self, more: &[&str]) -> Process {
        let dsn = self.dsn();
        let env = [
            ("DELAY_QUEUE_DSN", dsn.as_str()),
            ("DELAY_QUEUE_USER", "root"),
            ("DELAY_QUEUE_PASSWORD", ""),
        ];
        let daemon = Process::listen_also(config_file(&self.rig), more, &env);
        daemon.until_logged("starting").await;
        daemon
    }

    /// Redis dies, and returns with what it wrote last.
    pub async fn restore(&mut self) {
        self.rig.redis.kill();
        self.rig.redis.start_again().await.unwrap();
    }

    pub async fn save(&self) {
        let () = self.rig.redis_says(&["SAVE"]).await;
    }

    /// The daemon is stopped and started anew, while tasks fall due.
    pub async fn restart(&mut self, daemon: &mut Process) {
        daemon.signal(rustix::process::Signal::TERM);
        assert!(daemon.until_ended().await.success());
        // Shown if the test fails.
        println!("{}", daemon.log());
        *daemon = self.listen(&[]).await;
    }

    fn ran(&self) -> BTreeMap<String, Vec<Ran>> {
        let text = std::fs::read_to_string(self.path().join("ran")).unwrap_or_default();
        let mut runs: BTreeMap<String, Vec<Ran>> = BTreeMap::new();
        // The last line may be incomplete.
        for line in text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
        {
            let ran: Ran = serde_json::from_str(line).unwrap();
            runs.entry(ran.name.clone()).or_default().push(ran);
        }
        runs
    }

    /// How many tasks of a batch have run.
    pub fn has_run(&self, batch: &str) -> usize {
        let part = format!("-{batch}-");
        self.ran()
            .keys()
            .filter(|name| name.contains(&part))
            .count()
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Waits until all tasks have run that shall, and none waits that is due soon; then counts.
    pub async fn all_is_well(&self) {
        let runs = |wanted: &Wanted| match wanted.fate {
            Fate::Runs | Fate::Never => 1,
            Fate::FailsOnce => 2,
            Fate::Cancelled => 0,
        };
        let expected: usize = self.wanted.values().map(runs).sum();
        let waits_for = fmt::from_fn(|f| {
            let ran = self.ran();
            let count = |name: &String| ran.get(name).map_or(0, Vec::len);
            let few = |(name, wanted): &(&String, &Wanted)| count(name) < runs(wanted);
            let missing: Vec<_> = self.wanted.iter().filter(few).collect();
            write!(f, "all tasks have run: {missing:?}")
        });
        until(waits_for, async || {
            self.ran().values().map(Vec::len).sum::<usize>() >= expected
        })
        .await;
        until("no task waits", async || {
            let waits = "SELECT COUNT(*) FROM tb_time_limit_task \
                         WHERE status = 0 AND sts = 0 AND end_time < UNIX_TIMESTAMP() + 600";
            self.rig.number(waits).await == 0
        })
        .await;
        // What was cancelled would have run by then.
        let last_s = self.wanted.values().map(|wanted| wanted.due_s).max();
        let last_ms = last_s.expect("there are tasks") * 1_000 + 1_000;
        self.rig.until_clock(lapsed::UnixMs(last_ms)).await;
        let ran = self.ran();
        let mut late = Vec::new();
        for (name, wanted) in &self.wanted {
            let none = Vec::new();
            let found = ran.get(name).unwrap_or(&none);
            assert_eq!(found.len(), runs(wanted), "{name}, {wanted:?}: {found:?}");
            if let Some(first) = found.first() {
                assert!(
                    first.at_ms >= wanted.due_s * 1_000,
                    "{name} is early: {wanted:?}, {first:?}"
                );
                let attempts: Vec<u32> = found.iter().map(|run| run.attempt).collect();
                assert_eq!(
                    attempts,
                    (1..=found.len() as u32).collect::<Vec<_>>(),
                    "{name}"
                );
                if wanted.watched {
                    late.push(first.at_ms - wanted.due_s * 1_000);
                }
            }
        }
        let unknown: Vec<&String> = ran
            .keys()
            .filter(|name| !self.wanted.contains_key(*name))
            .collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        late.sort();
        let at = |part: usize| late[(late.len() - 1) * part / 100];
        println!(
            "{} tasks ran; late in ms, the start of PHP included: p50 {}, p99 {}, max {}",
            late.len(),
            at(50),
            at(99),
            at(100)
        );
    }
}

/// The names of the tasks of a batch, what becomes of each, and after how many seconds it falls due.
pub fn batch(name: &str, count: usize) -> Vec<(String, Fate, usize)> {
    let tasks = (0..count).map(|number| {
        let (word, fate) = match number % 10 {
            0 => ("cancel", Fate::Cancelled),
            2 | 3 => ("fail", Fate::FailsOnce),
            _ => ("run", Fate::Runs),
        };
        let delay = match fate {
            // Last, so that a busy machine has time to cancel them.
            Fate::Cancelled => 40 + window(),
            _ => 12 + number * window() / count,
        };
        (format!("{word}-{name}-{number}"), fate, delay)
    });
    tasks.collect()
}

/// For how many seconds tasks of a batch fall due: a process of PHP needs some 50 ms of a processor.
pub fn window() -> usize {
    (tasks() / 16).max(12)
}
