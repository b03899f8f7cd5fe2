//! A daemon in a process of its own, to be killed and stopped.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use lapsed::Config;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};
use tempfile::NamedTempFile;

use crate::support::program::{lapsed, said};
use crate::support::rig::Rig;
use crate::support::wait::until;

/// Names the configuration of a program that is an ignored test of this binary.
const CONFIG: &str = "LAPSED_TEST_PROGRAM_CONFIG";

/// The ignored test that is a daemon with handlers for killing it.
const WORKER: &str = "end_to_end::worker::serve";

/// The configuration that this process was started with as a program.
pub fn config_of_program() -> Config {
    let file = std::env::var_os(CONFIG).expect("started by another test");
    Config::load(Some(Path::new(&file))).unwrap()
}

/// A daemon process; killed on drop, together with every process group below it.
pub struct Process {
    child: Child,
    /// What it had started when it was [killed](Self::kill).
    orphans: Vec<Started>,
    log: NamedTempFile,
    config: NamedTempFile,
}

impl Process {
    /// A daemon with the handlers of `end_to_end::worker`.
    pub fn worker(rig: &Rig) -> Self {
        Self::program(WORKER, config_file(rig), &[])
    }

    /// The same with this configuration and environment.
    pub fn worker_with(config: NamedTempFile, env: &[(&str, &str)]) -> Self {
        Self::program(WORKER, config, env)
    }

    /// An ignored test of this binary as a program, which finds its configuration by [`config_of_program`].
    pub fn program(test: &str, config: NamedTempFile, env: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--ignored", "--nocapture"]);
        command.env(CONFIG, config.path()).envs(env.iter().copied());
        Self::start(command, config)
    }

    /// As [`worker`](Self::worker), in a PID namespace of its own. The error says why this machine allows none.
    pub fn worker_in_a_pid_namespace(rig: &Rig) -> Result<Self, String> {
        let unshare = |rights: &[&str]| {
            let mut command = Command::new("unshare");
            command.args(rights);
            command.args(["--pid", "--fork", "--mount-proc", "--kill-child=KILL"]);
            command
        };
        let as_user: &[&str] = &["--user", "--map-root-user"];
        let mut refusals = Vec::new();
        let allowed = [&[], as_user].into_iter().find(|rights| {
            match unshare(rights).arg("true").output() {
                Ok(output) if output.status.success() => return true,
                Ok(output) => refusals.push(String::from_utf8_lossy(&output.stderr).into_owned()),
                Err(error) => refusals.push(format!("cannot run `unshare`: {error}")),
            }
            false
        });
        let mut command = unshare(allowed.ok_or_else(|| refusals.concat().replace('\n', "; "))?);
        let config = config_file(rig);
        command.arg(std::env::current_exe().unwrap());
        command.args(["--exact", WORKER, "--ignored", "--nocapture"]);
        command.env(CONFIG, config.path());
        Ok(Self::start(command, config))
    }

    /// `lapsed listen`.
    pub fn listen(rig: &Rig, env: &[(&str, &str)]) -> Self {
        Self::listen_with(config_file(rig), env)
    }

    /// `lapsed listen --hold-overdue`.
    pub fn listen_holding(rig: &Rig) -> Self {
        let config = config_file(rig);
        let mut command = lapsed();
        command.args(["listen", "--hold-overdue", "--config"]);
        command.arg(config.path());
        Self::start(command, config)
    }

    /// `lapsed listen` with this configuration, which may change later.
    pub fn listen_with(config: NamedTempFile, env: &[(&str, &str)]) -> Self {
        let mut command = lapsed();
        command.arg("listen").envs(env.iter().copied());
        command.arg("--config").arg(config.path());
        Self::start(command, config)
    }

    /// `lapsed listen` on an SQLite file in this directory, with these settings.
    pub fn on_a_file(directory: &Path, settings: &str) -> Self {
        let config = NamedTempFile::new().unwrap();
        let file = directory.join("lapsed.db");
        let text = format!("ledger.url = 'sqlite://{}'\n{settings}", file.display());
        std::fs::write(config.path(), text).unwrap();
        let mut migrate = lapsed();
        migrate.arg("migrate").arg("--config").arg(config.path());
        let (code, _, error) = said(migrate.output().unwrap());
        assert_eq!(code, 0, "{error}");
        Self::listen_with(config, &[])
    }

    /// `lapsed listen` with this configuration and more options.
    pub fn listen_also(config: NamedTempFile, options: &[&str], env: &[(&str, &str)]) -> Self {
        let mut command = lapsed();
        command
            .arg("listen")
            .args(options)
            .envs(env.iter().copied());
        command.arg("--config").arg(config.path());
        Self::start(command, config)
    }

    pub fn start(mut command: Command, config: NamedTempFile) -> Self {
        let log = NamedTempFile::new().unwrap();
        command.stdin(Stdio::null());
        command.stdout(log.reopen().unwrap());
        command.stderr(log.reopen().unwrap());
        let child = command.spawn().unwrap();
        Self {
            child,
            orphans: Vec::new(),
            log,
            config,
        }
    }

    /// The path of its configuration.
    pub fn config(&self) -> &Path {
        self.config.path()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// SIGSTOP; returns when no thread of it runs: the signal alone takes effect later. SIGCONT ends it.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        // NOWAIT keeps the state for others that ask.
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(pid), stopped).unwrap();
    }

    /// SIGKILL; returns when it is gone. What it had started goes on until this is dropped.
    pub fn kill(&mut self) {
        self.orphans.extend(Started::by(self.child.id()));
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub async fn until_ended(&mut self) -> ExitStatus {
        let child = std::cell::RefCell::new(&mut self.child);
        until("the process has ended", async || {
            child.borrow_mut().try_wait().unwrap().is_some()
        })
        .await;
        self.child.wait().unwrap()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log.path()).unwrap()
    }

    /// The address of its server `http` or `resp`, when that is open.
    pub async fn address(&self, server: &str) -> SocketAddr {
        let field = format!("{server}.address=");
        let logged = || {
            let log = self.log();
            let (_, rest) = log.split_once(&field)?;
            let (address, _) = rest.split_once(char::is_whitespace)?;
            address.parse().ok()
        };
        until(format!("it serves {server}"), async || logged().is_some()).await;
        logged().expect("it was logged")
    }

    pub async fn until_logged(&self, text: &str) {
        until(format!("it has logged `{text}`"), async || {
            self.log().contains(text)
        })
        .await;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill();
        }
        for started in &self.orphans {
            started.kill();
        }
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

/// A process that a daemon started, directly or not.
#[derive(PartialEq, Eq)]
struct Started {
    pid: i32,
    parent: i32,
    group: i32,
    /// In clock ticks since the boot: tells it from a later process with the same id.
    at: String,
}

impl Started {
    fn read(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, fields) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        Some(Self {
            pid,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            at: (*fields.get(19)?).to_owned(),
        })
    }

    /// All processes below this one.
    fn by(pid: u32) -> Vec<Self> {
        let directories = std::fs::read_dir("/proc").unwrap();
        let names = directories.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut all: Vec<Self> = names
            .filter_map(|name| Self::read(name.parse().ok()?))
            .collect();
        let (mut parents, mut below) = (vec![pid.cast_signed()], Vec::new());
        while let Some(parent) = parents.pop() {
            for child in all.extract_if(.., |process| process.parent == parent) {
                parents.push(child.pid);
                below.push(child);
            }
        }
        below
    }

    /// Kills its process group if it leads one, and otherwise the process alone.
    fn kill(&self) {
        // It was adopted by another process when its daemon died.
        let still = Self::read(self.pid).is_some_and(|now| now.at == self.at);
        let Some(pid) = Pid::from_raw(self.pid).filter(|_| still) else {
            return;
        };
        // It may end in this moment.
        let _ = match self.group == self.pid {
            true => kill_process_group(pid, Signal::KILL),
            false => kill_process(pid, Signal::KILL),
        };
    }
}

pub fn config_file(rig: &Rig) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), rig.config_text()).unwrap();
    file
}
