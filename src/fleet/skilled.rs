//! What another member can run, ready to be asked.

use std::collections::HashSet;

use regex::{RegexSet, RegexSetBuilder};

use super::Skills;
use crate::task::TaskKey;

/// Largest compiled set of expressions, in bytes: they come from Redis.
const COMPILED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Names and expressions of one member, compiled.
#[derive(Debug)]
pub(super) struct Skilled {
    handlers: HashSet<String>,
    routes: RegexSet,
}

impl Skilled {
    /// Expressions that cannot be compiled within bounds run nothing.
    pub(super) fn new(skills: &Skills) -> Self {
        let routes = RegexSetBuilder::new(&skills.routes)
            .size_limit(COMPILED_BYTES_MAX)
            .build();
        Self {
            handlers: skills.handlers.iter().cloned().collect(),
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
    fn it_runs_what_a_handler_names_or_a_route_fits() {
        let skilled = |routes: &[&str]| {
            Skilled::new(&Skills {
                handlers: vec!["Order@close".into()],
                routes: routes.iter().map(|route| (*route).to_owned()).collect(),
            })
        };
        let can = |skilled: &Skilled, key: &str| skilled.can_run(&TaskKey::parse(key).unwrap());
        let able = skilled(&["^Shop@", "@open$"]);
        assert!(can(&able, "Order@close@1") && can(&able, "Shop@x") && can(&able, "A@open"));
        assert!(!can(&able, "Order@closed"));
        for broken in ["(", "(a{1000}){1000}"] {
            let broken = skilled(&[broken]);
            assert!(can(&broken, "Order@close") && !can(&broken, "a@a"));
        }
    }
}
