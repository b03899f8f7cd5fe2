use std::ffi::OsString;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, MySqlConnection};

use super::SandboxError;
use super::home::{self, Home};
use super::network::Machine;
use super::port::free_port;
use super::process::{Server, locate, run};

const PORT_TRIES: usize = 5;
const PACKAGE: &str = "mariadb-server";

/// The option of a server in a Galera cluster.
pub(super) const WSREP: &str = "--wsrep-on=ON";

/// A private MariaDB server without password, binary log or performance schema.
#[derive(Debug)]
pub struct PrivateMaria {
    // Declared first, so that the server is dead before its directory is removed.
    server: Server,
    home: Home,
    host: Ipv4Addr,
    port: u16,
    args: Vec<OsString>,
}

/// How to start a [`PrivateMaria`].
#[derive(Debug, Clone)]
pub struct MariaOptions {
    program: String,
    installer: String,
    buffer_pool: String,
    durable: bool,
    args: Vec<OsString>,
}

impl Default for MariaOptions {
    fn default() -> Self {
        Self {
            program: "mariadbd".to_owned(),
            installer: "mariadb-install-db".to_owned(),
            buffer_pool: "64M".to_owned(),
            durable: false,
            args: Vec::new(),
        }
    }
}

impl MariaOptions {
    /// The server's name in PATH, or its path.
    #[must_use]
    pub fn program(mut self, program: impl Into<String>) -> Self {
        self.program = program.into();
        self
    }

    /// The name or path of the `mariadb-install-db` that belongs to the server.
    #[must_use]
    pub fn installer(mut self, installer: impl Into<String>) -> Self {
        self.installer = installer.into();
        self
    }

    /// `innodb_buffer_pool_size`, as the server writes it; 64M by default.
    #[must_use]
    pub fn buffer_pool(mut self, size: impl Into<String>) -> Self {
        self.buffer_pool = size.into();
        self
    }

    /// True if each commit waits for the disk, as in production. Off by default: tests kill servers, not machines.
    #[must_use]
    pub fn durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }

    /// Any other server option: `.set("max-connections", "500")`. The last one of a name wins.
    #[must_use]
    pub fn set(mut self, option: &str, value: &str) -> Self {
        self.args.push(format!("--{option}={value}").into());
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// The first start on a machine also builds a template data directory, which later ones copy.
    ///
    /// # Errors
    /// If a program is missing, ends, or is not ready within 30 s; the message then ends with its log.
    pub async fn start(self) -> Result<PrivateMaria, SandboxError> {
        let mut maria = self.prepare(None).await?;
        for _ in 1..PORT_TRIES {
            maria.port = free_port();
            match maria.launch().await {
                Err(SandboxError::Ended { log, .. }) if log.contains("Address already in use") => {}
                started => return started.map(|()| maria),
            }
        }
        maria.port = free_port();
        maria.launch().await.map(|()| maria)
    }

    /// Makes a server that does not run yet, with a copy of `data`, or of the template.
    pub(super) async fn prepare(self, data: Option<PathBuf>) -> Result<PrivateMaria, SandboxError> {
        let program = locate(&self.program, PACKAGE)?;
        let home = tokio::task::spawn_blocking({
            let (program, installer) = (program.clone(), self.installer.clone());
            move || {
                let data = data.map_or_else(|| template(&program, &installer), Ok)?;
                furnish(&data)
            }
        })
        .await
        .expect("the task is never aborted and does not panic")?;
        let server = Server::new(program, home.path().join("log"));
        Ok(PrivateMaria {
            server,
            home,
            host: Ipv4Addr::LOCALHOST,
            port: free_port(),
            args: self.server_args(),
        })
    }

    fn server_args(&self) -> Vec<OsString> {
        let mut args = vec![format!("--innodb-buffer-pool-size={}", self.buffer_pool)];
        let durability: &[&str] = if self.durable {
            &["--innodb-flush-log-at-trx-commit=1"]
        } else {
            &[
                "--innodb-flush-log-at-trx-commit=0",
                "--innodb-doublewrite=0",
                "--innodb-log-file-size=32M",
            ]
        };
        args.extend(durability.iter().map(ToString::to_string));
        args.into_iter()
            .map(OsString::from)
            .chain(self.args.iter().cloned())
            .collect()
    }
}

impl PrivateMaria {
    /// Starts a server with the default options.
    ///
    /// # Errors
    /// As [`MariaOptions::start`].
    pub async fn start() -> Result<Self, SandboxError> {
        Self::options().start().await
    }

    /// Options for a server.
    #[must_use]
    pub fn options() -> MariaOptions {
        MariaOptions::default()
    }

    /// The URL of a database, over TCP as root; it stays the same through restarts.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("mysql://root@{}:{}/{database}", self.host, self.port)
    }

    /// The address it listens on: 127.0.0.1, or that of its machine in a [`PrivateNetwork`](super::PrivateNetwork).
    #[must_use]
    pub fn host(&self) -> Ipv4Addr {
        self.host
    }

    /// The port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The id of its process, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.server.id()
    }

    /// The path of the unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.home.path().join("socket")
    }

    /// The URL of a database over the unix socket.
    ///
    /// Over TCP the driver, which leaves Nagle's algorithm on, now and then waits 40 ms for an acknowledgement.
    #[must_use]
    pub fn socket_url(&self, database: &str) -> String {
        format!(
            "mysql://root@localhost/{database}?socket={}",
            self.socket().display()
        )
    }

    /// Creates a database and returns its URL.
    ///
    /// # Errors
    /// If the database exists, or the server does not answer.
    pub async fn create_database(&self, name: &str) -> Result<String, SandboxError> {
        let mut connection = self.connect().await?;
        let quoted = name.replace('`', "``");
        let statement = format!("CREATE DATABASE `{quoted}` CHARACTER SET utf8mb4");
        sqlx::raw_sql(AssertSqlSafe(statement))
            .execute(&mut connection)
            .await?;
        connection.close().await?;
        Ok(self.url(name))
    }

    /// Sends SIGKILL, like a crash of the server; committed data stays.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Sends SIGTERM and waits until the server has flushed its data and ended.
    ///
    /// # Errors
    /// If it is not running, or still runs after 30 s.
    pub async fn shutdown(&mut self) -> Result<(), SandboxError> {
        self.server.terminate().await
    }

    /// Kills the server if it runs and starts it on the same port and data.
    ///
    /// # Errors
    /// As [`MariaOptions::start`]; also if another process listens on the port.
    pub async fn restart(&mut self) -> Result<(), SandboxError> {
        self.launch().await
    }

    /// Sends SIGSTOP: connections are accepted but not answered. In effect when this returns.
    ///
    /// # Errors
    /// If the server is not running.
    pub fn stop_process(&self) -> Result<(), SandboxError> {
        self.server.stop()
    }

    /// Sends SIGCONT: ends [`stop_process`](Self::stop_process).
    ///
    /// # Errors
    /// If the server is not running.
    pub fn continue_process(&self) -> Result<(), SandboxError> {
        self.server.resume()
    }

    /// Starts with more options than it has otherwise.
    pub(super) async fn launch_with(&mut self, options: &[String]) -> Result<(), SandboxError> {
        let args = self.args.len();
        self.args.extend(options.iter().map(OsString::from));
        let launched = self.launch().await;
        self.args.truncate(args);
        launched
    }

    /// Runs the server program with more options, with which it ends by itself. Returns its log.
    pub(super) async fn run_to_end(&mut self, options: &[&str]) -> Result<String, SandboxError> {
        let mut args = self.command_line();
        args.extend(options.iter().map(OsString::from));
        self.server.run_to_end(&args).await
    }

    /// Adds an option.
    pub(super) fn set(&mut self, option: &str) {
        self.args.push(option.into());
    }

    /// Gives its files to this user, if we are root.
    pub(super) fn belong_to(&self, user: &str) -> Result<(), SandboxError> {
        if rustix::process::geteuid().is_root() {
            let words = ["-R".into(), user.into(), self.home.path().into()];
            run(&locate("chown", "coreutils")?, &words)?;
        }
        Ok(())
    }

    /// Lets root connect from other machines.
    pub(super) async fn admit_other_machines(&self) -> Result<(), SandboxError> {
        let mut connection = self.connect().await?;
        sqlx::raw_sql("CREATE USER root; GRANT ALL ON *.* TO root WITH GRANT OPTION")
            .execute(&mut connection)
            .await?;
        Ok(connection.close().await?)
    }

    /// Lets it run on a machine of a network.
    pub(super) fn place(&mut self, machine: &Machine) -> Result<(), SandboxError> {
        self.server.enter(machine.enter()?);
        self.host = machine.address;
        Ok(())
    }

    pub(super) fn data_dir(&self) -> PathBuf {
        data_dir(self.home.path())
    }

    async fn launch(&mut self) -> Result<(), SandboxError> {
        let (data, address) = (self.data_dir(), (self.host, self.port));
        let replicated = self.args.iter().any(|option| option == WSREP);
        let is_ours = |_pid| {
            let data = data.clone();
            async move {
                answering_data_dir(address, replicated)
                    .await
                    .is_ok_and(|found| Path::new(&found) == data)
            }
        };
        let args = self.command_line();
        self.server.start(&args, is_ours).await
    }

    fn command_line(&self) -> Vec<OsString> {
        let home = self.home.path();
        let mut args: Vec<OsString> = vec!["--no-defaults".into()];
        args.extend(run_as_root());
        args.push(format!("--bind-address={}", self.host).into());
        args.extend(
            [
                "--skip-name-resolve",
                "--skip-log-bin",
                "--performance-schema=0",
            ]
            .map(OsString::from),
        );
        args.push(option("--datadir", &data_dir(home)));
        // A starting server would delete temporary tables of other servers there.
        args.push(option("--tmpdir", home));
        args.push(option("--socket", &self.socket()));
        args.push(option("--pid-file", &home.join("pid")));
        args.push(format!("--port={}", self.port).into());
        args.extend(self.args.iter().cloned());
        args
    }

    async fn connect(&self) -> Result<MySqlConnection, sqlx::Error> {
        connect_options((self.host, self.port)).connect().await
    }
}

pub(super) fn connect_options((host, port): (Ipv4Addr, u16)) -> MySqlConnectOptions {
    MySqlConnectOptions::new()
        .host(&host.to_string())
        .port(port)
        .username("root")
        .ssl_mode(MySqlSslMode::Disabled)
}

/// Data directory of the server that answers at this address: proof that it is ours. An error while a node of a cluster has not
/// joined it.
async fn answering_data_dir(
    address: (Ipv4Addr, u16),
    replicated: bool,
) -> Result<String, sqlx::Error> {
    let mut connection = connect_options(address).connect().await?;
    if replicated {
        sqlx::query("SHOW GLOBAL STATUS WHERE Variable_name = 'wsrep_ready' AND Value = 'ON'")
            .fetch_one(&mut connection)
            .await?;
    }
    let dir = sqlx::query_scalar("SELECT CAST(@@datadir AS CHAR)")
        .fetch_one(&mut connection)
        .await?;
    connection.close().await?;
    Ok(dir)
}

fn data_dir(home: &Path) -> PathBuf {
    home.join("data")
}

/// A new home with a copy of a data directory in it.
fn furnish(data: &Path) -> Result<Home, SandboxError> {
    let home = Home::new()?;
    let copy = ["-a".into(), "--reflink=auto".into()];
    run(
        &locate("cp", "coreutils")?,
        &[&copy[..], &[data.into(), data_dir(home.path()).into()]].concat(),
    )?;
    Ok(home)
}

/// The template data directory for this server version, built by the first process that needs it.
fn template(program: &Path, installer: &str) -> Result<PathBuf, SandboxError> {
    let base = home::base();
    let version = run(program, &["--no-defaults".into(), "--version".into()])?;
    let template = base.join(template_name(&version));
    let _gate = home::gate(&base, "template").map_err(SandboxError::io(|| {
        format!("lock `{}`", template.display())
    }))?;
    if template.is_dir() {
        return Ok(template);
    }
    // Built under another name and renamed: a template is complete or absent, even if the builder is killed.
    let draft = Home::new()?;
    let data = data_dir(draft.path());
    let mut args: Vec<OsString> = vec!["--no-defaults".into()];
    args.extend(run_as_root());
    args.extend(
        [
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-name-resolve",
            "--innodb-log-file-size=8M",
        ]
        .map(OsString::from),
    );
    args.push(option("--datadir", &data));
    run(&locate(installer, PACKAGE)?, &args)?;
    fs::rename(&data, &template).map_err(SandboxError::io(|| {
        format!("make `{}`", template.display())
    }))?;
    Ok(template)
}

/// `mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu ...` becomes
/// `lapsed-maria-10.11.19-MariaDB-0_deb12u1-<uid>`.
fn template_name(version: &str) -> String {
    let word = version
        .split_whitespace()
        .skip_while(|w| *w != "Ver")
        .nth(1);
    let version: String = word
        .unwrap_or("unknown")
        .chars()
        .map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '-' => c,
            _ => '_',
        })
        .collect();
    let user = rustix::process::geteuid().as_raw();
    format!("lapsed-maria-{version}-{user}")
}

fn option(name: &str, path: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push("=");
    option.push(path);
    option
}

/// The server refuses to run as root unless told to.
fn run_as_root() -> Option<OsString> {
    rustix::process::geteuid()
        .is_root()
        .then(|| "--user=root".into())
}
