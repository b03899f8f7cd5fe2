//! The last heartbeats, checked and compiled.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::time::Instant;

use super::gone::Gone;
use crate::membership::capabilities::{Capabilities, CapabilityMatcher};
use crate::membership::rendezvous::{BucketHash, Weight};
use crate::membership::{Heartbeat, LIFETIME, MEMBERS_MAX, Member, MemberId, Readiness};
use crate::task::{TaskKey, UnixMs};

/// Most sets of expressions that one update compiles.
pub(super) const COMPILED_AT_ONCE: usize = 4;

/// The state after the last update.
#[derive(Debug, Default)]
pub(super) struct View {
    /// When the list was requested. `None`: the others do not know us yet.
    pub(super) read: Option<Instant>,
    /// Time and readiness of our last heartbeat.
    pub(super) published: Option<(Instant, Readiness)>,
    /// The readiness that others may still assume: the better one of our last two heartbeats. We keep tasks that we
    /// give up until the others have read of it.
    pub(super) readiness: Option<Readiness>,
    /// When we joined.
    pub(super) since: UnixMs,
    /// Our capabilities, if a route of ours is idle.
    pub(super) own: Option<Arc<CapabilityMatcher>>,
    /// Positions of our idle routes.
    pub(super) idle: Vec<u16>,
    /// Our last heartbeat.
    pub(super) heartbeat: Option<Heartbeat>,
    pub(super) others: Vec<Peer>,
    /// True if another member may adopt other keys than we do.
    pub(super) adoption_differs: bool,
    /// Others that have ended without saying so.
    pub(super) gone: Gone,
    pub(super) compiled: Compiled,
}

/// Compiled capabilities, kept from one update to the next.
pub(super) type Compiled = HashMap<Arc<Capabilities>, Arc<CapabilityMatcher>>;

/// Decides the owner of a bucket: the greatest claim owns it.
pub(super) type Claim = (Option<Readiness>, Weight);

/// Owners by id, with name and what decides about their tasks.
pub(super) type NamedOwners = BTreeMap<MemberId, (String, Readiness, Vec<u16>)>;

impl View {
    pub(super) fn own_claim(&self, me: MemberId, hash: BucketHash) -> Claim {
        (self.readiness, hash.weight_for(me))
    }

    /// True if we can start the task, as far as workers are needed for it.
    pub(super) fn can_start(&self, key: &TaskKey) -> bool {
        self.own.as_ref().is_none_or(|own| own.can_start(key))
    }

    /// The others that own tasks now.
    pub(super) fn owners(&self, now: UnixMs) -> impl Iterator<Item = &Peer> {
        self.fresh_others()
            .filter(move |peer| peer.member.readiness > Readiness::Away && peer.until > now)
    }

    /// The others that receive the expiry of all keys and joined before us.
    pub(super) fn listener_rank(&self, me: MemberId, now: UnixMs) -> impl Iterator<Item = &Peer> {
        self.owners(now)
            .filter(move |peer| peer.hears_expiries() && peer.joined_before(self.since, me))
    }

    /// The others that receive the arming of this key and come before us: a member that adopts the key comes before one
    /// that does not, also if it joined later. `adopts` says whether we adopt it.
    pub(super) fn before_us<'a>(
        &'a self,
        me: MemberId,
        now: UnixMs,
        key: &'a TaskKey,
        adopts: impl FnOnce() -> bool,
    ) -> impl Iterator<Item = &'a Peer> {
        // All equal in this: not asked, since it is called for each event.
        let adopts = self.adoption_differs.then(adopts);
        self.owners(now).filter(move |peer| {
            let is_higher_ranked = peer.joined_before(self.since, me);
            let is_before = match adopts {
                None => is_higher_ranked,
                Some(adopts) => match (peer.can_adopt(key, adopts), adopts) {
                    (true, false) => true,
                    (false, true) => false,
                    (true, true) | (false, false) => is_higher_ranked,
                },
            };
            is_before && peer.member.listening && peer.can_run(key)
        })
    }

    /// The others, or none if the list is stale.
    pub(super) fn fresh_others(&self) -> impl Iterator<Item = &Peer> {
        let fresh = self.read.is_some_and(|read| read.elapsed() < LIFETIME);
        self.others.iter().filter(move |_| fresh)
    }

    /// The others that owned tasks when the list was read.
    pub(super) fn named_owners(&self) -> NamedOwners {
        let others = self.others.iter();
        let owners = others.filter(|peer| peer.member.readiness > Readiness::Away);
        owners
            .map(|peer| {
                let Member {
                    id,
                    name,
                    readiness,
                    capabilities,
                    ..
                } = &peer.member;
                (*id, (name.clone(), *readiness, capabilities.idle.clone()))
            })
            .collect()
    }
}

/// Another member.
#[derive(Debug)]
pub(super) struct Peer {
    /// As its heartbeat describes it.
    pub(super) member: Member,
    pub(super) until: UnixMs,
    pub(super) forwards: bool,
    /// True if it has our handlers and routes, idle or not, and adopts the same keys.
    pub(super) has_our_routes: bool,
    /// True if it has our handlers and routes, idle where ours are.
    pub(super) starts_our_tasks: bool,
    /// `None`: the same as ours, and no route is idle.
    matcher: Option<Arc<CapabilityMatcher>>,
}

impl Peer {
    pub(super) fn can_run(&self, key: &TaskKey) -> bool {
        let matcher = self.matcher.as_ref();
        matcher.is_none_or(|matcher| matcher.can_run(key))
    }

    pub(super) fn can_start(&self, key: &TaskKey) -> bool {
        let matcher = self.matcher.as_ref();
        matcher.is_none_or(|matcher| matcher.can_start(key))
    }

    /// True if it adopts the key when another program arms it. `ours` is true if we do.
    pub(super) fn can_adopt(&self, key: &TaskKey, ours: bool) -> bool {
        match &self.matcher {
            None => ours,
            Some(matcher) => matcher.can_adopt(key),
        }
    }

    /// True if it receives the expiry of all keys.
    pub(super) fn hears_expiries(&self) -> bool {
        self.member.listening || self.member.expired_only
    }

    fn joined_before(&self, since: UnixMs, id: MemberId) -> bool {
        (self.member.since, self.member.id) < (since, id)
    }

    pub(super) fn claim(&self, hash: BucketHash) -> Claim {
        (Some(self.member.readiness), hash.weight_for(self.member.id))
    }
}

/// The members of one exchange.
pub(super) struct Peers {
    /// Our capabilities, if a route of ours is idle.
    pub(super) own: Option<Arc<CapabilityMatcher>>,
    pub(super) others: Vec<Peer>,
    pub(super) compiled: Compiled,
}

impl Peers {
    /// Accepts up to [`MEMBERS_MAX`] heartbeats that are valid by a clock close to ours. `known` are capabilities that
    /// were compiled earlier.
    pub(super) fn new(
        own: &Heartbeat,
        mut heartbeats: Vec<Heartbeat>,
        now: UnixMs,
        known: &Compiled,
    ) -> Self {
        heartbeats.retain(|heartbeat| {
            let Heartbeat { id, until, .. } = heartbeat;
            *id != own.id && *until > now && *until <= now.plus(2 * LIFETIME)
        });
        // All members must leave out the same ones.
        heartbeats.sort_by_key(|heartbeat| heartbeat.id);
        heartbeats.truncate(MEMBERS_MAX - 1);
        let mut compiled = Compiled::new();
        let own_idle = (!own.capabilities.idle.is_empty()).then(|| {
            let known = known.get(&own.capabilities).cloned();
            let matcher =
                known.unwrap_or_else(|| Arc::new(CapabilityMatcher::new(&own.capabilities)));
            compiled.insert(Arc::new(own.capabilities.clone()), Arc::clone(&matcher));
            matcher
        });
        let mut to_compile = COMPILED_AT_ONCE;
        let mut others = Vec::with_capacity(heartbeats.len());
        for heartbeat in heartbeats {
            let (until, forwards) = (heartbeat.until, heartbeat.forwards);
            let member = Member::from(heartbeat);
            let capabilities = &member.capabilities;
            let has_our_routes = capabilities.runs_and_adopts_as(&own.capabilities);
            let starts_our_tasks = capabilities.runs_as(&own.capabilities)
                && capabilities.idle == own.capabilities.idle;
            let matcher = if **capabilities == own.capabilities && capabilities.idle.is_empty() {
                None
            } else if let Some(matcher) = compiled.get(capabilities).or(known.get(capabilities)) {
                let matcher = Arc::clone(matcher);
                compiled.insert(Arc::clone(capabilities), Arc::clone(&matcher));
                Some(matcher)
            } else if to_compile > 0 {
                to_compile -= 1;
                let matcher = Arc::new(CapabilityMatcher::new(capabilities));
                compiled.insert(Arc::clone(capabilities), Arc::clone(&matcher));
                Some(matcher)
            } else {
                // A later update compiles it. Until then the member owns nothing.
                continue;
            };
            others.push(Peer {
                has_our_routes,
                starts_our_tasks,
                member,
                until,
                forwards,
                matcher,
            });
        }
        Self {
            own: own_idle,
            others,
            compiled,
        }
    }
}
