//! Capabilities: which tasks a member can run.

use std::collections::HashSet;

use regex::{RegexSet, RegexSetBuilder};

use super::fnv::fnv1a;
use crate::task::TaskKey;

/// Largest compiled set of expressions, in bytes: they come from Redis.
const COMPILED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What a member can run, as its heartbeat lists it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Capabilities {
    /// `Class@method` of its handlers, in order.
    pub handlers: Vec<String>,
    /// The regular expressions of its routes, in order: the first one that matches a key decides.
    pub routes: Vec<String>,
    /// Positions in `routes` of pull routes for which no worker asks this member.
    pub idle: Vec<u16>,
}

impl Capabilities {
    /// A hash that differs between daemons that have different handlers and routes.
    pub fn digest(&self) -> u64 {
        let text = format!("{}\0\0{}", self.handlers.join("\0"), self.routes.join("\0"));
        fnv1a(text.as_bytes())
    }
}

/// The capabilities of one member, compiled.
#[derive(Debug)]
pub(super) struct CapabilityMatcher {
    handlers: HashSet<String>,
    routes: RegexSet,
    idle: Vec<u16>,
}

impl CapabilityMatcher {
    /// A set of expressions that does not compile within bounds matches no key.
    pub(super) fn new(capabilities: &Capabilities) -> Self {
        let routes = RegexSetBuilder::new(&capabilities.routes)
            .size_limit(COMPILED_BYTES_MAX)
            .build();
        Self {
            handlers: capabilities.handlers.iter().cloned().collect(),
            routes: routes.unwrap_or_default(),
            idle: capabilities.idle.clone(),
        }
    }

    /// True if the member has a handler or a route for the key.
    pub(super) fn can_run(&self, key: &TaskKey) -> bool {
        self.handlers.contains(key.class_method()) || self.routes.is_match(key.as_str())
    }

    /// True if the member can start the task: a pull route needs a worker that asks.
    pub(super) fn can_start(&self, key: &TaskKey) -> bool {
        if self.idle.is_empty() || self.handlers.contains(key.class_method()) {
            return self.can_run(key);
        }
        let first = self.routes.matches(key.as_str()).iter().next();
        first.is_some_and(|route| !self.idle.iter().any(|idle| usize::from(*idle) == route))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_runs_the_keys_that_a_handler_names_or_a_route_matches() {
        let matcher = |routes: &[&str]| {
            CapabilityMatcher::new(&Capabilities {
                handlers: vec!["Order@close".into()],
                routes: routes.iter().map(|route| (*route).to_owned()).collect(),
                idle: Vec::new(),
            })
        };
        let can =
            |matcher: &CapabilityMatcher, key: &str| matcher.can_run(&TaskKey::parse(key).unwrap());
        let able = matcher(&["^Shop@", "@open$"]);
        assert!(can(&able, "Order@close@1") && can(&able, "Shop@x") && can(&able, "A@open"));
        assert!(!can(&able, "Order@closed"));
        for broken in ["(", "(a{1000}){1000}"] {
            let broken = matcher(&[broken]);
            assert!(can(&broken, "Order@close") && !can(&broken, "a@a"));
        }
    }

    #[test]
    fn the_first_route_that_matches_decides_whether_a_task_can_start() {
        let matcher = |idle: &[u16]| {
            CapabilityMatcher::new(&Capabilities {
                handlers: vec!["Mail@bounce".into()],
                routes: ["^Mail@fast", "^Mail@", "."].map(str::to_owned).to_vec(),
                idle: idle.to_vec(),
            })
        };
        let keys = ["Mail@fast@1", "Mail@send@1", "Mail@bounce@1", "Shop@open"];
        for (idle, able) in [
            (&[][..], [true, true, true, true]),
            (&[1], [true, false, true, true]),
            (&[0, 2], [false, true, true, false]),
        ] {
            let matcher = matcher(idle);
            let keys = keys.map(|key| TaskKey::parse(key).unwrap());
            assert_eq!(keys.each_ref().map(|key| matcher.can_start(key)), able);
            assert!(keys.iter().all(|key| matcher.can_run(key)));
        }
    }
}
