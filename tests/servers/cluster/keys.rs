//! A program's commands to a cluster, and moves of slots.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use lapsed_sandbox::PrivateCluster;
use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;

use crate::support::wait::until;

/// A client that follows redirections, as clients of clusters do.
#[derive(Default)]
pub struct Client {
    connections: HashMap<u16, MultiplexedConnection>,
    /// The port of each slot, as far as known.
    ports: HashMap<u16, u16>,
}

impl Client {
    /// Sends a command whose second word is a key.
    pub async fn ask<T: FromRedisValue>(&mut self, cluster: &PrivateCluster, words: &[&str]) -> T {
        let slot = slot_of(words[1]);
        let any = cluster.running().next().expect("a node runs");
        let mut port = *self.ports.get(&slot).unwrap_or(&cluster.nodes[any].port());
        let mut asking = false;
        for _ in 0..1_000 {
            let answer = self.try_ask(port, asking, words).await;
            asking = false;
            match answer {
                Ok(redis::Value::ServerError(error)) if error.code() == "MOVED" => {
                    port = port_in(&error);
                    self.ports.insert(slot, port);
                }
                Ok(redis::Value::ServerError(error)) if error.code() == "ASK" => {
                    (port, asking) = (port_in(&error), true);
                }
                Ok(redis::Value::ServerError(_)) | Err(_) => {
                    self.connections.remove(&port);
                    let running: Vec<usize> = cluster.running().collect();
                    port = cluster.nodes[running[rand::random_range(0..running.len())]].port();
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                }
                Ok(answer) => return T::from_redis_value(answer).unwrap(),
            }
        }
        panic!("no node executes {words:?}");
    }

    async fn try_ask(
        &mut self,
        port: u16,
        asking: bool,
        words: &[&str],
    ) -> redis::RedisResult<redis::Value> {
        let connection = match self.connections.entry(port) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let client = redis::Client::open(format!("redis://127.0.0.1:{port}/"))?;
                place.insert(client.get_multiplexed_async_connection().await?)
            }
        };
        let mut pipeline = redis::pipe();
        pipeline.ignore_errors();
        if asking {
            pipeline.cmd("ASKING").ignore();
        }
        pipeline.cmd(words[0]).arg(&words[1..]);
        let (answer,): (redis::Value,) = pipeline.query_async(connection).await?;
        Ok(answer)
    }
}

/// The port in `MOVED slot host:port`, or in the same with `ASK`.
fn port_in(error: &redis::ServerError) -> u16 {
    let details = error.details().expect("it names a node");
    let (_, port) = details.rsplit_once(':').expect("it names a port");
    port.parse().unwrap()
}

/// CRC-16/XMODEM of the name or of its hash tag.
pub fn slot_of(name: &str) -> u16 {
    let tag = name
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map(|(tag, _)| tag)
        .filter(|tag| !tag.is_empty());
    let crc = tag.unwrap_or(name).bytes().fold(0u16, |mut crc, byte| {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
        }
        crc
    });
    crc % 16_384
}
/// The id of the node at this place.
pub async fn id(cluster: &PrivateCluster, place: usize) -> String {
    cluster.ask(place, &["CLUSTER", "MYID"]).await.unwrap()
}

/// The slots that the node at this place says it has.
pub async fn slots_of(cluster: &PrivateCluster, place: usize) -> Vec<u16> {
    let nodes: String = cluster.ask(place, &["CLUSTER", "NODES"]).await.unwrap();
    let own = nodes.lines().find(|line| line.contains("myself")).unwrap();
    let ranges = own.split(' ').skip(8).filter(|word| !word.starts_with('['));
    ranges
        .flat_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            first.parse::<u16>().unwrap()..=last.parse().unwrap()
        })
        .collect()
}

/// Moves slots by `MIGRATE`, as `redis-cli --cluster reshard` did for years.
pub async fn migrate(cluster: &PrivateCluster, slots: &[u16], from: usize, to: usize) {
    for slot in slots {
        let mut moving = Moving::begin(cluster, *slot, from, to).await;
        loop {
            let keys = moving.keys().await;
            if keys.is_empty() {
                break;
            }
            moving.hand_over(&keys, cluster.nodes[to].port()).await;
        }
        moving.end().await;
    }
}

/// A slot on its way from one node to another.
pub struct Moving {
    slot: String,
    target: String,
    giver: MultiplexedConnection,
    taker: MultiplexedConnection,
}

impl Moving {
    pub async fn begin(cluster: &PrivateCluster, slot: u16, from: usize, to: usize) -> Self {
        let (source, target) = (id(cluster, from).await, id(cluster, to).await);
        let mut moving = Self {
            slot: slot.to_string(),
            target: target.clone(),
            giver: cluster.nodes[from].connect(0).await.unwrap(),
            taker: cluster.nodes[to].connect(0).await.unwrap(),
        };
        let importing = moving.set(&["IMPORTING", &source]);
        execute(importing, &mut moving.taker).await;
        let migrating = moving.set(&["MIGRATING", &target]);
        execute(migrating, &mut moving.giver).await;
        moving
    }

    /// Some of the keys that have not moved yet.
    pub async fn keys(&mut self) -> Vec<String> {
        let mut keys = redis::cmd("CLUSTER");
        keys.arg("GETKEYSINSLOT").arg(&self.slot).arg(100);
        keys.query_async(&mut self.giver).await.unwrap()
    }

    /// Moves keys to the node at this port.
    pub async fn hand_over(&mut self, keys: &[String], port: u16) {
        let mut migrate = redis::cmd("MIGRATE");
        migrate.arg("127.0.0.1").arg(port).arg("").arg(0).arg(5_000);
        migrate.arg("KEYS").arg(keys);
        let _: String = migrate.query_async(&mut self.giver).await.unwrap();
    }

    /// Ends the move: no key is left.
    pub async fn end(mut self) {
        let owner = self.set(&["NODE", &self.target]);
        execute(owner.clone(), &mut self.taker).await;
        execute(owner, &mut self.giver).await;
    }

    fn set(&self, words: &[&str]) -> redis::Cmd {
        let mut set = redis::cmd("CLUSTER");
        set.arg("SETSLOT").arg(&self.slot).arg(words);
        set
    }
}

/// Sends a command again until it is executed. Valkey refuses `SETSLOT` while a replica has not the latest data.
async fn execute(command: redis::Cmd, connection: &mut MultiplexedConnection) {
    let connection = tokio::sync::Mutex::new(connection);
    until("the node executes the command", async || {
        let executed = command.exec_async(&mut **connection.lock().await).await;
        match executed {
            Ok(()) => true,
            Err(error) if error.code() == Some("NOREPLICAS") => false,
            Err(error) => panic!("{error}"),
        }
    })
    .await;
}

/// True if the server moves slots at once, as Valkey 9 does.
pub async fn has_atomic_moves(cluster: &PrivateCluster) -> bool {
    let place = cluster.running().next().expect("a node runs");
    let info: String = cluster.ask(place, &["INFO", "server"]).await.unwrap();
    info.contains("valkey_version:9")
}

/// Moves slots by `CLUSTER MIGRATESLOTS`, which publishes nothing.
pub async fn migrate_at_once(cluster: &PrivateCluster, slots: &[u16], from: usize, to: usize) {
    let target = id(cluster, to).await;
    let slots: Vec<String> = slots.iter().map(u16::to_string).collect();
    let mut words = vec!["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE"];
    words.extend(slots.iter().flat_map(|slot| [&slot[..], &slot[..]]));
    words.extend(["NODE", &target]);
    let () = cluster.ask(from, &words).await.unwrap();
}

/// Waits until each node says that the one at `to` has the slot.
pub async fn until_owned(cluster: &PrivateCluster, slot: u16, to: usize) {
    let target = id(cluster, to).await;
    until("all nodes know the owner of the slot", async || {
        for place in cluster.running() {
            let nodes: String = cluster.ask(place, &["CLUSTER", "NODES"]).await.unwrap();
            let owner = nodes.lines().find(|line| {
                line.split(' ')
                    .skip(8)
                    .filter(|word| !word.starts_with('['))
                    .any(|range| {
                        let (first, last) = range.split_once('-').unwrap_or((range, range));
                        (first.parse().unwrap()..=last.parse().unwrap()).contains(&slot)
                    })
            });
            if !owner.is_some_and(|line| line.starts_with(&target)) {
                return false;
            }
        }
        true
    })
    .await;
}
