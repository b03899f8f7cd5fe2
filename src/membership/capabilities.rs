//! Capabilities: which tasks a member can run, and which keys of other programs it adopts.

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
    /// Positions in `routes` of routes that adopt no key of another program.
    pub unadopted: Vec<u16>,
    /// True if keys of the handlers are not adopted.
    pub handlers_unadopted: bool,
}

impl Capabilities {
    /// A hash that differs between daemons that have different handlers and routes, or adopt different keys.
    pub fn digest(&self) -> u64 {
        let mut text = format!("{}\0\0{}", self.handlers.join("\0"), self.routes.join("\0"));
        // Daemons that adopt everything have the hash of programs that do not state what they adopt.
        if self.handlers_unadopted || !self.unadopted.is_empty() {
            text += &format!("\0\0{}{:?}", self.handlers_unadopted, self.unadopted);
        }
        fnv1a(text.as_bytes())
    }

    /// True if it adopts any key that it can run.
    pub fn adopts_any(&self) -> bool {
        (!self.handlers.is_empty() && !self.handlers_unadopted)
            || self.unadopted.len() < self.routes.len()
    }

    /// True if both run the same tasks, and adopt the same keys, where workers ask for them.
    pub(super) fn runs_and_adopts_as(&self, other: &Self) -> bool {
        self.runs_as(other)
            && self.unadopted == other.unadopted
            && self.handlers_unadopted == other.handlers_unadopted
    }

    /// True if both run the same tasks where workers ask for them.
    pub(super) fn runs_as(&self, other: &Self) -> bool {
        self.handlers == other.handlers && self.routes == other.routes
    }
}

/// The capabilities of one member, compiled.
#[derive(Debug)]
pub(crate) struct CapabilityMatcher {
    handlers: HashSet<String>,
    routes: RegexSet,
    idle: Vec<u16>,
    unadopted: Vec<u16>,
    handlers_unadopted: bool,
}

impl CapabilityMatcher {
    /// A set of expressions that does not compile within bounds matches no key.
    pub(crate) fn new(capabilities: &Capabilities) -> Self {
        let routes = RegexSetBuilder::new(&capabilities.routes)
            .size_limit(COMPILED_BYTES_MAX)
            .build();
        Self {
            handlers: capabilities.handlers.iter().cloned().collect(),
            routes: routes.unwrap_or_default(),
            idle: capabilities.idle.clone(),
            unadopted: capabilities.unadopted.clone(),
            handlers_unadopted: capabilities.handlers_unadopted,
        }
    }

    /// True if the member has a handler or a route for the key.
    pub(crate) fn can_run(&self, key: &TaskKey) -> bool {
        self.handlers.contains(key.class_method()) || self.routes.is_match(key.as_str())
    }

    /// True if the member can start the task: a pull route needs a worker that asks.
    pub(crate) fn can_start(&self, key: &TaskKey) -> bool {
        if self.idle.is_empty() || self.handlers.contains(key.class_method()) {
            return self.can_run(key);
        }
        self.route_is_not_in(&self.idle, key)
    }

    /// True if the member adopts the key when another program arms it.
    pub(super) fn can_adopt(&self, key: &TaskKey) -> bool {
        if self.handlers.contains(key.class_method()) {
            return !self.handlers_unadopted;
        }
        self.route_is_not_in(&self.unadopted, key)
    }

    /// The place of the key's route among the idle ones; `None` if it can start.
    pub(crate) fn idle_place(&self, key: &TaskKey) -> Option<usize> {
        if self.handlers.contains(key.class_method()) {
            return None;
        }
        let route = self.route_of(key)?;
        self.idle.iter().position(|at| usize::from(*at) == route)
    }

    /// True if the key has a route, and its route is none of these.
    fn route_is_not_in(&self, positions: &[u16], key: &TaskKey) -> bool {
        let first = self.route_of(key);
        first.is_some_and(|route| !positions.iter().any(|at| usize::from(*at) == route))
    }

    /// The position of the first route that matches.
    fn route_of(&self, key: &TaskKey) -> Option<usize> {
        self.routes.matches(key.as_str()).iter().next()
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
                ..Capabilities::default()
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

    /// Each such route compiles to many KiB.
    #[test]
    fn a_member_may_have_many_routes_with_classes_of_letters() {
        let routes = (0..60).map(|n| format!(r"^Service{n}\w*@"));
        let matcher = CapabilityMatcher::new(&Capabilities {
            routes: routes.collect(),
            ..Capabilities::default()
        });
        assert!(matcher.can_run(&TaskKey::parse("Service7Mail@run").unwrap()));
    }

    #[test]
    fn the_first_route_that_matches_decides_whether_a_task_can_start() {
        let matcher = |idle: &[u16]| {
            CapabilityMatcher::new(&Capabilities {
                handlers: vec!["Mail@bounce".into()],
                routes: ["^Mail@fast", "^Mail@", "."].map(str::to_owned).to_vec(),
                idle: idle.to_vec(),
                ..Capabilities::default()
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

    #[test]
    fn the_first_route_that_matches_decides_whether_a_key_is_adopted() {
        let capabilities = |unadopted: &[u16], handlers_unadopted| Capabilities {
            handlers: vec!["Mail@bounce".into()],
            routes: ["^Mail@fast", "^Mail@"].map(str::to_owned).to_vec(),
            unadopted: unadopted.to_vec(),
            handlers_unadopted,
            ..Capabilities::default()
        };
        let keys = ["Mail@fast@1", "Mail@send@1", "Mail@bounce@1", "Shop@open"];
        let keys = keys.map(|key| TaskKey::parse(key).unwrap());
        for (unadopted, handlers_unadopted, adopted) in [
            (&[][..], false, [true, true, true, false]),
            (&[1], false, [true, false, true, false]),
            (&[0], true, [false, true, false, false]),
            (&[0, 1], true, [false; 4]),
        ] {
            let capabilities = capabilities(unadopted, handlers_unadopted);
            let matcher = CapabilityMatcher::new(&capabilities);
            assert_eq!(keys.each_ref().map(|key| matcher.can_adopt(key)), adopted);
            assert_eq!(capabilities.adopts_any(), adopted.contains(&true));
        }
    }

    #[test]
    fn the_digest_tells_daemons_apart_that_adopt_different_keys() {
        let all = Capabilities {
            handlers: vec!["Order@close".into()],
            routes: ["^Mail@", "^Shop@"].map(str::to_owned).to_vec(),
            ..Capabilities::default()
        };
        let one = Capabilities {
            unadopted: vec![0],
            ..all.clone()
        };
        let other = Capabilities {
            unadopted: vec![1],
            ..all.clone()
        };
        let handlers = Capabilities {
            handlers_unadopted: true,
            ..all.clone()
        };
        let mut digests = [&all, &one, &other, &handlers].map(Capabilities::digest);
        digests.sort_unstable();
        assert!(digests.windows(2).all(|pair| pair[0] != pair[1]));
        let idle = Capabilities {
            idle: vec![1],
            ..all.clone()
        };
        assert_eq!(idle.digest(), all.digest());
    }
}
