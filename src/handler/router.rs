//! Routes: which handler runs a key, and with which limits.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard};
use std::time::Duration;

use regex::Regex;

use super::middleware::{Layer, Layers};
use super::options::Options;
use super::pull_target::Pull;
use super::registry::{Registered, Registry};
use super::targets::Targets;
use super::{Handler, Handlers, SlowLog, VerifyPayload};
use crate::config::{Config, PullConfig, RouteConfig, TargetConfig};
use crate::task::{Limits, RetryPolicy, TaskKey};

/// A handler and its limits.
#[derive(Clone)]
pub struct Route {
    /// `Class@method` of a registered handler, or the regular expression of a configured route. A metric label.
    pub name: Arc<str>,
    /// The handler.
    pub handler: Arc<dyn Handler>,
    /// The middleware of the configuration.
    pub layers: Layers,
    /// Time limit of one run.
    pub timeout: Duration,
    /// Concurrency, rate and priority.
    pub limits: Limits,
    /// The retry policy.
    pub retry: Arc<RetryPolicy>,
    /// True if a key that another program armed is adopted.
    pub adopts: bool,
    /// How late a task may start.
    pub expire_after: Option<Duration>,
    /// The queue from which workers take the tasks; `None` if this process runs them.
    pub pull: Option<PullConfig>,
}

/// What a daemon can run, and which keys of other programs it adopts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skills {
    /// `Class@method` of the handlers, in alphabetical order.
    pub handlers: Vec<String>,
    /// The expressions of the configured routes, in order.
    pub routes: Vec<String>,
    /// Positions in `routes` of the routes that adopt no key.
    pub unadopted: Vec<usize>,
    /// True if keys of the handlers are adopted.
    pub adopts_for_handlers: bool,
}

/// Finds the route of a key: the registered handler of its class and method, else the first configured route whose
/// expression matches.
pub struct Router {
    handlers: Registry,
    table: RwLock<Table>,
    /// Connections shared by the targets of routes.
    targets: Mutex<Targets>,
    /// Number of reloads.
    reloads: AtomicU64,
}

struct Table {
    /// Routes of registered handlers, by `Class@method`.
    handlers: HashMap<String, Route>,
    routes: Vec<(Regex, Route)>,
    adopts: bool,
    /// Settles the tasks whose route was removed while a worker had them.
    removed: Route,
}

impl Router {
    /// Creates a router of these handlers and the configured routes.
    pub fn new<S>(handlers: Handlers<S>, config: &Config) -> Self {
        let handlers = handlers.into_registry();
        let mut targets = Targets::default();
        Self {
            table: RwLock::new(Table::new(&handlers, config, &mut targets)),
            handlers,
            targets: Mutex::new(targets),
            reloads: AtomicU64::new(0),
        }
    }

    /// Replaces the configured routes. Current runs keep theirs.
    pub fn reload(&self, config: &Config) {
        let table = {
            let targets = self.targets.lock();
            Table::new(
                &self.handlers,
                config,
                &mut targets.expect("nothing panics while holding the targets"),
            )
        };
        *self
            .table
            .write()
            .expect("nothing panics while holding the routes") = table;
        self.reloads.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of reloads. A route that was found before a reload may be outdated.
    pub fn reloads(&self) -> u64 {
        self.reloads.load(Ordering::Relaxed)
    }

    /// Returns the route of a key; `None` if it has none here.
    pub fn find(&self, key: &TaskKey) -> Option<Route> {
        let table = self.table();
        if let Some(route) = table.handlers.get(key.class_method()) {
            return Some(route.clone());
        }
        table.route_of(key).cloned()
    }

    /// Returns the route that settles a pulled task: that of its key, else one with the policy of `[retry]`, since a
    /// reload may have removed it.
    pub(crate) fn settling(&self, key: &TaskKey) -> Route {
        let found = self.find(key);
        found.unwrap_or_else(|| self.table().removed.clone())
    }

    /// Returns the configured routes with a pull queue: their positions and their queues.
    pub fn pull_queues(&self) -> Vec<(usize, PullConfig)> {
        let table = self.table();
        let routes = table.routes.iter().enumerate();
        routes
            .filter_map(|(at, (_, route))| Some((at, route.pull.clone()?)))
            .collect()
    }

    /// Returns the middleware of a run: that of the configuration, and inside it that of the program.
    pub fn around(&self, key: &TaskKey, route: &Route) -> Layers {
        self.handlers.layers_of(key, &route.layers)
    }

    /// True if the key has a route. Cheaper than [`find`](Self::find), since it is called for every key of the Redis
    /// database that gets an expiry.
    pub fn runs(&self, key: &TaskKey) -> bool {
        self.handlers.has(key.class_method()) || self.table().route_of(key).is_some()
    }

    /// True if a key that another program armed is adopted here.
    pub fn adopts(&self, key: &TaskKey) -> bool {
        let table = self.table();
        if self.handlers.has(key.class_method()) {
            return table.adopts;
        }
        table.route_of(key).is_some_and(|route| route.adopts)
    }

    /// True if any key can be adopted here.
    pub fn adopts_any(&self) -> bool {
        let table = self.table();
        (table.adopts && self.handlers.len() > 0)
            || table.routes.iter().any(|(_, route)| route.adopts)
    }

    fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table
            .read()
            .expect("nothing panics while holding the routes")
    }

    /// Returns what this daemon can run and adopt.
    pub fn skills(&self) -> Skills {
        let table = self.table();
        let handlers = self.handlers.names().into_iter().map(str::to_owned);
        let routes = table.routes.iter();
        let expressions = routes
            .clone()
            .map(|(matches, _)| matches.as_str().to_owned());
        let unadopted = routes.enumerate().filter(|(_, (_, route))| !route.adopts);
        Skills {
            handlers: handlers.collect(),
            routes: expressions.collect(),
            unadopted: unadopted.map(|(at, _)| at).collect(),
            adopts_for_handlers: table.adopts,
        }
    }

    /// Returns the number of routes and handlers.
    pub fn len(&self) -> usize {
        let table = self.table();
        table.routes.len() + self.handlers.len()
    }

    /// True if there are neither routes nor handlers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Table {
    fn new(handlers: &Registry, config: &Config, targets: &mut Targets) -> Self {
        let retry = Arc::new(config.retry.clone());
        let timeout = config.engine.timeout;
        let registered = |(class_method, registered): (&String, &Registered)| {
            let Registered { handler, options } = registered;
            let Options {
                retry: own_retry,
                limits,
                expire_after,
            } = options.clone();
            let route = Route {
                name: Arc::from(class_method.as_str()),
                handler: Arc::clone(handler),
                layers: Layers::default(),
                timeout: limits.timeout.unwrap_or(timeout),
                limits,
                retry: own_retry.unwrap_or_else(|| Arc::clone(&retry)),
                adopts: config.adopt.enabled,
                expire_after,
                pull: None,
            };
            (class_method.clone(), route)
        };
        let handlers: HashMap<String, Route> = handlers.all().map(registered).collect();
        let routes = config
            .routes
            .iter()
            .zip(targets.of(config))
            .map(|(route, target)| {
                let mut found = Self::route(route, target, timeout, &retry, config.adopt.enabled);
                if handlers.contains_key(&*found.name) {
                    // Names are unique: queues, permits and metrics are by name.
                    found.name = Arc::from(format!("/{}/", found.name));
                }
                (route.matches.clone(), found)
            })
            .collect();
        Self {
            handlers,
            routes,
            adopts: config.adopt.enabled,
            removed: Route {
                name: Arc::from("removed"),
                handler: Arc::new(Pull),
                layers: Layers::default(),
                timeout,
                limits: Limits::default(),
                retry,
                adopts: false,
                expire_after: None,
                pull: None,
            },
        }
    }

    fn route_of(&self, key: &TaskKey) -> Option<&Route> {
        let fits = |(matches, _): &&(Regex, Route)| matches.is_match(key.as_str());
        self.routes.iter().find(fits).map(|(_, route)| route)
    }

    fn route(
        config: &RouteConfig,
        handler: Arc<dyn Handler>,
        timeout: Duration,
        retry: &Arc<RetryPolicy>,
        adopts: bool,
    ) -> Route {
        let RouteConfig {
            matches,
            target,
            limits,
            retry: own_retry,
            adopt,
            slow_after,
            payload_secrets,
            expire_after,
        } = config;
        let mut layers = Layers::default();
        if let Some(slow_after) = slow_after {
            layers.push(&Layer::around(SlowLog::after(*slow_after)));
        }
        if !payload_secrets.is_empty() {
            layers.push(&Layer::around(VerifyPayload::any_of(
                payload_secrets.clone(),
            )));
        }
        Route {
            name: Arc::from(matches.as_str()),
            handler,
            layers,
            timeout: limits.timeout.unwrap_or(timeout),
            limits: *limits,
            retry: own_retry
                .clone()
                .map_or_else(|| Arc::clone(retry), Arc::new),
            // A key that another program armed is not signed.
            adopts: adopt.unwrap_or(adopts && payload_secrets.is_empty()),
            expire_after: *expire_after,
            pull: match target {
                TargetConfig::Pull(pull) => Some(pull.clone()),
                _ => None,
            },
        }
    }
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router")
            .field("handlers", &self.handlers)
            .field("len", &self.len())
            .finish()
    }
}

#[cfg(test)]
mod tests;
