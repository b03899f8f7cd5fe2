//! Whose a key is, by what is known of the members now.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tokio::time::Instant;

use super::skilled::Skilled;
use super::weight::Hashed;
use super::{LIFETIME, LISTENERS, MEMBERS_MAX, MemberId, Note, Readiness, Skills};
use crate::clock::LedgerClock;
use crate::task::{KeyBucket, KeyBuckets, TaskKey, UnixMs};

/// Most sets of expressions that are compiled after one look at the roster.
const COMPILED_AT_ONCE: usize = 4;

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
    /// As others may still believe of us: one look ago, or now, whichever is better. What we give up is thus kept until
    /// the others have had the time to read about it.
    readiness: Option<Readiness>,
    /// When we joined.
    since: UnixMs,
    others: Vec<Peer>,
    compiled: HashMap<Skills, Arc<Skilled>>,
}

#[derive(Debug)]
struct Peer {
    id: MemberId,
    name: String,
    since: UnixMs,
    until: UnixMs,
    readiness: Readiness,
    listening: bool,
    passes_on: bool,
    /// `None`: the same as we.
    skilled: Option<Arc<Skilled>>,
}

/// The others that own tasks.
type AtWork = BTreeMap<MemberId, (String, Readiness)>;

/// Those among whom the tasks are divided.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Division {
    ours: Option<Readiness>,
    others: BTreeMap<MemberId, Readiness>,
}

/// A member that acts on a key before we do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elder {
    /// Which.
    pub id: MemberId,
    /// Whether [`Roster::hears`](super::Roster::hears) can tell that it is gone.
    pub can_be_asked: bool,
}

/// Who came and who went, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// Other members that were not there before.
    pub joined: Vec<String>,
    /// Other members that are gone, or take no work any more.
    pub left: Vec<String>,
    /// One of these is gone without having said so: it may have died in the middle of its work.
    pub vanished: bool,
    /// Some tasks have another owner than before.
    pub shares: bool,
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

    /// The buckets whose keys may be ours to run: all, unless every other member can run the same as we.
    pub fn own_buckets(&self) -> KeyBuckets {
        let view = self.view();
        let others: Vec<&Peer> = view.at_work(self.clock.now()).collect();
        if others.is_empty() || others.iter().any(|peer| peer.skilled.is_some()) {
            return KeyBuckets::all();
        }
        let is_ours = |bucket: &KeyBucket| {
            let hashed = Hashed::of(*bucket);
            let ours = (view.readiness, hashed.for_member(self.me));
            let theirs = |peer: &&Peer| (Some(peer.readiness), hashed.for_member(peer.id));
            others.iter().all(|peer| theirs(peer) < ours)
        };
        KeyBucket::all().filter(is_ours).collect()
    }

    /// How many members that can run it hear what happens to this key and are elder than we. 0: what is to be done about
    /// it, we do.
    pub fn turn(&self, key: &TaskKey) -> usize {
        let view = self.view();
        let elder = view.elder_listeners(self.me, self.clock.now());
        elder.filter(|peer| peer.can_run(key)).count()
    }

    /// The eldest of them, if there is any.
    pub fn first_in_turn(&self, key: &TaskKey) -> Option<Elder> {
        let view = self.view();
        let elder = view.elder_listeners(self.me, self.clock.now());
        let first = elder.filter(|peer| peer.can_run(key));
        let first = first.min_by_key(|peer| (peer.since, peer.id))?;
        Some(Elder {
            id: first.id,
            can_be_asked: first.passes_on,
        })
    }

    /// The owner of a key that has expired, if that is a member which does not hear of it unless we pass it on.
    pub fn to_be_told(&self, key: &TaskKey) -> Option<MemberId> {
        let view = self.view();
        let now = self.clock.now();
        let hashed = Hashed::of(KeyBucket::of(key));
        let ours = (view.readiness, hashed.for_member(self.me));
        let before_us = view.at_work(now).filter(|peer| peer.can_run(key));
        let weighed =
            before_us.map(|peer| (Some(peer.readiness), hashed.for_member(peer.id), peer));
        let (readiness, weight, owner) =
            weighed.max_by_key(|(readiness, weight, _)| (*readiness, *weight))?;
        let elder = view.elder_listeners(self.me, now);
        let is_told = owner.listening
            || (readiness, weight) < ours
            || elder.filter(|peer| peer.can_run(key)).count() > 0;
        (!is_told).then_some(owner.id)
    }

    /// Whether so many elder members hear what happens to all keys that we need not: what is ours is passed on to us.
    pub fn may_stop_listening(&self) -> bool {
        let view = self.view();
        let elder = view.elder_listeners(self.me, self.clock.now());
        let alike = elder.filter(|peer| peer.skilled.is_none() && peer.passes_on);
        alike.count() >= LISTENERS
    }

    /// Who takes part, as known now. As long as this stays the same, so does every task's owner.
    pub fn division(&self) -> Division {
        let view = self.view();
        let now = self.clock.now();
        let others = view.at_work(now);
        let others: BTreeMap<_, _> = others.map(|peer| (peer.id, peer.readiness)).collect();
        // Alone, all is ours, whether or not there is room for it.
        let ours = view.readiness.filter(|_| !others.is_empty());
        Division { ours, others }
    }

    /// Whether no member that is known to be at work comes before us: what one of many should do, is ours.
    pub fn is_first(&self) -> bool {
        let Division { ours: _, others } = self.division();
        others.keys().all(|other| self.me < *other)
    }

    /// How many members are known to live, ourselves included.
    pub fn members(&self) -> usize {
        let view = self.view();
        let now = self.clock.now();
        1 + view.fresh_others().filter(|peer| peer.until > now).count()
    }

    /// Whether another member is known to live. `None` while nothing is known of the others.
    pub fn lives(&self, id: MemberId) -> Option<bool> {
        let view = self.view();
        let now = self.clock.now();
        view.read.filter(|read| read.elapsed() < LIFETIME)?;
        let mut living = view.others.iter().filter(|peer| peer.until > now);
        Some(living.any(|peer| peer.id == id))
    }

    /// Takes in what all show, after we have shown `own`; it was asked for at `asked`. Whoever has just come owns all
    /// until the next time: the others may not have read about it yet.
    pub fn learn(&self, own: &Note, notes: Vec<Note>, asked: Instant) -> Change {
        let compiled = std::mem::take(&mut self.view_mut().compiled);
        // Compiling takes a while, and everybody asks.
        let (others, compiled) = peers(own, notes, self.clock.now(), &compiled);
        let mut view = self.view_mut();
        let before = view.names_at_work();
        let known = view
            .shown
            .filter(|(shown, _)| asked.duration_since(*shown) < LIFETIME);
        view.read = known.map(|_| asked);
        let believed = known.map_or(own.readiness, |(_, before)| before.max(own.readiness));
        view.readiness = Some(believed);
        view.shown = Some((asked, own.readiness));
        view.since = own.since;
        (view.others, view.compiled) = (others, compiled);
        let after = view.names_at_work();
        let missing = |of: &AtWork, from: &AtWork| {
            let missing = of.iter().filter(|(id, _)| !from.contains_key(id));
            missing.map(|(_, (name, _))| name.clone()).collect()
        };
        let is_listed = |id: &MemberId| view.others.iter().any(|peer| peer.id == *id);
        Change {
            joined: missing(&after, &before),
            left: missing(&before, &after),
            vanished: !before.keys().all(is_listed),
            shares: after != before,
        }
    }

    fn view_mut(&self) -> RwLockWriteGuard<'_, View> {
        self.view.write().expect("nothing panics while holding it")
    }

    fn view(&self) -> RwLockReadGuard<'_, View> {
        self.view.read().expect("nothing panics while holding it")
    }
}

impl View {
    fn rank(&self, key: &TaskKey, me: MemberId, now: UnixMs) -> usize {
        let hashed = Hashed::of(KeyBucket::of(key));
        let ours = (self.readiness, hashed.for_member(me));
        self.at_work(now)
            .filter(|peer| (Some(peer.readiness), hashed.for_member(peer.id)) > ours)
            .filter(|peer| peer.can_run(key))
            .count()
    }

    /// The others that own tasks now.
    fn at_work(&self, now: UnixMs) -> impl Iterator<Item = &Peer> {
        self.fresh_others()
            .filter(move |peer| peer.readiness > Readiness::Away && peer.until > now)
    }

    fn elder_listeners(&self, me: MemberId, now: UnixMs) -> impl Iterator<Item = &Peer> {
        self.at_work(now)
            .filter(move |peer| peer.listening && (peer.since, peer.id) < (self.since, me))
    }

    /// The others, unless what is known of them is old.
    fn fresh_others(&self) -> impl Iterator<Item = &Peer> {
        let fresh = self.read.is_some_and(|read| read.elapsed() < LIFETIME);
        self.others.iter().filter(move |_| fresh)
    }

    fn names_at_work(&self) -> AtWork {
        let others = self.others.iter();
        let at_work = others.filter(|peer| peer.readiness > Readiness::Away);
        at_work
            .map(|peer| (peer.id, (peer.name.clone(), peer.readiness)))
            .collect()
    }
}

impl Peer {
    fn can_run(&self, key: &TaskKey) -> bool {
        let skilled = self.skilled.as_ref();
        skilled.is_none_or(|skilled| skilled.can_run(key))
    }
}

/// Only notes that are believed: from a clock that is not far from ours, and not too many.
fn peers(
    own: &Note,
    mut notes: Vec<Note>,
    now: UnixMs,
    known: &HashMap<Skills, Arc<Skilled>>,
) -> (Vec<Peer>, HashMap<Skills, Arc<Skilled>>) {
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
            since,
            until,
            readiness,
            listening,
            passes_on,
            skills,
        } = note;
        let skilled = if skills == own.skills {
            None
        } else if let Some(skilled) = compiled.get(&skills).or(known.get(&skills)) {
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
            since,
            until,
            readiness,
            listening,
            passes_on,
            skilled,
        });
    }
    (others, compiled)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fleet::REFRESH;

    fn note(id: u64, readiness: Readiness, handlers: &[&str]) -> Note {
        Note {
            id: MemberId(id),
            name: format!("m{id}"),
            since: UnixMs(i64::try_from(id).unwrap()),
            until: UnixMs(0),
            readiness,
            listening: true,
            passes_on: true,
            skills: Skills {
                handlers: handlers.iter().map(|name| (*name).to_owned()).collect(),
                routes: Vec::new(),
            },
        }
    }

    fn ready(id: u64) -> Note {
        note(id, Readiness::Ready, &["C@m"])
    }

    /// Member 1, and a look at these others.
    struct Looking(Share);

    impl Looking {
        fn new() -> Self {
            Self(Share::new(
                MemberId(1),
                LedgerClock::starting_at(UnixMs(1_000_000)),
            ))
        }

        fn look_as(&self, own: &Note, others: &[Note]) -> Change {
            let until = self.0.clock.now().plus(LIFETIME);
            let others = others.iter().cloned();
            let notes = others.map(|note| Note { until, ..note }).collect();
            self.0.learn(own, notes, Instant::now())
        }

        async fn look(&self, others: &[Note]) -> Change {
            tokio::time::advance(REFRESH).await;
            self.look_as(&ready(1), others)
        }

        /// Owned of a hundred.
        fn owned(&self) -> usize {
            let keys = (0..100).map(|n| TaskKey::build("C", "m", [n.to_string()]).unwrap());
            keys.filter(|key| self.0.owns(key)).count()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_just_come_owns_all_until_the_next_look() {
        let looking = Looking::new();
        looking.look(&[ready(2)]).await;
        assert_eq!((looking.owned(), looking.0.members()), (100, 1));
        looking.look(&[ready(2)]).await;
        assert!((30..70).contains(&looking.owned()), "{}", looking.owned());
        // Away for so long that the others have forgotten it.
        tokio::time::advance(LIFETIME).await;
        assert_eq!(looking.owned(), 100);
        looking.look(&[ready(2)]).await;
        assert_eq!(looking.owned(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_given_up_is_kept_for_one_more_look() {
        let looking = Looking::new();
        looking.look(&[ready(2)]).await;
        looking.look(&[ready(2)]).await;
        let share = looking.owned();
        for readiness in [Readiness::Full, Readiness::Away] {
            let own = note(1, readiness, &["C@m"]);
            looking.look_as(&own, &[ready(2)]);
            assert_eq!(looking.owned(), share);
            looking.look_as(&own, &[ready(2)]);
            assert_eq!(looking.owned(), 0);
            looking.look(&[ready(2)]).await;
            assert_eq!(looking.owned(), share, "it is taken back at once");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn when_all_are_full_all_own() {
        let looking = Looking::new();
        let full = |id| note(id, Readiness::Full, &["C@m"]);
        for _ in 0..3 {
            looking.look_as(&full(1), &[full(2)]);
        }
        assert!((30..70).contains(&looking.owned()), "{}", looking.owned());
        looking.look_as(&full(1), &[note(2, Readiness::Away, &["C@m"])]);
        assert_eq!(looking.owned(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn only_who_can_run_it_is_weighed() {
        let looking = Looking::new();
        for _ in 0..2 {
            looking
                .look(&[note(2, Readiness::Ready, &["C@other"])])
                .await;
        }
        assert_eq!((looking.owned(), looking.0.members()), (100, 2));
        looking
            .look(&[note(2, Readiness::Ready, &["C@m", "C@other"])])
            .await;
        assert!(looking.owned() < 100);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_members_are_counted_with_than_fit() {
        let looking = Looking::new();
        let crowd: Vec<Note> = (2..2_000).map(ready).collect();
        looking.look(&crowd).await;
        looking.look(&crowd).await;
        assert_eq!(looking.0.members(), MEMBERS_MAX);
        // Different expressions are compiled a few at a time.
        let crowd: Vec<Note> = (2..100)
            .map(|id| note(id, Readiness::Ready, &[&format!("C@m{id}")]))
            .collect();
        looking.look(&crowd).await;
        assert_eq!(looking.0.members(), 1 + COMPILED_AT_ONCE);
        looking.look(&crowd).await;
        assert_eq!(looking.0.members(), 1 + 2 * COMPILED_AT_ONCE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_told_by_name() {
        let looking = Looking::new();
        let told = |joined: &[&str], left: &[&str], shares| Change {
            joined: joined.iter().map(|name| (*name).to_owned()).collect(),
            left: left.iter().map(|name| (*name).to_owned()).collect(),
            vanished: false,
            shares,
        };
        assert_eq!(looking.look(&[ready(2)]).await, told(&["m2"], &[], true));
        assert_eq!(looking.look(&[ready(2)]).await, told(&[], &[], false));
        let full = note(2, Readiness::Full, &["C@m"]);
        assert_eq!(looking.look(&[full]).await, told(&[], &[], true));
        let gone = note(2, Readiness::Away, &["C@m"]);
        assert_eq!(looking.look(&[gone]).await, told(&[], &["m2"], true));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(looking.look(&[]).await, told(&[], &[], false));
        looking.look(&[ready(2)]).await;
        let silent = Change {
            vanished: true,
            ..told(&[], &["m2"], true)
        };
        assert_eq!(looking.look(&[]).await, silent);
    }

    #[tokio::test(start_paused = true)]
    async fn of_the_eldest_three_the_first_acts_and_the_fourth_need_not_listen() {
        let key = TaskKey::build("C", "m", ["1"]).unwrap();
        let looking = Looking::new();
        let elder = |since: i64, id: u64| Note {
            since: UnixMs(since),
            ..ready(id)
        };
        // We joined at 1, and are number 1: at the same time the number decides.
        let younger = [elder(1, 9), elder(2, 7)];
        let all = [
            elder(-1, 5),
            elder(0, 6),
            elder(1, 0),
            younger[0].clone(),
            younger[1].clone(),
        ];
        for (elders, may_stop) in [(0, false), (1, false), (2, false), (3, true)] {
            let others: Vec<Note> = all[3 - elders..].to_vec();
            looking.look(&others).await;
            looking.look(&others).await;
            assert_eq!(looking.0.turn(&key), elders);
            assert_eq!(looking.0.may_stop_listening(), may_stop, "{elders}");
        }
        type Spoil = fn(&mut Note);
        let spoils: [Spoil; 4] = [
            |note| note.listening = false,
            |note| note.passes_on = false,
            |note| note.readiness = Readiness::Away,
            |note| note.skills.routes.push("^C@".into()),
        ];
        for spoil in spoils {
            let mut others = all.to_vec();
            spoil(&mut others[0]);
            looking.look(&others).await;
            assert!(!looking.0.may_stop_listening());
        }
        // What is known is too old.
        looking.look(&all).await;
        tokio::time::advance(LIFETIME).await;
        assert_eq!(
            (looking.0.turn(&key), looking.0.may_stop_listening()),
            (0, false)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_that_does_not_listen_is_told_by_the_eldest() {
        let looking = Looking::new();
        let deaf = Note {
            listening: false,
            ..ready(2)
        };
        let keys: Vec<TaskKey> = (0..100)
            .map(|n| TaskKey::build("C", "m", [n.to_string()]).unwrap())
            .collect();
        let told = |looking: &Looking| {
            let told = keys.iter().map(|key| looking.0.to_be_told(key));
            told.collect::<Vec<_>>()
        };
        looking.look(std::slice::from_ref(&deaf)).await;
        looking.look(std::slice::from_ref(&deaf)).await;
        let owner = |key: &TaskKey| (!looking.0.owns(key)).then_some(MemberId(2));
        let theirs: Vec<_> = keys.iter().map(owner).collect();
        assert!(theirs.contains(&None) && theirs.contains(&Some(MemberId(2))));
        assert_eq!(told(&looking), theirs);
        // It hears by itself; or another one, elder than we, tells it.
        looking.look(&[ready(2)]).await;
        assert_eq!(told(&looking), vec![None; 100]);
        let elder = Note {
            since: UnixMs(0),
            ..ready(3)
        };
        looking.look(&[deaf, elder]).await;
        assert_eq!(told(&looking), vec![None; 100]);
    }

    #[tokio::test(start_paused = true)]
    async fn every_bucket_is_read_by_its_owner_and_by_all_where_members_differ() {
        let looking = Looking::new();
        assert!(looking.0.own_buckets().is_all());
        for others in [vec![ready(2)], vec![ready(2), ready(3)]] {
            looking.look(&others).await;
            looking.look(&others).await;
            let own = looking.0.own_buckets();
            for n in 0..200 {
                let key = TaskKey::build("C", "m", [n.to_string()]).unwrap();
                assert_eq!(own.contains(KeyBucket::of(&key)), looking.0.owns(&key));
            }
        }
        looking
            .look(&[ready(2), note(3, Readiness::Ready, &["C@other"])])
            .await;
        assert!(looking.0.own_buckets().is_all());
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_has_vanished_if_it_is_gone_without_having_said_so() {
        let looking = Looking::new();
        looking.look(&[ready(2), ready(3)]).await;
        let full = note(2, Readiness::Full, &["C@m"]);
        let gone = note(3, Readiness::Away, &["C@m"]);
        assert!(!looking.look(&[full.clone(), gone]).await.vanished);
        assert!(!looking.look(&[full]).await.vanished, "it had said so");
        assert!(looking.look(&[]).await.vanished);
        assert!(!looking.look(&[]).await.vanished);
    }
}
