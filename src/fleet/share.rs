//! Whose a key is, by what is known of the members now.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, RwLock};

use tokio::time::Instant;

use super::skilled::Skilled;
use super::weight::Hashed;
use super::{LIFETIME, MEMBERS_MAX, MemberId, Note, Readiness, Skills};
use crate::clock::LedgerClock;
use crate::task::{TaskKey, UnixMs};

/// Most sets of expressions that are compiled after one look at the roster.
const COMPILED_AT_ONCE: usize = 16;

/// This member's share of the tasks. Asking never blocks for long, never fails and does no I/O.
#[derive(Debug)]
pub struct Share {
    me: MemberId,
    clock: LedgerClock,
    view: RwLock<View>,
}

/// What was last read.
#[derive(Debug, Default)]
struct View {
    /// When it was asked for. `None`: we are not known to the others yet.
    read: Option<Instant>,
    /// When our note was last shown.
    shown: Option<(Instant, Readiness)>,
    /// As others may still believe of us: one look ago, or now, whichever is better. What we give up is thus kept until the
    /// others have had the time to read about it.
    readiness: Option<Readiness>,
    others: Vec<Peer>,
    compiled: HashMap<Skills, Arc<Skilled>>,
}

#[derive(Debug)]
struct Peer {
    id: MemberId,
    name: String,
    until: UnixMs,
    readiness: Readiness,
    /// `None`: the same as we.
    skilled: Option<Arc<Skilled>>,
}

/// Who came and who went, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// Other members that were not there before.
    pub joined: Vec<String>,
    /// Other members that are gone, or take no work any more.
    pub left: Vec<String>,
}

impl Share {
    /// The share of a member that knows of no other: everything.
    pub fn new(me: MemberId, clock: LedgerClock) -> Self {
        Self {
            me,
            clock,
            view: RwLock::default(),
        }
    }

    /// Who we are.
    pub fn me(&self) -> MemberId {
        self.me
    }

    /// Whether a task that can be run here is ours to run when it falls due.
    pub fn owns(&self, key: &TaskKey) -> bool {
        self.rank(key) == 0
    }

    /// How many members come before us for a task that can be run here. 0: it is ours.
    pub fn rank(&self, key: &TaskKey) -> usize {
        let view = self.view();
        if view.others.is_empty() {
            return 0;
        }
        view.rank(key, self.me, self.clock.now())
    }

    /// How many members are known to live, ourselves included.
    pub fn members(&self) -> usize {
        let view = self.view();
        let now = self.clock.now();
        1 + view.fresh_others().filter(|peer| peer.until > now).count()
    }

    /// Takes in what all show, after we have shown `own`; it was asked for at `asked`. Whoever has just come owns all until
    /// the next time: the others may not have read about it yet.
    pub fn learn(&self, own: &Note, notes: Vec<Note>, asked: Instant) -> Change {
        let now = self.clock.now();
        let mut view = self.view.write().expect("nothing panics while holding it");
        let before = view.names();
        let known = view
            .shown
            .filter(|(shown, _)| asked.duration_since(*shown) < LIFETIME);
        view.read = known.map(|_| asked);
        let believed = known.map_or(own.readiness, |(_, before)| before.max(own.readiness));
        view.readiness = Some(believed);
        view.shown = Some((asked, own.readiness));
        view.take_in(own, notes, now);
        let after = view.names();
        let missing = |of: &BTreeMap<MemberId, String>, from: &BTreeMap<MemberId, String>| {
            let missing = of.iter().filter(|(id, _)| !from.contains_key(id));
            missing.map(|(_, name)| name.clone()).collect()
        };
        Change {
            joined: missing(&after, &before),
            left: missing(&before, &after),
        }
    }

    fn view(&self) -> std::sync::RwLockReadGuard<'_, View> {
        self.view.read().expect("nothing panics while holding it")
    }
}

impl View {
    /// Only notes that are believed: from a clock that is not far from ours, and not too many.
    fn take_in(&mut self, own: &Note, mut notes: Vec<Note>, now: UnixMs) {
        notes.retain(|note| {
            note.id != own.id && note.until > now && note.until <= now.plus(2 * LIFETIME)
        });
        // All members have to leave out the same.
        notes.sort_by_key(|note| note.id);
        notes.truncate(MEMBERS_MAX - 1);
        let mut compiled = HashMap::new();
        let mut to_compile = COMPILED_AT_ONCE;
        let mut others = Vec::with_capacity(notes.len());
        for note in notes {
            let Note {
                id,
                name,
                until,
                readiness,
                skills,
            } = note;
            let skilled = if skills == own.skills {
                None
            } else if let Some(skilled) = compiled.get(&skills).or(self.compiled.get(&skills)) {
                let skilled = Arc::clone(skilled);
                compiled.insert(skills, Arc::clone(&skilled));
                Some(skilled)
            } else if to_compile > 0 {
                to_compile -= 1;
                let skilled = Arc::new(Skilled::new(&skills));
                compiled.insert(skills, Arc::clone(&skilled));
                Some(skilled)
            } else {
                // Next time. Until then it is nobody we can count on.
                continue;
            };
            others.push(Peer {
                id,
                name,
                until,
                readiness,
                skilled,
            });
        }
        (self.others, self.compiled) = (others, compiled);
    }

    fn rank(&self, key: &TaskKey, me: MemberId, now: UnixMs) -> usize {
        let hashed = Hashed::of(key);
        let ours = (self.readiness, hashed.for_member(me));
        self.fresh_others()
            .filter(|peer| peer.readiness > Readiness::Away && peer.until > now)
            .filter(|peer| (Some(peer.readiness), hashed.for_member(peer.id)) > ours)
            .filter(|peer| {
                let skilled = peer.skilled.as_ref();
                skilled.is_none_or(|skilled| skilled.can_run(key))
            })
            .count()
    }

    /// The others, unless what is known of them is old.
    fn fresh_others(&self) -> impl Iterator<Item = &Peer> {
        let fresh = self.read.is_some_and(|read| read.elapsed() < LIFETIME);
        self.others.iter().filter(move |_| fresh)
    }

    fn names(&self) -> BTreeMap<MemberId, String> {
        let at_work = self
            .others
            .iter()
            .filter(|peer| peer.readiness > Readiness::Away);
        at_work.map(|peer| (peer.id, peer.name.clone())).collect()
    }
}
