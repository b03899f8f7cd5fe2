//! The programs of the clients.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::registry;

const PROGRAMS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/servers/resp_clients/programs"
);

/// A client, in the version of Debian, npm (`node/package.json`) or PyPI (`redis_py/requirements.txt`).
#[derive(Debug, Clone, Copy)]
pub enum Client {
    RedisCli,
    RedisCliResp3,
    Hiredis,
    RedisPy,
    NodeRedis,
    Ioredis,
    Phpredis,
    Predis,
    RedisRb,
    GoRedis5,
}

impl Client {
    /// Runs its program with this prefix of keys on a server, a port or the path of a socket. Returns what it prints.
    pub fn run(self, server: impl AsRef<OsStr>, key: &str) -> String {
        let mut command = match self {
            Self::RedisCli | Self::RedisCliResp3 => with("bash", "redis_cli.sh"),
            Self::Hiredis => with("bash", "hiredis.sh"),
            Self::RedisPy => {
                let home = registry::pip(&path("redis_py"));
                let mut command = Command::new("python3");
                command.args(["-W", "ignore::DeprecationWarning"]);
                command.arg(home.join("client.py"));
                command.env("PYTHONPATH", home.join("packages"));
                command
            }
            Self::NodeRedis => node("node_redis.js"),
            Self::Ioredis => node("ioredis.js"),
            Self::Phpredis => with("php", "phpredis.php"),
            Self::Predis => with("php", "predis.php"),
            Self::RedisRb => with("ruby", "redis_rb.rb"),
            Self::GoRedis5 => {
                let mut command = Command::new("go");
                command.arg("run").arg(path("go_redis.go"));
                // Debian's packages of Go sources.
                command.env("GOPATH", "/usr/share/gocode");
                command.env("GO111MODULE", "off");
                command.env("GOFLAGS", "");
                command
            }
        };
        command.arg(server).arg(key);
        if matches!(self, Self::RedisCliResp3) {
            command.arg("-3");
        }
        printed(command)
    }
}

fn printed(mut command: Command) -> String {
    let name = command.get_program().to_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output
        .unwrap_or_else(|error| panic!("{name:?}: {error}; run `scripts/install-servers --tests`"));
    let [said, errors] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{name:?}: {said}{errors}");
    said
}

fn with(interpreter: &str, file: &str) -> Command {
    let mut command = Command::new(interpreter);
    command.arg(path(file));
    command
}

fn node(file: &str) -> Command {
    let mut command = Command::new("node");
    command.arg(registry::npm(&path("node")).join(file));
    command
}

fn path(file: &str) -> PathBuf {
    Path::new(PROGRAMS).join(file)
}
