//! The way of a pipeline through a cluster: each command goes to the master of its key, and the answers come back in
//! order.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::ConnectionLike;
use redis::{Arg, Cmd, Pipeline, RedisFuture, Value};
use tokio::time::{Instant, sleep};

use super::redirect::Redirect;
use super::slots::slot_of;
use super::topology::Topology;
use super::{Cluster, Master, RedisError};
use crate::Address;

/// Pauses before a redirected command is sent again. After the last one, its error is the answer.
const PAUSES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
];

/// Sends the commands of a pipeline to the nodes of a cluster.
pub(crate) struct Router<'a> {
    pub(crate) cluster: &'a Arc<Cluster>,
    /// The node for commands without a key; else any.
    pub(crate) home: Option<&'a Master>,
    /// The error behind that of the last pipeline.
    pub(crate) failure: Option<RedisError>,
}

/// A command that has no answer yet.
struct Open<'a> {
    place: usize,
    command: &'a Cmd,
    /// The node that has been named for this attempt alone.
    ask: Option<Address>,
}

/// The commands for one node.
#[derive(Default)]
struct Batch {
    pipeline: Pipeline,
    /// The place of each command in the whole; the command in front is `ASKING`, if that is true.
    places: Vec<(usize, bool)>,
}

impl ConnectionLike for Router<'_> {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let answers = self.answer(&[command]).await;
            let mut answers = self.noted(answers)?;
            Ok(answers.pop().unwrap_or(Value::Nil))
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        _offset: usize,
        _count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let commands: Vec<&Cmd> = pipeline.cmd_iter().collect();
            let answers = self.answer(&commands).await;
            self.noted(answers)
        })
    }

    fn get_db(&self) -> i64 {
        self.cluster.endpoint.database()
    }
}

impl Router<'_> {
    /// Keeps the error, which is of another type than the trait's.
    fn noted(
        &mut self,
        answers: Result<Vec<Value>, RedisError>,
    ) -> Result<Vec<Value>, redis::RedisError> {
        answers.map_err(|error| {
            self.failure = Some(error);
            std::io::Error::from(std::io::ErrorKind::NotConnected).into()
        })
    }

    /// Returns the answer to each command, in order. An error reply is an answer.
    ///
    /// # Errors
    /// If a node does not answer, or if a slot has no master. The other commands may have been executed.
    async fn answer(&self, commands: &[&Cmd]) -> Result<Vec<Value>, RedisError> {
        let mut answers = vec![Value::Nil; commands.len()];
        let mut topology = self.cluster.topology().await?;
        let mut open: Vec<Open<'_>> = commands
            .iter()
            .enumerate()
            .map(|(place, command)| Open {
                place,
                command,
                ask: None,
            })
            .collect();
        for pause in PAUSES.into_iter().map(Some).chain([None]) {
            let sent = Instant::now();
            let batches = self.batches(&open, &topology)?;
            let replies = join_all(batches.into_iter().map(|(node, batch)| async move {
                let link = self.cluster.link(&node);
                let replies: Result<Vec<Value>, _> = link.send("CLUSTER", &batch.pipeline).await;
                (node, batch.places, replies)
            }));
            let (mut redirected, mut failure) = (HashMap::new(), None);
            let mut is_outdated = false;
            for (node, places, replies) in replies.await {
                let mut replies = match replies {
                    Ok(replies) => replies.into_iter(),
                    Err(error) => {
                        failure = Some(error);
                        continue;
                    }
                };
                for (place, is_asking) in places {
                    if is_asking {
                        replies.next();
                    }
                    let reply = replies.next().unwrap_or(Value::Nil);
                    match Redirect::parse(&reply, &node) {
                        Some(Redirect::Ask(node)) => {
                            redirected.insert(place, Some(topology.reached_at(node)));
                        }
                        Some(Redirect::Moved | Redirect::Later) => {
                            is_outdated = true;
                            redirected.insert(place, None);
                        }
                        None => {}
                    }
                    answers[place] = reply;
                }
            }
            if let Some(error) = failure {
                self.cluster.ask_soon(sent);
                return Err(error);
            }
            open.retain_mut(|open| match redirected.remove(&open.place) {
                Some(ask) => {
                    open.ask = ask;
                    true
                }
                None => false,
            });
            let Some(pause) = pause.filter(|_| !open.is_empty()) else {
                break;
            };
            sleep(pause).await;
            if is_outdated {
                topology = self.cluster.topology_after(sent).await?;
            }
        }
        Ok(answers)
    }

    fn batches(
        &self,
        open: &[Open<'_>],
        topology: &Topology,
    ) -> Result<HashMap<Address, Batch>, RedisError> {
        let mut batches: HashMap<Address, Batch> = HashMap::new();
        for Open {
            place,
            command,
            ask,
        } in open
        {
            let node = match (ask, key_of(command)) {
                (Some(node), _) => Some(node),
                (None, Some(key)) => topology.owner(slot_of(key)).map(|master| &master.address),
                (None, None) => self
                    .home
                    .or(topology.masters.first())
                    .map(|master| &master.address),
            };
            let Some(node) = node else {
                self.cluster.ask_soon(topology.read_at);
                return Err(RedisError::NoMaster(None));
            };
            let batch = batches.entry(node.clone()).or_default();
            if ask.is_some() {
                batch.pipeline.cmd("ASKING");
            }
            batch
                .pipeline
                .add_command((*command).clone())
                .ignore_errors();
            batch.places.push((*place, ask.is_some()));
        }
        Ok(batches)
    }
}

/// Returns the key by which a command is routed. `None` for a command without one.
fn key_of(command: &Cmd) -> Option<&[u8]> {
    let mut words = command.args_iter().map(|arg| match arg {
        Arg::Simple(word) => word,
        _ => b"",
    });
    match words.next()? {
        b"INFO" | b"PUBLISH" | b"CONFIG" | b"SCAN" | b"TIME" | b"PING" | b"ROLE" | b"CLIENT"
        | b"PUBSUB" | b"CLUSTER" | b"ACL" | b"MEMORY" | b"SCRIPT" | b"DBSIZE" | b"WAIT" => None,
        // Name, script, number of keys.
        b"EVAL" | b"EVALSHA" => match words.nth(1)? {
            b"0" => None,
            _ => words.next(),
        },
        b"OBJECT" => words.nth(1),
        b"XREAD" | b"XREADGROUP" => None,
        _ => words.next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(words: &[&str]) -> Option<String> {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        key_of(&command).map(|key| String::from_utf8(key.to_vec()).unwrap())
    }

    #[test]
    fn a_command_is_routed_by_its_first_key() {
        for (words, expected) in [
            (&["SET", "k", "v", "PX", "1"][..], Some("k")),
            (&["EVAL", "return 1", "2", "a", "b"], Some("a")),
            (&["EVAL", "return 1", "0", "x"], None),
            (&["OBJECT", "ENCODING", "k"], Some("k")),
            (&["INFO", "server"], None),
            (&["PUBLISH", "channel", "text"], None),
            (&["PING"], None),
        ] {
            assert_eq!(key(words).as_deref(), expected, "{words:?}");
        }
    }
}
