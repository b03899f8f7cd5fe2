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
    /// The regular expressions of its routes.
    pub routes: Vec<String>,
}

impl Capabilities {
    /// A hash that differs between daemons that run different tasks.
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
        }
    }

    pub(super) fn can_run(&self, key: &TaskKey) -> bool {
        self.handlers.contains(key.class_method()) || self.routes.is_match(key.as_str())
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
}
