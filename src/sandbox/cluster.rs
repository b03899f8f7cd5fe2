use std::time::Duration;

use redis::FromRedisValue;
use tokio::time::{Instant, sleep};

use super::SandboxError;
use super::redis::{PrivateRedis, RedisOptions};

const SLOTS: usize = 16_384;

const READY_WITHIN: Duration = Duration::from_secs(60);
const ASKED_EVERY: Duration = Duration::from_millis(50);

/// A private Redis Cluster: masters with equal numbers of slots, then their replicas. A master that is killed is replaced
/// after about two seconds, if it has a replica.
#[derive(Debug)]
pub struct PrivateCluster {
    /// The nodes. The masters come first.
    pub nodes: Vec<PrivateRedis>,
    /// Of the nodes, in order. The last ones are also those of nodes that join later.
    options: Vec<RedisOptions>,
}

impl PrivateCluster {
    /// Starts a cluster, and waits until each node knows it and each replica follows its master.
    ///
    /// # Errors
    /// As [`RedisOptions::start`]; also if a node refuses, or if the cluster is not ready within 60 s.
    pub async fn start(masters: usize, replicas: usize) -> Result<Self, SandboxError> {
        Self::start_with(vec![PrivateRedis::options()], masters, replicas).await
    }

    /// The same with these options for the nodes, in order. The last ones are also those of all others.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    ///
    /// # Panics
    /// Without options.
    pub async fn start_with(
        options: Vec<RedisOptions>,
        masters: usize,
        replicas: usize,
    ) -> Result<Self, SandboxError> {
        let mut cluster = Self {
            nodes: Vec::new(),
            options,
        };
        for place in 0..masters {
            cluster.start_node().await?;
            let (first, end) = (SLOTS * place / masters, SLOTS * (place + 1) / masters);
            let (first, last) = (first.to_string(), (end - 1).to_string());
            let own = ["CLUSTER", "ADDSLOTSRANGE", &first, &last];
            cluster.ask::<()>(place, &own).await?;
            // Masters with the same epoch would have to agree on new ones first.
            let epoch = (place + 1).to_string();
            let own = ["CLUSTER", "SET-CONFIG-EPOCH", &epoch];
            cluster.ask::<()>(place, &own).await?;
            cluster.meet(place).await?;
        }
        cluster.until_known(masters).await?;
        for number in 0..masters * replicas {
            cluster.add_replica(number % masters).await?;
        }
        cluster.until_ready().await?;
        Ok(cluster)
    }

    /// The URL of all nodes.
    #[must_use]
    pub fn url(&self) -> String {
        let nodes: Vec<String> = self
            .nodes
            .iter()
            .map(|node| format!("127.0.0.1:{}", node.port()))
            .collect();
        format!("redis+cluster://{}", nodes.join(","))
    }

    /// Starts a node that joins as a master without slots. Returns its place.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn add_master(&mut self) -> Result<usize, SandboxError> {
        let place = self.start_node().await?;
        self.meet(place).await?;
        self.until_known(self.nodes.len()).await?;
        self.until_ready().await?;
        Ok(place)
    }

    /// Starts a node that joins as a replica of the node at this place.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn add_replica(&mut self, of: usize) -> Result<usize, SandboxError> {
        let id: String = self.ask(of, &["CLUSTER", "MYID"]).await?;
        let place = self.start_node().await?;
        self.meet(place).await?;
        self.until("a node knows its master", async |cluster| {
            let replicate = ["CLUSTER", "REPLICATE", &id];
            cluster.ask::<()>(place, &replicate).await.is_ok()
        })
        .await?;
        Ok(place)
    }

    /// Waits until the cluster serves all slots and each replica has the data of its master. Nodes that were killed do
    /// not count.
    ///
    /// # Errors
    /// If that takes longer than 60 s.
    pub async fn until_ready(&self) -> Result<(), SandboxError> {
        self.until("the cluster serves all slots", async |cluster| {
            for place in cluster.running() {
                let info: String = cluster
                    .ask(place, &["CLUSTER", "INFO"])
                    .await
                    .unwrap_or_default();
                let replication: String = cluster
                    .ask(place, &["INFO", "replication"])
                    .await
                    .unwrap_or_default();
                let is_linked = !replication.contains("role:slave")
                    || replication.contains("master_link_status:up");
                if !info.contains("cluster_state:ok") || !is_linked {
                    return false;
                }
            }
            true
        })
        .await
    }

    /// Sends a command to the node at this place.
    ///
    /// # Errors
    /// If it does not answer, or refuses.
    pub async fn ask<T: FromRedisValue>(
        &self,
        place: usize,
        words: &[&str],
    ) -> Result<T, SandboxError> {
        let asked = async {
            let mut connection = self.nodes[place].connect(0).await?;
            let mut command = redis::cmd(words[0]);
            command.arg(&words[1..]).query_async(&mut connection).await
        };
        asked.await.map_err(SandboxError::redis(|| words.join(" ")))
    }

    /// The places of the nodes whose processes run.
    pub fn running(&self) -> impl Iterator<Item = usize> + '_ {
        let running = self.nodes.iter().enumerate();
        running.filter_map(|(place, node)| node.pid().map(|_| place))
    }

    async fn start_node(&mut self) -> Result<usize, SandboxError> {
        let options = self.options.get(self.nodes.len()).or(self.options.last());
        let options = options
            .expect("there are options for a node")
            .clone()
            .set("cluster-enabled", "yes")
            .set("cluster-node-timeout", "1000")
            .set("cluster-port", &super::port::free_port().to_string())
            // A replica stays with its master.
            .set("cluster-allow-replica-migration", "no")
            .set("repl-diskless-sync-delay", "0");
        self.nodes.push(options.start().await?);
        Ok(self.nodes.len() - 1)
    }

    /// Introduces the node at this place to another.
    async fn meet(&self, place: usize) -> Result<(), SandboxError> {
        let Some(known) = self.running().find(|other| *other != place) else {
            return Ok(());
        };
        let nodes: String = self.ask(known, &["CLUSTER", "NODES"]).await?;
        let own = nodes.lines().find(|line| line.contains("myself"));
        let bus = own.and_then(|line| line.split_once('@')?.1.split([' ', ',']).next());
        let port = self.nodes[known].port().to_string();
        let meet = [
            "CLUSTER",
            "MEET",
            "127.0.0.1",
            &port,
            bus.unwrap_or_default(),
        ];
        self.ask(place, &meet).await
    }

    async fn until_known(&self, count: usize) -> Result<(), SandboxError> {
        let known = format!("cluster_known_nodes:{count}\r");
        self.until("the nodes know each other", async |cluster| {
            for place in cluster.running() {
                let info: String = cluster
                    .ask(place, &["CLUSTER", "INFO"])
                    .await
                    .unwrap_or_default();
                if !info.contains(&known) {
                    return false;
                }
            }
            true
        })
        .await
    }

    async fn until(
        &self,
        what: &'static str,
        holds: impl AsyncFn(&Self) -> bool,
    ) -> Result<(), SandboxError> {
        let deadline = Instant::now() + READY_WITHIN;
        while !holds(self).await {
            if Instant::now() >= deadline {
                return Err(SandboxError::Late {
                    what,
                    seconds: READY_WITHIN.as_secs(),
                });
            }
            sleep(ASKED_EVERY).await;
        }
        Ok(())
    }
}
