//! A program's commands to a cluster, and moves of slots.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use lapsed_sandbox::PrivateCluster;
use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;

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
            match self.try_ask(port, asking, words).await {
                Ok(answer) => return T::from_redis_value(answer).unwrap(),
                Err(error) => {
                    let text = error.to_string();
                    let named = |code: &str| {
                        let (_, rest) = text.split_once(code)?;
                        let port = rest.rsplit_once(':')?.1;
                        port.chars()
                            .take_while(char::is_ascii_digit)
                            .collect::<String>()
                            .parse()
                            .ok()
                    };
                    asking = false;
                    if let Some(to) = named("MOVED") {
                        port = to;
                        self.ports.insert(slot, to);
                    } else if let Some(to) = named("ASK") {
                        (port, asking) = (to, true);
                    } else {
                        self.connections.remove(&port);
                        let mut running = cluster.running();
                        let place = running.nth(rand::random_range(0..3)).unwrap_or(any);
                        port = cluster.nodes[place].port();
                        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                    }
                }
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
        if asking {
            pipeline.cmd("ASKING").ignore();
        }
        pipeline.cmd(words[0]).arg(&words[1..]);
        let (answer,): (redis::Value,) = pipeline.query_async(connection).await?;
        Ok(answer)
    }
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
