//! The connections that all commands share.

use std::sync::Arc;

use redis::{FromRedisValue, Pipeline};

use super::cluster::{Cluster, Master, Router};
use super::link::Link;
use super::{Endpoint, RedisError};

/// Sends commands to the server, or to the nodes of a cluster. Connections are opened on first use, and again on the
/// first use after a loss. Clones share them.
#[derive(Debug, Clone)]
pub struct Commands(Way);

/// Where commands go.
#[derive(Debug, Clone)]
enum Way {
    Server(Link),
    Cluster {
        cluster: Arc<Cluster>,
        /// The node for commands without a key, and its connection.
        home: Option<(Master, Link)>,
    },
}

impl Commands {
    /// Does no I/O.
    pub fn new(endpoint: Endpoint) -> Self {
        Self(match endpoint.seeds() {
            [] => Way::Server(Link::new(endpoint)),
            _ => Way::Cluster {
                cluster: Arc::new(Cluster::new(endpoint)),
                home: None,
            },
        })
    }

    /// Returns the endpoint of the server, of the node, or of the whole cluster.
    pub fn endpoint(&self) -> &Endpoint {
        match &self.0 {
            Way::Server(link) => link.endpoint(),
            Way::Cluster {
                home: Some((_, link)),
                ..
            } => link.endpoint(),
            Way::Cluster {
                cluster,
                home: None,
            } => cluster.endpoint(),
        }
    }

    /// The cluster, if it is one.
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        match &self.0 {
            Way::Server(_) => None,
            Way::Cluster { cluster, .. } => Some(cluster),
        }
    }

    /// The cluster and the master for commands without a key, if it is one and has one.
    pub(super) fn node(&self) -> Option<(&Arc<Cluster>, &Master)> {
        match &self.0 {
            Way::Cluster {
                cluster,
                home: Some((master, _)),
            } => Some((cluster, master)),
            Way::Server(_) | Way::Cluster { home: None, .. } => None,
        }
    }

    /// The same, but commands without a key go to this master of the cluster.
    #[must_use]
    pub fn at(&self, master: &Master) -> Self {
        match &self.0 {
            Way::Server(_) => self.clone(),
            Way::Cluster { cluster, .. } => Self(Way::Cluster {
                home: Some((master.clone(), cluster.link(&master.address))),
                cluster: Arc::clone(cluster),
            }),
        }
    }

    /// Returns the end of names whose keys the node has; empty for a server that has all.
    ///
    /// # Errors
    /// If the node has no slot.
    pub(super) fn tag(&self) -> Result<String, RedisError> {
        match &self.0 {
            Way::Cluster {
                cluster,
                home: Some((master, _)),
            } => cluster.tag_of(master),
            Way::Server(_) | Way::Cluster { home: None, .. } => Ok(String::new()),
        }
    }

    /// Sends a pipeline. `command` names it in errors.
    ///
    /// # Cancel safety
    /// A pipeline that was handed to the connection is sent even if the caller is cancelled.
    pub(super) async fn send<T: FromRedisValue>(
        &self,
        command: &'static str,
        pipeline: &Pipeline,
    ) -> Result<T, RedisError> {
        let (cluster, home) = match &self.0 {
            Way::Server(link) => return link.send(command, pipeline).await,
            Way::Cluster { cluster, home } => (cluster, home),
        };
        let mut router = Router {
            cluster,
            home: home.as_ref().map(|(master, _)| master),
            failure: None,
        };
        let answer = pipeline.query_async(&mut router).await;
        answer.map_err(|error| match router.failure {
            Some(failure) => failure,
            None => RedisError::of(command, error),
        })
    }

    /// Lets the next command connect at once. Call it when the server is known to be up.
    pub fn forget_failures(&self) {
        match &self.0 {
            Way::Server(link)
            | Way::Cluster {
                home: Some((_, link)),
                ..
            } => link.forget_failures(),
            Way::Cluster { home: None, .. } => {}
        }
    }
}
