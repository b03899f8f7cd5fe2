//! A daemon in a process of its own, to be killed and stopped: this test binary once more, as a program.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use lapsed::{Config, Engine, MysqlTask, TaskContext};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;

use crate::rig::{Rig, handlers, take_effect, until, write_down};

/// Names the configuration of the daemon that [`serve`] is to be.
const CONFIG: &str = "E2E_WORKER_CONFIG";

/// Besides [`handlers`]: `Job@slow@<ms>` completes with an effect that long after its start, and
/// `Job@kills` takes its daemon down.
#[tokio::test]
#[ignore = "a program for the other tests to start"]
async fn serve() {
    let config = config_of_program();
    tracing_subscriber::fmt().with_ansi(false).init();
    let mut handlers = handlers();
    handlers.on(
        "Job",
        "slow",
        |task: TaskContext, (ms,): (u64,)| async move {
            write_down(&task).await?;
            let mut tx = task.begin().await?;
            take_effect(&task, &mut tx).await?;
            tokio::time::sleep(Duration::from_millis(ms)).await;
            task.complete_in(tx).await
        },
    );
    handlers.on("Job", "kills", |task: TaskContext, ()| async move {
        write_down(&task).await?;
        std::process::abort();
    });
    Engine::new(config, handlers)
        .run_until(std::future::pending())
        .await
        .unwrap();
}

/// The configuration that this process was started with as a program.
pub fn config_of_program() -> Config {
    let file = std::env::var_os(CONFIG).expect("started by another test");
    Config::load(Some(Path::new(&file))).unwrap()
}

/// A daemon process; killed on drop.
pub struct Process {
    child: Child,
    log: NamedTempFile,
    config: NamedTempFile,
}

impl Process {
    /// A daemon with the handlers of [`serve`].
    pub fn worker(rig: &Rig) -> Self {
        Self::program("worker::serve", config_file(rig), &[])
    }

    /// An ignored test of this binary as a program, which finds its configuration by [`config_of_program`].
    pub fn program(test: &str, config: NamedTempFile, env: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--ignored", "--nocapture"]);
        command.env(CONFIG, config.path()).envs(env.iter().copied());
        Self::start(command, config)
    }

    /// As [`worker`](Self::worker), in a PID namespace of its own; `None` where this machine allows none.
    pub fn worker_in_a_container(rig: &Rig) -> Option<Self> {
        let unshare = |rights: &[&str]| {
            let mut command = Command::new("unshare");
            command.args(rights);
            command.args(["--pid", "--fork", "--mount-proc", "--kill-child=KILL"]);
            command
        };
        let as_user: &[&str] = &["--user", "--map-root-user"];
        let is_allowed = |rights: &&&[&str]| {
            let mut command = unshare(rights);
            command.arg("true").stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        let rights = [&[], as_user];
        let mut command = unshare(rights.iter().find(is_allowed)?);
        let config = config_file(rig);
        command.arg(std::env::current_exe().unwrap());
        command.args(["--exact", "worker::serve", "--ignored", "--nocapture"]);
        command.env(CONFIG, config.path());
        Some(Self::start(command, config))
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

    fn start(mut command: Command, config: NamedTempFile) -> Self {
        let log = NamedTempFile::new().unwrap();
        command.stdin(Stdio::null());
        command.stdout(log.reopen().unwrap());
        command.stderr(log.reopen().unwrap());
        let child = command.spawn().unwrap();
        Self { child, log, config }
    }

    /// The path of its configuration.
    pub fn config(&self) -> &Path {
        self.config.path()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// SIGKILL; returns when it is gone.
    pub fn kill(&mut self) {
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

    pub async fn until_logged(&self, text: &str) {
        until(format!("it has logged `{text}`"), async || {
            self.log().contains(text)
        })
        .await;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only for a process that is already reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

/// The program, without settings from this process's environment.
pub fn lapsed() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lapsed"));
    command.env_remove("LAPSED_CONFIG");
    command
}

pub fn config_file(rig: &Rig) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), rig.config_text()).unwrap();
    file
}
