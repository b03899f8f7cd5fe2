//! The listeners of a timer: one for a server, and one for each master of a cluster, which come and go with the masters.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::key_inspector::KeyInspector;
use super::listener::Listener;
use super::{Cause, EngineSink, Hearing};
use crate::{Keyspace, Master, RedisError, Topology};
use lapsed_core::task::TaskKey;

/// How long the slots of a cluster stay where they are before the keys of all masters are audited.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// Longest time from the first move to that audit, while others follow.
const AUDIT_WITHIN: Duration = Duration::from_secs(30);

/// What listens to one server.
#[derive(Debug, Clone)]
pub(super) struct Ear {
    /// The master of a cluster; `None` for a server that has all keys.
    pub(super) master: Option<Master>,
    pub(super) listener: Arc<Listener>,
    pub(super) inspector: Arc<KeyInspector>,
}

/// Listens to each server that has keys.
pub(super) struct Listeners {
    keyspace: Keyspace,
    new: Box<dyn Fn(Keyspace, Option<Master>) -> Ear + Send + Sync>,
    ears: RwLock<Arc<[Ear]>>,
}

impl Listeners {
    /// Does no I/O. `new` creates what listens to the server of a keyspace.
    pub(super) fn new(
        keyspace: Keyspace,
        new: impl Fn(Keyspace, Option<Master>) -> Ear + Send + Sync + 'static,
    ) -> Self {
        let ears = match keyspace.commands().cluster() {
            None => vec![new(keyspace.clone(), None)],
            Some(_) => Vec::new(),
        };
        Self {
            ears: RwLock::new(ears.into()),
            new: Box::new(new),
            keyspace,
        }
    }

    /// What listens now, in the order of the masters.
    pub(super) fn all(&self) -> Arc<[Ear]> {
        let ears = self.ears.read();
        Arc::clone(&ears.expect("nothing panics while holding the listeners"))
    }

    /// True if the events of each server are received now.
    pub(super) fn is_listening(&self) -> bool {
        let ears = self.all();
        !ears.is_empty() && ears.iter().all(|ear| ear.listener.is_listening())
    }

    /// What other daemons may rely on: it holds for each server.
    pub(super) fn hearing(&self) -> Hearing {
        let ears = self.all();
        let each: Vec<Hearing> = ears.iter().map(|ear| ear.listener.hearing()).collect();
        let all = !each.is_empty() && each.iter().all(|hearing| hearing.all);
        let expired = !each.is_empty()
            && each
                .iter()
                .all(|hearing| hearing.all || hearing.expired_only);
        Hearing {
            all,
            expired_only: expired && !all,
            forwards: !each.is_empty() && each.iter().all(|hearing| hearing.forwards),
        }
    }

    /// Splits keys by the server that has them. Each comes with its place.
    ///
    /// # Errors
    /// If no master of the cluster has one of them.
    pub(super) async fn split(
        &self,
        keys: &[TaskKey],
    ) -> Result<Vec<(Ear, Vec<usize>)>, RedisError> {
        let owners = self.keyspace.owners(keys).await?;
        let mut split: Vec<(Ear, Vec<usize>)> = self
            .all()
            .iter()
            .map(|ear| (ear.clone(), Vec::new()))
            .collect();
        for (place, owner) in owners.into_iter().enumerate() {
            let part = split.iter_mut().find(|(ear, _)| ear.master == owner);
            let (_, places) = part.ok_or(RedisError::NoMaster(None))?;
            places.push(place);
        }
        split.retain(|(_, places)| !places.is_empty());
        Ok(split)
    }

    /// Listens forever.
    pub(super) async fn run(&self, sink: Arc<dyn EngineSink>) {
        let Some(cluster) = self.keyspace.commands().cluster() else {
            let ears = self.all();
            let all = ears.iter().map(|ear| ear.listener.run(sink.as_ref()));
            futures_util::future::join_all(all).await;
            return;
        };
        cluster.follow();
        let mut changes = cluster.changes();
        let mut running: HashMap<Master, AbortHandle> = HashMap::new();
        let mut tasks = JoinSet::new();
        let mut moves = Moves::default();
        loop {
            let topology = changes.borrow_and_update().clone();
            if let Some(topology) = topology {
                let ears = self.follow(&topology);
                running.retain(|master, listening| {
                    let stays = topology.masters.contains(master);
                    if !stays {
                        listening.abort();
                    }
                    stays
                });
                for ear in ears.iter() {
                    let Some(master) = &ear.master else { continue };
                    if !running.contains_key(master) {
                        let (listener, sink) = (Arc::clone(&ear.listener), Arc::clone(&sink));
                        let listening =
                            tasks.spawn(async move { listener.run(sink.as_ref()).await });
                        running.insert(master.clone(), listening);
                    }
                }
                if moves.note(&topology) {
                    sink.audit(Cause::RedisChanged);
                }
            }
            tokio::select! {
                changed = changes.changed() => {
                    changed.expect("the cluster lives as long as its keyspace");
                }
                Some(Err(ended)) = tasks.join_next() => if let Ok(panic) = ended.try_into_panic() {
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }

    /// Creates what listens to new masters, and drops what listened to former ones.
    fn follow(&self, topology: &Topology) -> Arc<[Ear]> {
        let before = self.all();
        let gained = topology.gained();
        let ears = topology.masters.iter().map(|master| {
            let known = before
                .iter()
                .find(|ear| ear.master.as_ref() == Some(master));
            match known {
                Some(ear) => {
                    if gained.contains(&master) {
                        ear.inspector.gained_keys();
                    }
                    ear.clone()
                }
                None => (self.new)(self.keyspace.at(master), Some(master.clone())),
            }
        });
        let ears: Arc<[Ear]> = ears.collect();
        for ear in before.iter() {
            if !topology
                .masters
                .iter()
                .any(|master| ear.master.as_ref() == Some(master))
            {
                ear.listener.stopped();
            }
        }
        *self
            .ears
            .write()
            .expect("nothing panics while holding the listeners") = Arc::clone(&ears);
        ears
    }

    /// Marks all subscriptions as closed.
    pub(super) fn stopped(&self) {
        self.all().iter().for_each(|ear| ear.listener.stopped());
    }
}

/// Slots that have moved, and whose keys no audit has read since.
#[derive(Debug, Default)]
struct Moves {
    first: Option<Instant>,
    /// The latest move that an audit was asked for.
    audited: Option<Instant>,
}

impl Moves {
    /// Notes the moves of a topology. True if an audit is due: slots have moved, and stay for now.
    fn note(&mut self, topology: &Topology) -> bool {
        let latest = topology.latest_move().filter(|at| Some(*at) > self.audited);
        let Some(latest) = latest else { return false };
        let first = *self.first.get_or_insert(latest);
        let is_due =
            topology.read_at - latest >= SETTLED_AFTER || topology.read_at - first >= AUDIT_WITHIN;
        if is_due {
            *self = Self {
                first: None,
                audited: Some(latest),
            };
        }
        is_due
    }
}

impl std::fmt::Debug for Listeners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Listeners").field(&self.all()).finish()
    }
}
