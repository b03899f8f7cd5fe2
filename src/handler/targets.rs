//! Targets of routes, and the connections they share: by all routes, and over reloads.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

#[cfg(feature = "webhook")]
use reqwest::Client;

use super::Handler;
use super::delivery::Delivery;
use super::exec::Exec;
use super::log_target::Log;
#[cfg(feature = "webhook")]
use super::webhook::{ClientKey, Webhook};
use crate::config::{Config, RedisConfig, TargetConfig};
use crate::redis::{Commands, Deliveries, Endpoint};

/// Makes targets.
#[derive(Default)]
pub(super) struct Targets {
    #[cfg(feature = "webhook")]
    clients: Kept<ClientKey, Client>,
    servers: Kept<String, Deliveries>,
}

impl Targets {
    /// The targets of all routes, in their order. What none of them uses any more is closed.
    pub(super) fn of(&mut self, config: &Config) -> Vec<Arc<dyn Handler>> {
        #[cfg(feature = "webhook")]
        self.clients.begin();
        self.servers.begin();
        let targets = config.routes.iter().map(|route| &route.target);
        let targets = targets
            .map(|target| self.target(target, &config.redis))
            .collect();
        #[cfg(feature = "webhook")]
        self.clients.end();
        self.servers.end();
        targets
    }

    fn target(&mut self, target: &TargetConfig, redis: &RedisConfig) -> Arc<dyn Handler> {
        match target {
            TargetConfig::Exec(exec) => Arc::new(Exec::new(exec.clone())),
            TargetConfig::Log => Arc::new(Log),
            #[cfg(feature = "webhook")]
            TargetConfig::Webhook(webhook) => {
                let key = ClientKey::of(webhook);
                let client = self.clients.take(key, ClientKey::build);
                if let Err(error) = &client {
                    tracing::error!(webhook = %webhook.url, error, "a target cannot be used");
                }
                Arc::new(Webhook::new((**webhook).clone(), client))
            }
            TargetConfig::Delivery(delivery) => {
                let mut server = redis.clone();
                if let Some(url) = &delivery.url {
                    server.url = url.clone();
                }
                // By the bounds on its answers, too: a reload may change them.
                let name = format!(
                    "{} {:?} {:?}",
                    server.url.expose(),
                    server.connect_timeout,
                    server.response_timeout
                );
                let made = self.servers.take(name, |_| match Endpoint::new(&server) {
                    Ok(endpoint) => Ok(Deliveries::new(Commands::new(endpoint))),
                    Err(error) => Err(error.to_string()),
                });
                if let Err(error) = &made {
                    tracing::error!(target = %delivery, error, "a target cannot be used");
                }
                Arc::new(Delivery::new(delivery.clone(), made))
            }
        }
    }
}

/// Things by name, of which those that were not asked for between two beginnings are dropped.
struct Kept<K, V> {
    before: HashMap<K, V>,
    now: HashMap<K, V>,
}

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Self {
            before: HashMap::new(),
            now: HashMap::new(),
        }
    }
}

impl<K: Eq + Hash, V: Clone> Kept<K, V> {
    fn begin(&mut self) {
        self.before = std::mem::take(&mut self.now);
    }

    /// The one of this name. What could not be made is tried again the next time.
    fn take<E>(&mut self, name: K, make: impl FnOnce(&K) -> Result<V, E>) -> Result<V, E> {
        if let Some(found) = self.now.get(&name) {
            return Ok(found.clone());
        }
        let found = match self.before.remove(&name) {
            Some(found) => found,
            None => make(&name)?,
        };
        self.now.insert(name, found.clone());
        Ok(found)
    }

    fn end(&mut self) {
        self.before.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn what_is_still_used_is_kept_and_the_rest_is_dropped() {
        let made = Cell::new(0);
        let make = |name: &&str| {
            made.set(made.get() + 1);
            match *name {
                "broken" => Err(made.get()),
                _ => Ok(Arc::new(made.get())),
            }
        };
        let mut kept = Kept::default();
        kept.begin();
        let first = kept.take("a", make).unwrap();
        let other = kept.take("b", make).unwrap();
        assert_eq!((*first, *kept.take("a", make).unwrap(), *other), (1, 1, 2));
        assert_eq!(kept.take("broken", make), Err(3));
        kept.end();
        kept.begin();
        assert_eq!(*kept.take("a", make).unwrap(), 1);
        assert_eq!(kept.take("broken", make), Err(4), "it is tried again");
        kept.end();
        assert_eq!(
            (Arc::strong_count(&first), Arc::strong_count(&other)),
            (2, 1)
        );
        kept.begin();
        assert_eq!(*kept.take("b", make).unwrap(), 5, "it was gone");
    }
}
