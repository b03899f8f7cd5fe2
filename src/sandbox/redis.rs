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

/// How long [`PrivateRedis::connect`] has its answers wait.
const PATIENCE: Duration = Duration::from_secs(30);

/// A Redis server of one's own: no persistence, no keyspace notifications unless asked for.
#[derive(Debug)]
pub struct PrivateRedis {
    // Declared first, so that the server is dead before its directory goes.
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
    /// When the program is missing, or ends or stays silent for 30 s; the message then ends with its log.
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

    /// A server with options of its own.
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

    /// SIGKILL: connections break, data is lost. The port stays reserved for [`start_again`](Self::start_again)
    /// only in so far as no other server takes it.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Starts a killed server on the same port, with whatever it had written to disk (by default: nothing).
    ///
    /// # Errors
    /// As [`RedisOptions::start`]; also when somebody else listens on the port by now.
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

    /// SIGSTOP: the kernel still accepts connections, nobody answers. In force when this returns.
    ///
    /// # Errors
    /// When the server is not running.
    pub fn stop_process(&self) -> Result<(), SandboxError> {
        self.server.stop()
    }

    /// SIGCONT: ends [`stop_process`](Self::stop_process).
    ///
    /// # Errors
    /// When the server is not running.
    pub fn continue_process(&self) -> Result<(), SandboxError> {
        self.server.resume()
    }

    /// A connection to one of its databases that waits for an answer as long as a busy machine may take, 30 s.
    ///
    /// # Errors
    /// What the client says when the server cannot be reached.
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
