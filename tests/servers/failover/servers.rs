//! A master, its replicas, and three sentinels, each a redis-server.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use lapsed_sandbox::PrivateRedis;
use tempfile::TempDir;

use crate::support::redis_commands::ask;
use crate::support::wait::until;

/// Name of the master.
pub const MASTER: &str = "tasks";

/// Makes a user of a server, besides `default`.
const USER: &str = "ACL SETUSER app on >secret ~* &* +@all";

/// The password of the sentinels.
const PASSWORD: &str = "watch";

/// The servers of one master.
pub struct Servers {
    pub servers: Vec<PrivateRedis>,
    pub sentinels: Vec<Sentinel>,
}

/// A sentinel. It ends with this value.
pub struct Sentinel {
    process: Child,
    pub port: u16,
    directory: TempDir,
}

impl Servers {
    /// A master and two replicas, which three sentinels know.
    pub async fn start() -> Self {
        let master = PrivateRedis::start().await.unwrap();
        let of = format!("127.0.0.1 {}", master.port());
        let mut servers = vec![master];
        for _ in 0..2 {
            let options = PrivateRedis::options().set("replicaof", &of);
            servers.push(options.start().await.unwrap());
        }
        for server in &servers {
            admit(server).await;
        }
        let port = servers[0].port();
        let sentinels = (0..3).map(|_| Sentinel::start(port)).collect();
        let servers = Self { servers, sentinels };
        servers.until_ready().await;
        servers
    }

    /// Starts a server that was killed, without data.
    pub async fn start_again(&mut self, index: usize) {
        self.servers[index].start_again().await.unwrap();
        admit(&self.servers[index]).await;
    }

    /// The URL for `redis.url`.
    pub fn url(&self) -> String {
        let sentinels: Vec<String> = self
            .sentinels
            .iter()
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port))
            .collect();
        format!(
            "redis+sentinel://app:secret@{}/{MASTER}/0?sentinel_password={PASSWORD}",
            sentinels.join(",")
        )
    }

    /// The index of the server that the first sentinel names.
    pub async fn master(&self) -> usize {
        let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER];
        let address: Vec<String> = self.sentinels[0].ask(&words).await;
        let port: u16 = address[1].parse().unwrap();
        self.servers
            .iter()
            .position(|server| server.port() == port)
            .expect("a sentinel names one of the servers")
    }

    /// The epoch of the master, which each failover raises.
    pub async fn epoch(&self) -> u64 {
        let words = ["SENTINEL", "MASTER", MASTER];
        let fields: HashMap<String, String> = self.sentinels[0].ask(&words).await;
        fields["config-epoch"].parse().unwrap()
    }

    /// Waits until another server is the master, and returns its index.
    pub async fn until_another_than(&self, before: usize) -> usize {
        until("another master is promoted", async || {
            self.master().await != before
        })
        .await;
        self.master().await
    }

    /// Waits until the sentinels know each other, and both replicas follow the master.
    pub async fn until_ready(&self) {
        for sentinel in &self.sentinels {
            until(
                "the sentinels know each other and the replicas",
                async || {
                    let fields: HashMap<String, String> =
                        sentinel.ask(&["SENTINEL", "MASTER", MASTER]).await;
                    let quorum: String = sentinel
                        .try_ask(&["SENTINEL", "CKQUORUM", MASTER])
                        .await
                        .unwrap_or_default();
                    fields["num-other-sentinels"] == "2"
                        && fields["num-slaves"] == "2"
                        && fields["flags"] == "master"
                        && quorum.starts_with("OK 3 ")
                },
            )
            .await;
        }
        let master = &self.servers[self.master().await];
        until("two replicas follow the master", async || {
            let info: String = ask(
                &mut master.connect(0).await.unwrap(),
                &["INFO", "replication"],
            )
            .await;
            info.matches("state=online").count() == 2
        })
        .await;
    }
}

async fn admit(server: &PrivateRedis) {
    let words: Vec<&str> = USER.split(' ').collect();
    let () = ask(&mut server.connect(0).await.unwrap(), &words).await;
}

impl Sentinel {
    fn start(master: u16) -> Self {
        let directory = TempDir::new().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|socket| socket.local_addr())
            .unwrap()
            .port();
        let file = directory.path().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {MASTER} 127.0.0.1 {master} 2\n\
             sentinel down-after-milliseconds {MASTER} 1000\nsentinel failover-timeout {MASTER} 5000\n\
             sentinel parallel-syncs {MASTER} 2\n\
             requirepass {PASSWORD}\nsentinel sentinel-pass {PASSWORD}\n",
            directory.path().display(),
        );
        std::fs::write(&file, text).unwrap();
        Self {
            process: launch(directory.path()),
            port,
            directory,
        }
    }

    /// Sends a command.
    pub async fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        until("the sentinel answers", async || {
            self.try_ask::<redis::Value>(&["PING"]).await.is_ok()
        })
        .await;
        self.try_ask(words).await.unwrap()
    }

    async fn try_ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let client = redis::Client::open(format!("redis://:{PASSWORD}@127.0.0.1:{}/", self.port))?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        redis::cmd(words[0])
            .arg(&words[1..])
            .query_async(&mut connection)
            .await
    }

    /// Sends SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // Shown if the test fails.
        let log = std::fs::read_to_string(self.directory.path().join("log"));
        println!("sentinel {}: {}", self.port, log.unwrap_or_default());
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn launch(directory: &Path) -> Child {
    Command::new("redis-server")
        .arg(directory.join("sentinel.conf"))
        .arg("--sentinel")
        .stdin(Stdio::null())
        .stdout(File::create(directory.join("log")).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server starts")
}
