//! Names into addresses, less those that no webhook may reach.
//!
//! What is checked is what is connected to: a name that leads to a public address when it is looked at, and to the
//! metadata service a moment later, gets nowhere.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::config::Reach;

/// Looks names up; the seam for tests.
#[async_trait]
pub(super) trait Lookup: Send + Sync + 'static {
    async fn look_up(&self, host: &str) -> std::io::Result<Vec<IpAddr>>;
}

/// The machine's own way.
pub(super) struct SystemLookup;

#[async_trait]
impl Lookup for SystemLookup {
    async fn look_up(&self, host: &str) -> std::io::Result<Vec<IpAddr>> {
        let found = tokio::net::lookup_host((host, 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

/// Answers only with addresses that may be reached.
pub(super) struct GuardedResolver<L> {
    lookup: Arc<L>,
    reach: Reach,
}

impl<L: Lookup> GuardedResolver<L> {
    pub(super) fn new(lookup: L, reach: Reach) -> Self {
        Self {
            lookup: Arc::new(lookup),
            reach,
        }
    }
}

/// A name leads only where nothing may go.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{host}` leads to {kind} address, `{address}`, where webhooks may not go; if it is meant, name the host or its network in `allow`"
)]
pub(super) struct Refused {
    host: String,
    kind: &'static str,
    address: IpAddr,
}

impl<L: Lookup> GuardedResolver<L> {
    async fn reachable(
        lookup: &L,
        reach: &Reach,
        host: String,
    ) -> Result<Vec<SocketAddr>, Box<dyn std::error::Error + Send + Sync>> {
        let found = lookup.look_up(&host).await?;
        let mut refused = None;
        let mut reachable = Vec::new();
        for address in found {
            match reach.refuses(address) {
                Some(kind) if !reach.names(&host) => refused = Some((kind, address)),
                // The port is that of the URL.
                _ => reachable.push(SocketAddr::new(address, 0)),
            }
        }
        match refused {
            Some((kind, address)) if reachable.is_empty() => Err(Box::new(Refused {
                host,
                kind,
                address,
            })),
            _ => Ok(reachable),
        }
    }
}

impl<L: Lookup> Resolve for GuardedResolver<L> {
    fn resolve(&self, name: Name) -> Resolving {
        let (lookup, reach) = (Arc::clone(&self.lookup), self.reach.clone());
        Box::pin(async move {
            let found = Self::reachable(&lookup, &reach, name.as_str().to_owned()).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
