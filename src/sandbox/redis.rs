use std::ffi::OsString;
use std::fs;
use std::time::Duration;

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

use super::SandboxError;
use super::home::Home;
use super::port::free_port;
use super::process::{Server, locate};

const PORT_TRIES: usize = 5;

/// Time limit for answers to a [`PrivateRedis::connect`] connection.
const PATIENCE: Duration = Duration::from_secs(30);

/// A private Redis server, by default without persistence and keyspace notifications.
#[derive(Debug)]
pub struct PrivateRedis {
    // Declared first, so that the server is dead before its directory is removed.
    server: Server,
    home: Home,
    port: u16,
    args: Vec<OsString>,
}

/// How to start a [`PrivateRedis`].
#[derive(Debug, Clone)]
pub struct RedisOptions {
    program: String,
    args: Vec<OsString>,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            program: "redis-server".to_owned(),
            args: Vec::new(),
        }
    }
}

impl RedisOptions {
    /// The server's name in PATH, or its path: another version, or valkey.
    #[must_use]
    pub fn program(mut self, program: impl Into<String>) -> Self {
        self.program = program.into();
        self
    }

    /// A directive of redis.conf: `.set("notify-keyspace-events", "Ex")`. The last one of a name wins.
    #[must_use]
    pub fn set(mut self, directive: &str, value: &str) -> Self {
        self.args.push(format!("--{directive}").into());
        self.args.push(value.into());
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Errors
    /// If the program is missing, ends, or is not ready within 30 s; the message then ends with its log.
    pub async fn start(self) -> Result<PrivateRedis, SandboxError> {
        let program = locate(&self.program, "redis-server")?;
        let home = Home::new()?;
        let server = Server::new(program, home.path().join("log"));
        let mut redis = PrivateRedis {
            server,
            home,
            port: 0,
            args: self.args,
        };
        for _ in 1..PORT_TRIES {
            redis.port = free_port();
            match redis.launch().await {
                Err(SandboxError::Ended { log, .. }) if log.contains("Address already in use") => {}
                started => return started.map(|()| redis),
            }
        }
        redis.port = free_port();
        redis.launch().await.map(|()| redis)
    }
}

impl PrivateRedis {
    /// Starts a server with the default options.
    ///
    /// # Errors
    /// As [`RedisOptions::start`].
    pub async fn start() -> Result<Self, SandboxError> {
        Self::options().start().await
    }

    /// Options for a server.
    #[must_use]
    pub fn options() -> RedisOptions {
        RedisOptions::default()
    }

    /// The URL of database 0; it stays the same through restarts.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// The port it listens on, on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The id of its process, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.server.id()
    }

    /// Sends SIGKILL: connections break, data is lost. The port stays free for [`start_again`](Self::start_again)
    /// unless another server takes it.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Starts a killed server on the same port, with the data it had written to disk (by default: none).
    ///
    /// # Errors
    /// As [`RedisOptions::start`]; also if another process listens on the port.
    pub async fn start_again(&mut self) -> Result<(), SandboxError> {
        self.launch().await
    }

    /// Kills the server and starts it on the same port without any data.
    ///
    /// # Errors
    /// As [`start_again`](Self::start_again).
    pub async fn restart(&mut self) -> Result<(), SandboxError> {
        self.kill();
        let data = self.data_dir();
        fs::remove_dir_all(&data)
            .map_err(SandboxError::io(|| format!("empty `{}`", data.display())))?;
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

    /// Connects to a database with a response timeout of 30 s, enough for a busy machine.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn connect(&self, database: u8) -> redis::RedisResult<MultiplexedConnection> {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}/{database}", self.port))?;
        let patient = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        client
            .get_multiplexed_async_connection_with_config(&patient)
            .await
    }

    fn data_dir(&self) -> std::path::PathBuf {
        self.home.path().join("data")
    }

    async fn launch(&mut self) -> Result<(), SandboxError> {
        let data = self.data_dir();
        fs::create_dir_all(&data)
            .map_err(SandboxError::io(|| format!("make `{}`", data.display())))?;
        let mut args: Vec<OsString> = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
            .map(OsString::from)
            .into();
        args.extend(["--port".into(), self.port.to_string().into()]);
        args.extend(["--dir".into(), data.into()]);
        args.extend(self.args.iter().cloned());
        let url = self.url();
        let is_ours = |pid| {
            let url = url.clone();
            async move {
                answering_process(&url)
                    .await
                    .is_ok_and(|found| found == pid)
            }
        };
        self.server.start(&args, is_ours).await
    }
}

/// The id of the process that answers at `url`.
async fn answering_process(url: &str) -> redis::RedisResult<u32> {
    let client = redis::Client::open(url)?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    redis::cmd("PING").exec_async(&mut connection).await?;
    let info: redis::InfoDict = redis::cmd("INFO")
        .arg("server")
        .query_async(&mut connection)
        .await?;
    Ok(info.get("process_id").unwrap_or(0))
}
