//! Targets of routes, and the connections that they share, also over reloads.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

#[cfg(feature = "webhook")]
use reqwest::Client;

use super::Handler;
use super::delayed_set::Move;
use super::delivery::Delivery;
use super::exec::Exec;
use super::log_target::Log;
use super::pull_target::Pull;
#[cfg(feature = "webhook")]
use super::webhook::{ClientKey, Webhook};
use crate::config::{Config, RedisConfig, TargetConfig};
use crate::redis::{Commands, Deliveries, Endpoint};

/// Creates targets.
#[derive(Default)]
pub(super) struct Targets {
    #[cfg(feature = "webhook")]
    clients: Shared<ClientKey, Client>,
    servers: Shared<String, Commands>,
}

impl Targets {
    /// Returns the targets of all routes, in their order. Closes connections that are no longer used.
    pub(super) fn of(&mut self, config: &Config) -> Vec<Arc<dyn Handler>> {
        #[cfg(feature = "webhook")]
        self.clients.begin();
        self.servers.begin();
        let targets = config.routes.iter().map(|route| &route.target);
        let targets = targets.map(|target| self.target(target, config)).collect();
        #[cfg(feature = "webhook")]
        self.clients.end();
        self.servers.end();
        targets
    }

    fn target(&mut self, target: &TargetConfig, config: &Config) -> Arc<dyn Handler> {
        match target {
            TargetConfig::Exec(exec) => Arc::new(Exec::new(exec.clone())),
            TargetConfig::Log => Arc::new(Log),
            TargetConfig::Pull(_) => Arc::new(Pull),
            #[cfg(feature = "webhook")]
            TargetConfig::Webhook(webhook) => {
                let key = ClientKey::of(webhook);
                let client = self.clients.get_or_create(key, ClientKey::build);
                if let Err(error) = &client {
                    tracing::error!(webhook = %webhook.url, error, "a target cannot be used");
                }
                Arc::new(Webhook::new((**webhook).clone(), client))
            }
            TargetConfig::Delivery(delivery) => {
                let mut server = config.redis.clone();
                if let Some(url) = &delivery.url {
                    server.url = url.clone();
                }
                let deliveries = self.commands(&server, delivery).map(Deliveries::new);
                Arc::new(Delivery::new(delivery.clone(), deliveries))
            }
            TargetConfig::DelayedSet(set) => {
                let commands = self.commands(&config.redis, set);
                Arc::new(Move::new(set.clone(), commands, config.engine.lease))
            }
        }
    }

    /// Returns the connection to a server, or the reason why there is none.
    fn commands(
        &mut self,
        server: &RedisConfig,
        target: &dyn std::fmt::Display,
    ) -> Result<Commands, String> {
        // The timeouts are part of the name, since a reload may change them.
        let name = format!(
            "{} {:?} {:?}",
            server.url.expose(),
            server.connect_timeout,
            server.response_timeout
        );
        let commands = self
            .servers
            .get_or_create(name, |_| match Endpoint::new(server) {
                Ok(endpoint) => Ok(Commands::new(endpoint)),
                Err(error) => Err(error.to_string()),
            });
        if let Err(error) = &commands {
            tracing::error!(%target, error, "a target cannot be used");
        }
        commands
    }
}

/// Values by name. Between `begin` and `end`, values that are used are kept; the others are dropped.
struct Shared<K, V> {
    previous: HashMap<K, V>,
    current: HashMap<K, V>,
}

impl<K, V> Default for Shared<K, V> {
    fn default() -> Self {
        Self {
            previous: HashMap::new(),
            current: HashMap::new(),
        }
    }
}

impl<K: Eq + Hash, V: Clone> Shared<K, V> {
    fn begin(&mut self) {
        self.previous = std::mem::take(&mut self.current);
    }

    /// Returns the value of a name, and creates it if there is none. A failure is not kept.
    fn get_or_create<E>(
        &mut self,
        name: K,
        create: impl FnOnce(&K) -> Result<V, E>,
    ) -> Result<V, E> {
        if let Some(found) = self.current.get(&name) {
            return Ok(found.clone());
        }
        let found = match self.previous.remove(&name) {
            Some(found) => found,
            None => create(&name)?,
        };
        self.current.insert(name, found.clone());
        Ok(found)
    }

    fn end(&mut self) {
        self.previous.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn values_in_use_are_kept_and_the_others_are_dropped() {
        let created = Cell::new(0);
        let create = |name: &&str| {
            created.set(created.get() + 1);
            match *name {
                "broken" => Err(created.get()),
                _ => Ok(Arc::new(created.get())),
            }
        };
        let mut shared = Shared::default();
        shared.begin();
        let first = shared.get_or_create("a", create).unwrap();
        let other = shared.get_or_create("b", create).unwrap();
        assert_eq!(
            (*first, *shared.get_or_create("a", create).unwrap(), *other),
            (1, 1, 2)
        );
        assert_eq!(shared.get_or_create("broken", create), Err(3));
        shared.end();
        shared.begin();
        assert_eq!(*shared.get_or_create("a", create).unwrap(), 1);
        assert_eq!(
            shared.get_or_create("broken", create),
            Err(4),
            "it is tried again"
        );
        shared.end();
        assert_eq!(
            (Arc::strong_count(&first), Arc::strong_count(&other)),
            (2, 1)
        );
        shared.begin();
        assert_eq!(
            *shared.get_or_create("b", create).unwrap(),
            5,
            "it was gone"
        );
    }
}
