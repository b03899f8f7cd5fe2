use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, mpsc};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use tokio::time::{Instant, sleep, timeout};

use super::SandboxError;

const READY_WITHIN: Duration = Duration::from_secs(30);
const STOPPED_WITHIN: Duration = Duration::from_secs(30);
const PROBE_WITHIN: Duration = Duration::from_secs(2);
const PROBE_EVERY: Duration = Duration::from_millis(10);
const LOG_TAIL_LINES: usize = 20;

/// Directories of servers on Debian that are not in the PATH of an ordinary user.
const SERVER_DIRS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// One server process, running or not. Killed on drop.
#[derive(Debug)]
pub(super) struct Server {
    program: PathBuf,
    log: PathBuf,
    /// The words before its command.
    enter: Vec<OsString>,
    child: Option<Child>,
}

impl Server {
    pub(super) fn new(program: PathBuf, log: PathBuf) -> Self {
        Self {
            program,
            log,
            enter: Vec::new(),
            child: None,
        }
    }

    /// Runs it on another machine: `enter` are the words before its command.
    pub(super) fn enter(&mut self, enter: Vec<OsString>) {
        self.enter = enter;
    }

    /// Starts the process, after killing a running one, and waits until `is_ready` returns true.
    ///
    /// `is_ready` gets the process id, so that it can tell our server from another one on the same port.
    pub(super) async fn start<R>(
        &mut self,
        args: &[OsString],
        is_ready: impl Fn(u32) -> R,
    ) -> Result<(), SandboxError>
    where
        // Not `AsyncFn`, which cannot promise that its futures are `Send`.
        R: Future<Output = bool> + Send,
    {
        self.kill();
        let child = spawn(self.command(args)?)
            .map_err(SandboxError::io(|| format!("start `{}`", self.name())))?;
        let pid = child.id();
        self.child = Some(child);

        let deadline = Instant::now() + READY_WITHIN;
        while !timeout(PROBE_WITHIN, is_ready(pid)).await.unwrap_or(false) {
            if let Some(status) = self.exited()? {
                self.child = None;
                return Err(SandboxError::Ended {
                    program: self.name(),
                    status,
                    log: self.log_tail(),
                });
            }
            if Instant::now() >= deadline {
                self.kill();
                return Err(SandboxError::NotReady {
                    program: self.name(),
                    seconds: READY_WITHIN.as_secs(),
                    log: self.log_tail(),
                });
            }
            sleep(PROBE_EVERY).await;
        }
        Ok(())
    }

    /// Starts the process, after killing a running one, and waits until it ends by itself. Returns the log.
    pub(super) async fn run_to_end(&mut self, args: &[OsString]) -> Result<String, SandboxError> {
        // It is "ready" as soon as it runs.
        self.start(args, |_| std::future::ready(true)).await?;
        let deadline = Instant::now() + STOPPED_WITHIN;
        while self.exited()?.is_none() {
            if Instant::now() >= deadline {
                self.kill();
                return Err(SandboxError::NotReady {
                    program: self.name(),
                    seconds: STOPPED_WITHIN.as_secs(),
                    log: self.log_tail(),
                });
            }
            sleep(PROBE_EVERY).await;
        }
        self.child = None;
        fs::read_to_string(&self.log).map_err(SandboxError::io(|| {
            format!("read `{}`", self.log.display())
        }))
    }

    fn command(&self, args: &[OsString]) -> Result<Command, SandboxError> {
        let mut command = Command::new(locate("setpriv", "util-linux")?);
        command
            .args(["--pdeathsig", "KILL", "--"])
            .args(&self.enter)
            .arg(&self.program)
            .args(args)
            .stdin(Stdio::null());
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .and_then(|log| Ok((log.try_clone()?, log)));
        let (out, err) = log.map_err(SandboxError::io(|| {
            format!("open `{}`", self.log.display())
        }))?;
        command.stdout(out).stderr(err);
        Ok(command)
    }

    /// Sends SIGKILL, also to a stopped process. Returns when it is gone.
    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Both fail only for a process that is already reaped.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends SIGTERM and waits until the process has ended.
    pub(super) async fn terminate(&mut self) -> Result<(), SandboxError> {
        self.signal(Signal::TERM)?;
        let deadline = Instant::now() + STOPPED_WITHIN;
        while self.exited()?.is_none() {
            if Instant::now() >= deadline {
                return Err(SandboxError::NotStopped {
                    program: self.name(),
                    seconds: STOPPED_WITHIN.as_secs(),
                });
            }
            sleep(PROBE_EVERY).await;
        }
        self.child = None;
        Ok(())
    }

    /// Sends SIGSTOP and waits until no thread of the process runs: the signal alone takes effect later.
    pub(super) fn stop(&self) -> Result<(), SandboxError> {
        self.signal(Signal::STOP)?;
        // NOWAIT keeps the state, so that stopping twice does not wait forever.
        let until = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
        rustix::process::waitid(WaitId::Pid(self.pid()?), until)
            .map(drop)
            .map_err(io::Error::from)
            .map_err(SandboxError::io(|| format!("stop `{}`", self.name())))
    }

    /// Sends SIGCONT: ends [`stop`](Self::stop).
    pub(super) fn resume(&self) -> Result<(), SandboxError> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<(), SandboxError> {
        rustix::process::kill_process(self.pid()?, signal)
            .map_err(io::Error::from)
            .map_err(SandboxError::io(|| format!("signal `{}`", self.name())))
    }

    fn pid(&self) -> Result<Pid, SandboxError> {
        self.child
            .as_ref()
            .and_then(|child| Pid::from_raw(child.id().cast_signed()))
            .ok_or_else(|| SandboxError::NotRunning {
                program: self.name(),
            })
    }

    /// The process, while it runs.
    pub(super) fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    fn exited(&mut self) -> Result<Option<ExitStatus>, SandboxError> {
        let name = self.name();
        self.child
            .as_mut()
            .map_or(Ok(None), Child::try_wait)
            .map_err(SandboxError::io(|| format!("wait for `{name}`")))
    }

    fn name(&self) -> String {
        self.program.display().to_string()
    }

    fn log_tail(&self) -> String {
        match fs::read(&self.log) {
            Ok(log) => tail(&String::from_utf8_lossy(&log)),
            Err(error) => format!("(cannot read `{}`: {error})", self.log.display()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Finds a program as a shell would, and in the directories for servers.
pub(super) fn locate(program: &str, package: &'static str) -> Result<PathBuf, SandboxError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = if program.contains('/') {
        Some(PathBuf::from(program)).filter(|path| path.is_file())
    } else {
        std::env::split_paths(&path)
            .chain(SERVER_DIRS.iter().map(PathBuf::from))
            .map(|dir| dir.join(program))
            .find(|path| path.is_file())
    };
    found.ok_or_else(|| SandboxError::Missing {
        program: program.to_owned(),
        package,
    })
}

/// Runs a helper program to its end and returns its standard output.
pub(super) fn run(program: &Path, args: &[OsString]) -> Result<String, SandboxError> {
    let name = program.display().to_string();
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(SandboxError::io(|| format!("run `{name}`")))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(SandboxError::Ended {
        program: name,
        status: output.status,
        log: tail(&(text + &String::from_utf8_lossy(&output.stderr))),
    })
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}

type Order = (Command, mpsc::Sender<io::Result<Child>>);

/// Spawns from one thread that lives as long as this process.
///
/// Linux sends the parent-death signal when the *thread* that forked ends, so a server started from a worker of a
/// short-lived runtime would die with that worker.
fn spawn(command: Command) -> io::Result<Child> {
    static SPAWNER: LazyLock<mpsc::Sender<Order>> = LazyLock::new(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, reply) in inbox {
                // If the caller is gone, its child handle is dropped and the server ends with this process.
                let _ = reply.send(command.spawn());
            }
        });
        orders
    });
    let (reply, answer) = mpsc::channel();
    SPAWNER
        .send((command, reply))
        .expect("the spawner never ends");
    answer.recv().expect("the spawner answers every order")
}
