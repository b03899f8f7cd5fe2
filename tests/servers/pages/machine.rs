//! The machine of a reader: the loopback network is its own, so servers have the ports that pages name. Redis and MariaDB are
//! private ones of this process.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use lapsed_sandbox::{PrivateMaria, PrivateRedis};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{sleep, timeout};

use crate::support::wait::DEADLINE;

/// The ports of Redis and MariaDB, as pages write them.
const PORTS: [u16; 2] = [6379, 3306];

/// Where the sockets behind the ports of a machine are.
const PORTS_OF: &str = "LAPSED_TEST_PORTS";

const MARK: &str = "lapsed-page-mark";

/// What a command has done.
#[derive(Debug)]
pub struct Said {
    pub failed: bool,
    pub stdout: String,
    pub stderr: String,
}

pub struct Machine {
    shell: Child,
    stdin: ChildStdin,
    marks: Lines<BufReader<ChildStdout>>,
    commands: usize,
    staying: Vec<PathBuf>,
    /// The directory of the reader.
    pub home: PathBuf,
    directory: TempDir,
    _redis: PrivateRedis,
    maria: Option<PrivateMaria>,
}

impl Machine {
    pub async fn start(with_maria: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let redis = PrivateRedis::start().await.unwrap();
        let maria = match with_maria {
            true => Some(PrivateMaria::start().await.unwrap()),
            false => None,
        };
        open_to(directory.path(), PORTS[0], redis.port());
        if let Some(maria) = &maria {
            open_to(directory.path(), PORTS[1], maria.port());
        }
        let [home, programs] = ["home", "bin"].map(|name| directory.path().join(name));
        for path in [&home, &programs] {
            std::fs::create_dir(path).unwrap();
        }
        let link =
            |to: &Path, name: &str| std::os::unix::fs::symlink(to, programs.join(name)).unwrap();
        link(Path::new(env!("CARGO_BIN_EXE_lapsed")), "lapsed");
        let python = Command::new("python3")
            .args(["-c", "import sys; print(sys.executable)"])
            .output()
            .await;
        let python = String::from_utf8(python.expect("`python3` was not found").stdout).unwrap();
        link(Path::new(python.trim()), "python");
        let redis_cli = Command::new("sh")
            .args(["-c", "command -v redis-cli"])
            .output();
        let redis_cli = String::from_utf8(redis_cli.await.unwrap().stdout).unwrap();
        let mut shell = shell(directory.path())
            .spawn()
            .expect("`unshare` was not found");
        let mut machine = Self {
            stdin: shell.stdin.take().expect("it is piped"),
            marks: BufReader::new(shell.stdout.take().expect("it is piped")).lines(),
            shell,
            commands: 0,
            staying: Vec::new(),
            home,
            directory,
            _redis: redis,
            maria,
        };
        // In a terminal it shows the types of replies.
        machine.program(
            "redis-cli",
            &format!("exec {} --no-raw \"$@\"", redis_cli.trim()),
        );
        let path = std::env::var("PATH").unwrap();
        machine
            .must(&format!("export PATH='{}:{path}'", programs.display()))
            .await;
        machine
            .must("ip link set lo up; hostname vm; export USER=ada")
            .await;
        let serve = format!(
            "'{}' --exact pages::machine::serve_ports --ignored >../ports.log 2>&1 &",
            std::env::current_exe().unwrap().display()
        );
        machine.must(&serve).await;
        machine
            .until_listening(1 + usize::from(with_maria))
            .await
            .unwrap();
        machine
    }

    /// A program that a reader has and this machine has not.
    pub fn program(&self, name: &str, script: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.directory.path().join("bin").join(name);
        std::fs::write(&path, format!("#!/bin/bash\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.home.join(name);
        std::fs::create_dir_all(path.parent().expect("it is in the home")).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Types lines in the shell.
    ///
    /// # Errors
    /// If the shell has ended, or the lines do not end.
    pub async fn type_(&mut self, lines: &str) -> Result<Said, String> {
        self.commands += 1;
        let files = ["out", "err"].map(|end| {
            self.directory
                .path()
                .join(format!("{}.{end}", self.commands))
        });
        let [out, err] = files.each_ref().map(|file| file.display());
        // What fails in the middle is a failure, too, where `set -e` would end a script.
        let typed = format!(
            "failed=; trap 'failed=1' ERR\n{{\n{lines}\n}} >'{out}' 2>'{err}' </dev/null\ntrap - ERR; echo {MARK} $failed\n"
        );
        let written = self.stdin.write_all(typed.as_bytes()).await;
        let answer = match written {
            Ok(()) => timeout(DEADLINE, self.marks.next_line()).await,
            Err(error) => return Err(format!("`{lines}`: {error}")),
        };
        let [stdout, stderr] = files.map(|file| {
            String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).into_owned()
        });
        match answer {
            Ok(Ok(Some(line))) => Ok(Said {
                failed: line.trim() != MARK,
                stdout,
                stderr,
            }),
            Ok(_) => Err(format!("`{lines}` has ended the shell: {stdout}{stderr}")),
            Err(_) => Err(format!("`{lines}` does not end: {stdout}{stderr}")),
        }
    }

    async fn must(&mut self, line: &str) -> String {
        let said = self.type_(line).await.unwrap();
        assert!(!said.failed, "`{line}`: {}{}", said.stdout, said.stderr);
        said.stdout
    }

    /// Types a command in a terminal of its own. Returns when it listens on a port more than the others.
    ///
    /// # Errors
    /// If it ends, or listens on none.
    pub async fn leave(&mut self, command: &str) -> Result<(), String> {
        let before = self.listening().await?;
        self.leave_without_port(command).await?;
        // Workers, and what moves tasks, listen nowhere.
        if !["listen", "dev", "docker run", ".mjs", ".py", " -S "]
            .iter()
            .any(|word| command.contains(word))
        {
            return Ok(());
        }
        self.until_listening(before + 1).await
    }

    /// Types a command in a terminal of its own.
    ///
    /// # Errors
    /// If the shell has ended.
    pub async fn leave_without_port(&mut self, command: &str) -> Result<(), String> {
        let command = command.trim_end().trim_end_matches(" &");
        let log = self
            .directory
            .path()
            .join(format!("terminal-{}", self.staying.len()));
        // A process group of its own, which Ctrl-C reaches.
        let typed = format!(
            "set -m\n{{ {command}\n}} >'{}' 2>&1 </dev/null &\nstaying=$!; groups=\"$groups -$staying\"; set +m",
            log.display()
        );
        self.staying.push(log);
        let said = self.type_(&typed).await?;
        match said.failed {
            true => Err(said.stderr),
            false => Ok(()),
        }
    }

    /// Ctrl-C in each terminal.
    ///
    /// # Errors
    /// If the shell has ended.
    pub async fn stop(&mut self) -> Result<(), String> {
        let servers = 1 + usize::from(self.maria.is_some());
        self.type_("kill -INT -- $groups; groups=; staying=")
            .await?;
        let deadline = tokio::time::Instant::now() + DEADLINE;
        while self.listening().await? > servers {
            if tokio::time::Instant::now() > deadline {
                return Err(format!("a program goes on after Ctrl-C: {}", self.log()));
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// The lines of a page that a command prints, and those of other terminals, which are more than it has printed.
    pub fn parts(&self, page: &str, stdout: &str) -> (String, String) {
        let own = stdout.lines().count();
        let is_cut = page.lines().any(|line| matches!(line.trim(), ".." | "..."));
        match self.staying.is_empty() || own == 0 || is_cut {
            true => (page.to_owned(), String::new()),
            false => {
                let lines =
                    |part: Vec<&str>| part.into_iter().map(|line| format!("{line}\n")).collect();
                (
                    lines(page.lines().take(own).collect()),
                    lines(page.lines().skip(own).collect()),
                )
            }
        }
    }

    /// What the terminals show.
    pub fn log(&self) -> String {
        let read = |path: &PathBuf| {
            String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
        };
        self.staying.iter().map(read).collect()
    }

    /// The number of TCP ports that programs listen on.
    async fn listening(&mut self) -> Result<usize, String> {
        let said = self
            .type_("cat /proc/self/net/tcp /proc/self/net/tcp6")
            .await?;
        let states = said
            .stdout
            .lines()
            .filter_map(|line| line.split_whitespace().nth(3));
        Ok(states.filter(|state| *state == "0A").count())
    }

    async fn until_listening(&mut self, count: usize) -> Result<(), String> {
        let deadline = tokio::time::Instant::now() + DEADLINE;
        loop {
            if self.listening().await? >= count {
                return Ok(());
            }
            let ended = self
                .type_("[ -z \"$staying\" ] || kill -0 $staying")
                .await?;
            if ended.failed || tokio::time::Instant::now() > deadline {
                return Err(format!("it does not listen: {}", self.log()));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sends statements to the database, as its administrator.
    ///
    /// # Errors
    /// What the server refuses.
    pub async fn sql(&self, statements: &str, database: &str) -> Result<(), String> {
        let maria = self.maria.as_ref().expect("the page has a database");
        let mut connection = MySqlConnection::connect(&maria.url(database))
            .await
            .unwrap();
        let done = sqlx::raw_sql(AssertSqlSafe(statements.to_owned()))
            .execute(&mut connection)
            .await;
        done.map(|_| ())
            .map_err(|error| format!("{statements}: {error}"))
    }

    /// # Errors
    /// What the server refuses.
    pub async fn create_database(&self, name: &str) -> Result<(), String> {
        self.sql(&format!("CREATE DATABASE IF NOT EXISTS {name}"), "")
            .await
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // With the first process of the PID namespace, all others die.
        let _ = self.shell.start_kill();
    }
}

/// Runs a program with processes and a network of its own.
fn alone(program: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "--uts", "--pid", "--fork", "--mount-proc"]);
    command.arg("--kill-child=KILL").args(program);
    command
}

/// Why this machine allows no network of a page's own, if it does not.
pub async fn refusal() -> Option<String> {
    let asked = alone(&["true"]).output().await;
    let answer = asked.expect("`unshare` was not found; run `scripts/install-servers --tests`");
    let errors = String::from_utf8_lossy(&answer.stderr).replace('\n', "; ");
    (!answer.status.success()).then_some(errors)
}

/// A shell in `directory/home`.
fn shell(directory: &Path) -> Command {
    let mut command = alone(&["bash", "--norc"]);
    let settings = std::env::vars_os().map(|(name, _)| name);
    for name in settings.filter(|name| name.as_encoded_bytes().starts_with(b"LAPSED")) {
        command.env_remove(name);
    }
    command.env(PORTS_OF, directory);
    command.current_dir(directory.join("home"));
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Serves a socket in `directory`, behind which a port of this process's network is.
fn open_to(directory: &Path, name: u16, port: u16) {
    let listener = UnixListener::bind(directory.join(name.to_string())).unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                if let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                }
            });
        }
    });
}

#[tokio::test]
#[ignore = "a program in the network of a machine: the ports of its servers"]
async fn serve_ports() {
    let directory = PathBuf::from(std::env::var_os(PORTS_OF).expect("started by a machine"));
    for port in PORTS {
        let socket = directory.join(port.to_string());
        if !socket.exists() {
            continue;
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .unwrap();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let socket = socket.clone();
                tokio::spawn(async move {
                    if let Ok(mut server) = UnixStream::connect(socket).await {
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
    }
    std::future::pending().await
}
