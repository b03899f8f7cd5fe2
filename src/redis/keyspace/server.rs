//! What a server reports about itself.

use std::time::Duration;

use futures_util::future::join_all;
use sha2::Digest as _;

use super::Keyspace;
use crate::RedisError;
use lapsed_core::task::UnixMs;

/// What a server reports about itself. A field is `None` if this user may not ask.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Server {
    /// Changes with each start of the process.
    pub run_id: Option<String>,
    /// Its role in replication.
    pub role: Option<Role>,
    /// Uptime of the process in whole seconds, an upper bound.
    pub uptime: Option<Duration>,
    /// Its clock when it answered.
    pub time: Option<UnixMs>,
    /// True if it is a node of a cluster.
    pub is_cluster_node: bool,
}

/// Role in replication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Expires keys and accepts writes.
    Master,
    /// Does neither.
    Replica,
}

impl Keyspace {
    /// Returns a text that changes when a server was restarted or replaced; empty if this user may not ask. Of a cluster,
    /// that is any master; one that does not answer has no part in it.
    ///
    /// # Errors
    /// If the server does not reply, or no node of the cluster.
    pub async fn run_ids(&self) -> Result<String, RedisError> {
        let Some(cluster) = self.commands.cluster() else {
            return Ok(self.server().await?.run_id.unwrap_or_default());
        };
        let topology = cluster.topology().await?;
        let nodes = topology.masters.iter().map(|master| self.at(master));
        let servers = join_all(nodes.map(|node| async move { node.server().await })).await;
        let mut digest = sha2::Sha256::new();
        for server in servers {
            let run_id = server.ok().and_then(|server| server.run_id);
            digest.update(run_id.unwrap_or_default());
            digest.update([0]);
        }
        Ok(lapsed_core::format::hex(&digest.finalize()[..20]))
    }

    /// Returns role, run id, uptime and clock of the server. Fields are `None` if this user may not ask.
    ///
    /// # Errors
    /// If it does not reply.
    pub async fn server(&self) -> Result<Server, RedisError> {
        let mut info = redis::pipe();
        info.cmd("INFO")
            .arg("server")
            .cmd("INFO")
            .arg("replication");
        match self.commands.send::<(String, String)>("INFO", &info).await {
            Ok((server, replication)) => Ok(Server::read(&format!("{server}\n{replication}"))),
            Err(error) if error.is_refusal() => Ok(Server::default()),
            Err(error) => Err(error),
        }
    }
}

/// The uptime of a server may be too long by this.
const UPTIME_ERROR: Duration = Duration::from_secs(1);

impl Server {
    /// True if it is a master, whose process surely ran this long ago already.
    pub fn is_master_since(&self, ago: Duration) -> bool {
        let runs = self
            .uptime
            .is_some_and(|uptime| uptime.saturating_sub(UPTIME_ERROR) > ago);
        self.role == Some(Role::Master) && runs
    }

    fn read(info: &str) -> Self {
        let field = |name: &str| {
            let mut pairs = info.lines().filter_map(|line| line.split_once(':'));
            pairs
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.trim())
        };
        let role = match field("role") {
            Some("master") => Some(Role::Master),
            Some("slave" | "replica") => Some(Role::Replica),
            _ => None,
        };
        Self {
            run_id: field("run_id").map(str::to_owned),
            role,
            uptime: field("uptime_in_seconds")
                .and_then(|seconds| seconds.parse().ok())
                .map(Duration::from_secs),
            time: field("server_time_usec")
                .and_then(|time_us| time_us.parse::<i64>().ok())
                .map(|time_us| UnixMs(time_us / 1000)),
            // Valkey 9 calls it `server_mode`.
            is_cluster_node: field("redis_mode").or_else(|| field("server_mode"))
                == Some("cluster"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_parsed_from_info() {
        let info = "# Server\r\nredis_mode:cluster\r\nrun_id:abc\r\nserver_time_usec:1795459396881999\r\nuptime_in_seconds:7\r\n\n# Replication\r\nrole:slave\r\n";
        let server = Server::read(info);
        assert_eq!(server.run_id.as_deref(), Some("abc"));
        assert_eq!(server.role, Some(Role::Replica));
        assert_eq!(server.uptime, Some(Duration::from_secs(7)));
        assert_eq!(server.time, Some(UnixMs(1_795_459_396_881)));
        let master = Server::read(&info.replace("slave", "master"));
        let ago = Duration::from_millis;
        assert!(master.is_master_since(ago(5_999)));
        assert!(!master.is_master_since(ago(6_000)));
        assert!(!server.is_master_since(ago(0)));
        assert!(server.is_cluster_node);
        assert!(!Server::read("redis_mode:standalone").is_cluster_node);
        assert!(Server::read("server_mode:cluster").is_cluster_node);
        assert_eq!(Server::read("# nothing"), Server::default());
    }
}
