//! Targets of routes, and the connections they share: by all routes, and over reloads.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use reqwest::Client;

use super::Handler;
use super::delivery::Delivery;
use super::exec::Exec;
use super::log_target::Log;
use super::webhook::{ClientKey, Webhook};
use crate::config::{Config, RedisConfig, TargetConfig};
use crate::redis::{Commands, Deliveries, Endpoint};

/// Makes targets.
#[derive(Default)]
pub(super) struct Targets {
    clients: Kept<ClientKey, Result<Client, String>>,
    servers: Kept<String, Result<Deliveries, String>>,
}

impl Targets {
    /// The targets of all routes, in their order. What none of them uses any more is closed.
    pub(super) fn of(&mut self, config: &Config) -> Vec<Arc<dyn Handler>> {
        self.clients.begin();
        self.servers.begin();
        let targets = config.routes.iter().map(|route| &route.target);
        let targets = targets
            .map(|target| self.target(target, &config.redis))
            .collect();
        self.clients.end();
        self.servers.end();
        targets
    }

    fn target(&mut self, target: &TargetConfig, redis: &RedisConfig) -> Arc<dyn Handler> {
        match target {
            TargetConfig::Exec(exec) => Arc::new(Exec::new(exec.clone())),
            TargetConfig::Log => Arc::new(Log),
            TargetConfig::Webhook(webhook) => {
                let key = ClientKey::of(webhook);
                let client = self.clients.take(key, ClientKey::build);
                if let Err(error) = &client {
                    tracing::error!(webhook = %webhook.url, error, "a target cannot be used");
                }
                Arc::new(Webhook::with_client((**webhook).clone(), client))
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

    /// The one of this name, which may be there.
    fn take(&mut self, name: K, make: impl FnOnce(&K) -> V) -> V {
        let before = &mut self.before;
        let made = self.now.entry(name);
        let made =
            made.or_insert_with_key(|name| before.remove(name).unwrap_or_else(|| make(name)));
        made.clone()
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
        let make = |_: &&str| {
            made.set(made.get() + 1);
            Arc::new(made.get())
        };
        let mut kept = Kept::default();
        kept.begin();
        let first = kept.take("a", make);
        let other = kept.take("b", make);
        assert_eq!((*first, *kept.take("a", make), *other), (1, 1, 2));
        kept.end();
        kept.begin();
        assert_eq!((*kept.take("a", make), *kept.take("c", make)), (1, 3));
        kept.end();
        assert_eq!(
            (Arc::strong_count(&first), Arc::strong_count(&other)),
            (2, 1)
        );
        kept.begin();
        assert_eq!(*kept.take("b", make), 4, "it was gone");
    }
}
