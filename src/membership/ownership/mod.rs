//! Ownership: which member runs a task, by the last heartbeats.

mod gone;
mod view;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tokio::time::Instant;

pub use self::gone::GoneMember;
use self::view::{NamedOwners, Peer, Peers, View};
use super::rendezvous::BucketHash;
use super::{Heartbeat, LIFETIME, LISTENERS, Member, MemberId, Readiness};
use crate::clock::LedgerClock;
use crate::task::{KeyBucket, KeyBuckets, TaskKey};

/// This member's view of who owns which task. Its queries never fail, do no I/O, and wait only for a short lock.
#[derive(Debug)]
pub struct Ownership {
    me: MemberId,
    clock: LedgerClock,
    view: RwLock<View>,
}

/// The members that share the tasks. While it stays equal, every task keeps its owner.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OwnerSet {
    ours: Option<(Readiness, Vec<u16>)>,
    /// Readiness and idle routes.
    others: BTreeMap<MemberId, (Readiness, Vec<u16>)>,
}

/// A higher-ranked member that receives an event and acts on it before we do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HigherRankedListener {
    /// Its id.
    pub id: MemberId,
    /// True if [`Membership::is_reachable`](super::Membership::is_reachable) can tell that it is gone.
    pub can_be_asked: bool,
}

/// How the members changed with one update.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// Names of the other members that have started to own tasks.
    pub joined: Vec<String>,
    /// Names of the other members that no longer own tasks.
    pub left: Vec<String>,
    /// Names of those that left without announcing it: they may have died in the middle of their work.
    pub lost: Vec<String>,
    /// Some tasks have another owner than before.
    pub owners: bool,
}

impl Ownership {
    /// Creates the view of a member that knows no other. It owns all tasks.
    pub fn new(me: MemberId, clock: LedgerClock) -> Self {
        Self {
            me,
            clock,
            view: RwLock::default(),
        }
    }

    /// Returns the id of this member.
    pub fn me(&self) -> MemberId {
        self.me
    }

    /// True if this member owns a task that it can run.
    pub fn owns(&self, key: &TaskKey) -> bool {
        self.rank(key) == 0
    }

    /// Returns how many members come before us as owners of a task that we can run. 0: we own it. A member that cannot
    /// start the task comes after those that can.
    pub fn rank(&self, key: &TaskKey) -> usize {
        let view = self.view();
        if view.others.is_empty() {
            return 0;
        }
        let hash = BucketHash::of(KeyBucket::of(key));
        let ours = view.own_claim(self.me, hash);
        let ours = view.can_start(key).then_some(ours);
        view.owners(self.clock.now())
            .filter(|peer| Some(peer.claim(hash)) > ours && peer.can_start(key))
            .count()
    }

    /// Returns the buckets whose keys we may own: all, unless all other members have our capabilities.
    pub fn own_buckets(&self) -> KeyBuckets {
        let view = self.view();
        let others: Vec<&Peer> = view.owners(self.clock.now()).collect();
        if others.is_empty() || others.iter().any(|peer| !peer.starts_our_tasks) {
            return KeyBuckets::all();
        }
        let is_ours = |bucket: &KeyBucket| {
            let hash = BucketHash::of(*bucket);
            let ours = view.own_claim(self.me, hash);
            others.iter().all(|peer| peer.claim(hash) < ours)
        };
        KeyBucket::all().filter(is_ours).collect()
    }

    /// Returns how many members that receive the arming of this key act on it before we do. 0: we act first. A member
    /// that adopts the key comes before one that does not; `adopts` says whether we do.
    pub fn listener_rank(&self, key: &TaskKey, adopts: impl FnOnce() -> bool) -> usize {
        let view = self.view();
        view.before_us(self.me, self.clock.now(), key, adopts)
            .count()
    }

    /// Returns the first of those that act on a key before we do, for a key that we adopt.
    pub fn highest_ranked_listener(&self, key: &TaskKey) -> Option<HigherRankedListener> {
        let view = self.view();
        let before = view.before_us(self.me, self.clock.now(), key, || true);
        let first = before.min_by_key(|peer| (peer.member.since, peer.member.id))?;
        Some(HigherRankedListener {
            id: first.member.id,
            can_be_asked: first.forwards,
        })
    }

    /// Returns the owner of an expired key if that member needs a hint from us to learn of the event.
    pub fn hint_recipient(&self, key: &TaskKey) -> Option<MemberId> {
        let view = self.view();
        let now = self.clock.now();
        let hash = BucketHash::of(KeyBucket::of(key));
        let able = view.owners(now).filter(|peer| peer.can_start(key));
        let owner = able.max_by_key(|peer| peer.claim(hash))?;
        let ours = view.own_claim(self.me, hash);
        let is_behind_us = view.can_start(key) && owner.claim(hash) < ours;
        let mut higher_ranked = view.listener_rank(self.me, now);
        let is_informed =
            owner.hears_expiries() || is_behind_us || higher_ranked.any(|peer| peer.can_run(key));
        (!is_informed).then_some(owner.member.id)
    }

    /// True if we are to adopt an expired key without a row because its owner does not adopt it. `adopts` says whether
    /// we do.
    pub fn adopts_for_owner(&self, key: &TaskKey, adopts: impl FnOnce() -> bool) -> bool {
        let view = self.view();
        if !view.adoption_differs {
            return false;
        }
        let now = self.clock.now();
        let hash = BucketHash::of(KeyBucket::of(key));
        let ours = view.own_claim(self.me, hash);
        let ours = view.can_start(key).then_some(ours);
        let able = view.owners(now).filter(|peer| peer.can_start(key));
        let before_us = able.filter(|peer| Some(peer.claim(hash)) > ours);
        let owner = before_us.max_by_key(|peer| peer.claim(hash));
        let is_left = owner.is_some_and(|owner| !owner.can_adopt(key, true));
        let mut higher_ranked = view.listener_rank(self.me, now);
        is_left
            && adopts()
            && !higher_ranked.any(|peer| peer.can_run(key) && peer.can_adopt(key, true))
    }

    /// True if another member may adopt keys. Members that were known last count, even if the list is stale.
    pub fn others_adopt(&self) -> bool {
        let view = self.view();
        let mut others = view.others.iter();
        others.any(|peer| peer.member.capabilities.adopts_any())
    }

    /// True if enough higher-ranked members receive what we do (`armings`: also the arming of keys), adopt what we do, and
    /// forward our expired keys.
    pub fn may_stop_listening(&self, armings: bool) -> bool {
        let view = self.view();
        let higher_ranked = view.listener_rank(self.me, self.clock.now());
        let equals = higher_ranked.filter(|peer| {
            peer.has_our_routes && peer.forwards && (peer.member.listening || !armings)
        });
        equals.count() >= LISTENERS
    }

    /// Returns the members that own tasks now.
    pub fn owner_set(&self) -> OwnerSet {
        let view = self.view();
        let others = view.owners(self.clock.now());
        let others: BTreeMap<_, _> = others
            .map(|peer| {
                (
                    peer.member.id,
                    (peer.member.readiness, peer.member.capabilities.idle.clone()),
                )
            })
            .collect();
        // A single member owns all tasks at any readiness.
        let ours = view.readiness.filter(|_| !others.is_empty());
        let ours = ours.map(|readiness| (readiness, view.idle.clone()));
        OwnerSet { ours, others }
    }

    /// True if we have the smallest id of all members that own tasks. The first member does the work that is needed
    /// once.
    pub fn is_first(&self) -> bool {
        let OwnerSet { ours: _, others } = self.owner_set();
        others.keys().all(|other| self.me < *other)
    }

    /// Returns the number of live members, this one included.
    pub fn members(&self) -> usize {
        let view = self.view();
        let now = self.clock.now();
        1 + view.fresh_others().filter(|peer| peer.until > now).count()
    }

    /// Returns the live members that the last exchange has shown, this one first. Empty before the first exchange.
    pub fn fleet(&self) -> Vec<Member> {
        let view = self.view();
        let now = self.clock.now();
        let this = view.heartbeat.as_ref().map(|heartbeat| Member {
            is_this: true,
            ..heartbeat.clone().into()
        });
        let others = view.fresh_others().filter(|peer| peer.until > now);
        let others = others.map(|peer| peer.member.clone());
        this.into_iter().chain(others).collect()
    }

    /// Returns the members that have ended without saying so, at most `span` ago, and whose place no other has taken since.
    pub fn gone(&self, span: Duration) -> Vec<GoneMember> {
        self.view().gone.within(span)
    }

    /// True if heartbeats were exchanged lately: a member that is not listed is not there. A member that has just joined
    /// uses what it has read when the others have had time to read of it.
    pub fn is_current(&self) -> bool {
        let view = self.view();
        let read = match view.others.is_empty() {
            true => view.published.map(|(at, _)| at),
            false => view.read,
        };
        read.is_some_and(|read| read.elapsed() < LIFETIME)
    }

    /// True if this other member is live. `None` while the list is stale.
    pub fn is_alive(&self, id: MemberId) -> Option<bool> {
        let view = self.view();
        let now = self.clock.now();
        view.read.filter(|read| read.elapsed() < LIFETIME)?;
        let mut live = view.others.iter().filter(|peer| peer.until > now);
        Some(live.any(|peer| peer.member.id == id))
    }

    /// Replaces the view by the heartbeats that an exchange of `own` at `asked` returned. A member that has just joined
    /// owns all tasks until its next update: the others may not have read its heartbeat yet.
    pub fn update(&self, own: &Heartbeat, heartbeats: Vec<Heartbeat>, asked: Instant) -> Change {
        let known = std::mem::take(&mut self.view_mut().compiled);
        // Compiles outside the lock, because every signal needs the lock.
        let Peers {
            own: able,
            others,
            compiled,
        } = Peers::new(own, heartbeats, self.clock.now(), &known);
        let mut view = self.view_mut();
        let before = view.named_owners();
        let idle_before = std::mem::replace(&mut view.idle, own.capabilities.idle.clone());
        view.own = able;
        let published = view
            .published
            .filter(|(at, _)| asked.duration_since(*at) < LIFETIME);
        view.read = published.map(|_| asked);
        let believed = published.map_or(own.readiness, |(_, before)| before.max(own.readiness));
        view.readiness = Some(believed);
        view.published = Some((asked, own.readiness));
        view.since = own.since;
        view.heartbeat = Some(own.clone());
        view.adoption_differs = others.iter().any(|peer| !peer.has_our_routes);
        let former = std::mem::replace(&mut view.others, others);
        view.compiled = compiled;
        let after = view.named_owners();
        let is_listed = |id: &MemberId| view.others.iter().any(|peer| peer.member.id == *id);
        let lost = before.iter().filter(|(id, _)| !is_listed(id));
        let lost = lost.filter_map(|(id, _)| former.iter().find(|peer| peer.member.id == *id));
        let lost: Vec<GoneMember> = lost
            .map(|peer| GoneMember {
                name: peer.member.name.clone(),
                capabilities: Arc::clone(&peer.member.capabilities),
            })
            .collect();
        let joined = names_missing(&after, &before);
        view.gone.update(&lost, joined.len(), asked);
        let lost = lost.into_iter().map(|gone| gone.name).collect();
        Change {
            joined,
            left: names_missing(&before, &after),
            lost,
            owners: after != before || (idle_before != view.idle && !view.others.is_empty()),
        }
    }

    fn view_mut(&self) -> RwLockWriteGuard<'_, View> {
        self.view.write().expect("nothing panics while holding it")
    }

    fn view(&self) -> RwLockReadGuard<'_, View> {
        self.view.read().expect("nothing panics while holding it")
    }
}

/// Returns the names of the members in `of` that are missing in `from`.
fn names_missing(of: &NamedOwners, from: &NamedOwners) -> Vec<String> {
    let missing = of.iter().filter(|(id, _)| !from.contains_key(id));
    missing.map(|(_, (name, ..))| name.clone()).collect()
}
