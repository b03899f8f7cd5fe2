//! A cluster: its masters, and the way of each command to the master of its key.
//!
//! The topology is read from all nodes, and again when a node says that it is out of date. Each node has a connection of
//! its own. A command whose key has moved is sent again to where it is.

mod redirect;
mod routing;
mod slots;
mod topology;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::link::Link;
use super::{Address, Endpoint, RedisError};
pub(super) use routing::Router;
pub(super) use slots::slot_of;
use slots::tag_in;
pub use topology::{Master, Topology, View};

/// Time between two questions to the nodes while the topology is followed.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Time for the other answers, once a majority has answered.
const STRAGGLERS_WITHIN: Duration = Duration::from_millis(100);

/// Longest wait for the answers of a majority: nodes that do not answer are usual here.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// Shortest time between two questions.
const PAUSE: Duration = Duration::from_millis(20);

/// The nodes of a cluster.
pub struct Cluster {
    endpoint: Endpoint,
    seeds: Vec<Address>,
    links: Mutex<HashMap<Address, Link>>,
    topology: watch::Sender<Option<Arc<Topology>>>,
    /// For each master that was asked about, a slot that it has and a hash tag in it.
    tags: Mutex<HashMap<String, (u16, String)>>,
    /// Held while the nodes are asked. When that last ended, and how.
    asking: tokio::sync::Mutex<Option<(Instant, Result<(), RedisError>)>>,
    follows: AtomicBool,
}

impl Cluster {
    /// Does no I/O. The endpoint has the settings of each connection.
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self {
            seeds: endpoint.seeds().to_vec(),
            endpoint,
            links: Mutex::default(),
            topology: watch::Sender::new(None),
            tags: Mutex::default(),
            asking: tokio::sync::Mutex::new(None),
            follows: AtomicBool::new(false),
        }
    }

    /// The endpoint of the whole.
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The connection to a node.
    pub(super) fn link(&self, address: &Address) -> Link {
        let mut links = self.links();
        if let Some(link) = links.get(address) {
            return link.clone();
        }
        let link = Link::new(self.endpoint.at(address));
        links.insert(address.clone(), link.clone());
        link
    }

    /// The latest topology, which is read if it was never read.
    ///
    /// # Errors
    /// If no node answers.
    pub async fn topology(&self) -> Result<Arc<Topology>, RedisError> {
        let known = self.topology.borrow().clone();
        match known {
            Some(topology) => Ok(topology),
            None => self.topology_after(Instant::now()).await,
        }
    }

    /// The topology, read after this time.
    ///
    /// # Errors
    /// If no node answers.
    pub async fn topology_after(&self, time: Instant) -> Result<Arc<Topology>, RedisError> {
        let mut asking = self.asking.lock().await;
        let is_answered = asking.as_ref().filter(|(at, _)| *at > time);
        let answer = match is_answered {
            Some((_, answer)) => answer.clone(),
            None => {
                if let Some((at, _)) = &*asking {
                    sleep(PAUSE.saturating_sub(at.elapsed())).await;
                }
                let asked = Instant::now();
                let answer = self.ask().await;
                *asking = Some((asked, answer.clone()));
                answer
            }
        };
        answer?;
        let topology = self.topology.borrow().clone();
        Ok(topology.expect("an answer is kept"))
    }

    /// Tells of each new topology.
    pub fn changes(&self) -> watch::Receiver<Option<Arc<Topology>>> {
        self.topology.subscribe()
    }

    /// Asks one node for its view.
    ///
    /// # Errors
    /// If it refuses or does not answer.
    pub async fn view_of(&self, address: &Address) -> Result<View, RedisError> {
        let mut nodes = redis::pipe();
        nodes.cmd("CLUSTER").arg("NODES");
        let (reply,): (String,) = self.link(address).send("CLUSTER NODES", &nodes).await?;
        Ok(View::parse(&reply, address, self.endpoint.goes_by_name()))
    }

    /// Asks the known nodes. Waits for the answers of a majority, or for each node to answer or fail.
    async fn ask(&self) -> Result<(), RedisError> {
        let before = self.topology.borrow().clone();
        let mut nodes = self.seeds.clone();
        nodes.extend(before.iter().flat_map(|topology| topology.nodes.clone()));
        nodes.sort();
        nodes.dedup();
        let mut asked = JoinSet::new();
        for node in &nodes {
            let (link, node) = (self.link(node), node.clone());
            let by_name = self.endpoint.goes_by_name();
            asked.spawn(async move {
                let mut nodes = redis::pipe();
                nodes.cmd("CLUSTER").arg("NODES");
                let reply = link.send("CLUSTER NODES", &nodes).await;
                reply.map(|(reply,): (String,)| View::parse(&reply, &node, by_name))
            });
        }
        let (mut views, mut failure) = (Vec::new(), RedisError::silence());
        let read_at = Instant::now();
        let majority = async {
            while let Some(answer) = asked.join_next().await {
                match answer {
                    Ok(Ok(view)) => views.push(view),
                    Ok(Err(error)) => failure = error,
                    // The runtime is ending.
                    Err(_) => {}
                }
                if views.len() > nodes.len() / 2 {
                    break;
                }
            }
        };
        // The answers so far count.
        let _ = timeout(ANSWERS_WITHIN, majority).await;
        while let Ok(Some(answer)) = timeout(STRAGGLERS_WITHIN, asked.join_next()).await {
            views.extend(answer.into_iter().flatten());
        }
        if views.is_empty() {
            return Err(failure);
        }
        let topology = Topology::merge(&views, before.as_deref(), read_at);
        if before.is_none_or(|before| before.masters != topology.masters) {
            let masters: Vec<String> = topology
                .masters
                .iter()
                .map(|master| master.address.to_string())
                .collect();
            tracing::info!(
                redis.masters = masters.join(","),
                "read the masters of the cluster"
            );
        }
        self.links()
            .retain(|address, _| topology.nodes.contains(address) || self.seeds.contains(address));
        self.topology.send_replace(Some(Arc::new(topology)));
        Ok(())
    }

    /// Lets the nodes be asked, unless they were after this time: a command has failed.
    fn ask_soon(self: &Arc<Self>, time: Instant) {
        let cluster = Arc::clone(self);
        tokio::spawn(async move { drop(cluster.topology_after(time).await) });
    }

    /// Returns the end of names whose keys this master has. It stays the same while the master has their slot.
    ///
    /// # Errors
    /// If it has no slot, as far as known.
    pub(super) fn tag_of(&self, master: &Master) -> Result<String, RedisError> {
        let topology = self.topology.borrow().clone();
        let owns = |slot: u16| {
            let owner = topology.as_ref().and_then(|topology| topology.owner(slot));
            owner.is_some_and(|owner| owner.id == master.id)
        };
        let mut tags = self
            .tags
            .lock()
            .expect("nothing panics while holding the tags");
        if let Some((slot, tag)) = tags.get(&master.id)
            && owns(*slot)
        {
            return Ok(tag.clone());
        }
        let found = match topology
            .as_ref()
            .is_some_and(|topology| topology.count_of(master) > 0)
        {
            true => tag_in(owns),
            false => None,
        };
        let (slot, tag) = found.ok_or(RedisError::NoMaster(None))?;
        tags.insert(master.id.clone(), (slot, tag.clone()));
        Ok(tag)
    }

    /// Asks again and again, until the cluster is dropped.
    pub fn follow(self: &Arc<Self>) {
        if self.follows.swap(true, Ordering::Relaxed) {
            return;
        }
        let cluster = Arc::downgrade(self);
        tokio::spawn(async move {
            let _ends = Follows(Weak::clone(&cluster));
            let mut answered = true;
            loop {
                let Some(cluster) = cluster.upgrade() else {
                    return;
                };
                let answer = cluster.topology_after(Instant::now()).await;
                if let Err(error) = &answer
                    && answered
                {
                    let remedy = error.remedy();
                    let error = error as &dyn std::error::Error;
                    let node = cluster.endpoint.node();
                    tracing::warn!(
                        redis.node = node,
                        error,
                        remedy,
                        "no node tells of the masters of the cluster: tasks run from the ledger alone meanwhile"
                    );
                }
                answered = answer.is_ok();
                drop(cluster);
                sleep(ASK_EVERY).await;
            }
        });
    }

    fn links(&self) -> MutexGuard<'_, HashMap<Address, Link>> {
        self.links
            .lock()
            .expect("nothing panics while holding the links")
    }
}

/// Lets another task follow when this one ends, as it does with its runtime.
struct Follows(Weak<Cluster>);

impl Drop for Follows {
    fn drop(&mut self) {
        if let Some(cluster) = self.0.upgrade() {
            cluster.follows.store(false, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cluster").field(&self.endpoint).finish()
    }
}
