mod adoption;
mod limits;

use std::time::Duration;

use super::view::COMPILED_AT_ONCE;
use super::*;
use crate::membership::{Capabilities, MEMBERS_MAX, REFRESH};
use crate::task::UnixMs;

fn member(id: u64, readiness: Readiness, handlers: &[&str]) -> Heartbeat {
    Heartbeat {
        id: MemberId(id),
        name: format!("m{id}"),
        version: String::new(),
        since: UnixMs(i64::try_from(id).unwrap()),
        until: UnixMs(0),
        readiness,
        listening: true,
        expired_only: false,
        forwards: true,
        timer: String::new(),
        capabilities: Capabilities {
            handlers: handlers.iter().map(|name| (*name).to_owned()).collect(),
            ..Capabilities::default()
        },
        idle_since: Vec::new(),
        queues: Default::default(),
    }
}

fn ready(id: u64) -> Heartbeat {
    member(id, Readiness::Ready, &["C@m"])
}

/// The ownership view of member 1.
struct Observer(Ownership);

impl Observer {
    fn new() -> Self {
        Self(Ownership::new(
            MemberId(1),
            LedgerClock::starting_at(UnixMs(1_000_000)),
        ))
    }

    fn refresh_as(&self, own: &Heartbeat, others: &[Heartbeat]) -> Change {
        let until = self.0.clock.now().plus(LIFETIME);
        let others = others.iter().cloned();
        let others = others.map(|other| Heartbeat { until, ..other }).collect();
        self.0.update(own, others, Instant::now())
    }

    async fn refresh(&self, others: &[Heartbeat]) -> Change {
        tokio::time::advance(REFRESH).await;
        self.refresh_as(&ready(1), others)
    }

    /// Number of tasks it owns, of a hundred.
    fn owned(&self) -> usize {
        let keys = (0..100).map(|n| TaskKey::build("C", "m", [n.to_string()]).unwrap());
        keys.filter(|key| self.0.owns(key)).count()
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_has_just_joined_owns_all_until_its_next_update() {
    let us = Observer::new();
    us.refresh(&[ready(2)]).await;
    assert_eq!((us.owned(), us.0.members()), (100, 1));
    us.refresh(&[ready(2)]).await;
    assert!((30..70).contains(&us.owned()), "{}", us.owned());
    // The others have forgotten it after a lifetime.
    tokio::time::advance(LIFETIME).await;
    assert_eq!(us.owned(), 100);
    us.refresh(&[ready(2)]).await;
    assert_eq!(us.owned(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_given_up_is_kept_for_one_more_update() {
    let us = Observer::new();
    us.refresh(&[ready(2)]).await;
    us.refresh(&[ready(2)]).await;
    let owned = us.owned();
    for readiness in [Readiness::Full, Readiness::Away] {
        let own = member(1, readiness, &["C@m"]);
        us.refresh_as(&own, &[ready(2)]);
        assert_eq!(us.owned(), owned);
        us.refresh_as(&own, &[ready(2)]);
        assert_eq!(us.owned(), 0);
        us.refresh(&[ready(2)]).await;
        assert_eq!(us.owned(), owned, "it is taken back at once");
    }
}

#[tokio::test(start_paused = true)]
async fn if_all_are_full_all_own() {
    let us = Observer::new();
    let full = |id| member(id, Readiness::Full, &["C@m"]);
    for _ in 0..3 {
        us.refresh_as(&full(1), &[full(2)]);
    }
    assert!((30..70).contains(&us.owned()), "{}", us.owned());
    us.refresh_as(&full(1), &[member(2, Readiness::Away, &["C@m"])]);
    assert_eq!(us.owned(), 100);
}

#[tokio::test(start_paused = true)]
async fn only_members_that_can_run_a_task_own_it() {
    let us = Observer::new();
    for _ in 0..2 {
        us.refresh(&[member(2, Readiness::Ready, &["C@other"])])
            .await;
    }
    assert_eq!((us.owned(), us.0.members()), (100, 2));
    us.refresh(&[member(2, Readiness::Ready, &["C@m", "C@other"])])
        .await;
    assert!(us.owned() < 100);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_members_is_bounded() {
    let us = Observer::new();
    let crowd: Vec<Heartbeat> = (2..2_000).map(ready).collect();
    us.refresh(&crowd).await;
    us.refresh(&crowd).await;
    assert_eq!(us.0.members(), MEMBERS_MAX);
    // Different expressions are compiled a few at a time.
    let crowd: Vec<Heartbeat> = (2..100)
        .map(|id| member(id, Readiness::Ready, &[&format!("C@m{id}")]))
        .collect();
    us.refresh(&crowd).await;
    assert_eq!(us.0.members(), 1 + COMPILED_AT_ONCE);
    us.refresh(&crowd).await;
    assert_eq!(us.0.members(), 1 + 2 * COMPILED_AT_ONCE);
}

#[tokio::test(start_paused = true)]
async fn a_change_lists_members_by_name() {
    let us = Observer::new();
    let change = |joined: &[&str], left: &[&str], owners| Change {
        joined: joined.iter().map(|name| (*name).to_owned()).collect(),
        left: left.iter().map(|name| (*name).to_owned()).collect(),
        lost: Vec::new(),
        owners,
    };
    assert_eq!(us.refresh(&[ready(2)]).await, change(&["m2"], &[], true));
    assert_eq!(us.refresh(&[ready(2)]).await, change(&[], &[], false));
    let full = member(2, Readiness::Full, &["C@m"]);
    assert_eq!(us.refresh(&[full]).await, change(&[], &[], true));
    let gone = member(2, Readiness::Away, &["C@m"]);
    assert_eq!(us.refresh(&[gone]).await, change(&[], &["m2"], true));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(us.refresh(&[]).await, change(&[], &[], false));
    us.refresh(&[ready(2)]).await;
    let silent = Change {
        lost: vec!["m2".to_owned()],
        ..change(&[], &["m2"], true)
    };
    assert_eq!(us.refresh(&[]).await, silent);
}

#[tokio::test(start_paused = true)]
async fn the_most_senior_of_three_listeners_acts_and_a_fourth_may_stop_listening() {
    let key = TaskKey::build("C", "m", ["1"]).unwrap();
    let us = Observer::new();
    let joined = |since: i64, id: u64| Heartbeat {
        since: UnixMs(since),
        ..ready(id)
    };
    // We joined at 1 with id 1. At equal times the id decides.
    let younger = [joined(1, 9), joined(2, 7)];
    let all = [
        joined(-1, 5),
        joined(0, 6),
        joined(1, 0),
        younger[0].clone(),
        younger[1].clone(),
    ];
    for (expected, may_stop) in [(0, false), (1, false), (2, false), (3, true)] {
        let others: Vec<Heartbeat> = all[3 - expected..].to_vec();
        us.refresh(&others).await;
        us.refresh(&others).await;
        assert_eq!(us.0.listener_rank(&key, || true), expected);
        assert_eq!(us.0.may_stop_listening(true), may_stop, "{expected}");
    }
    type Spoil = fn(&mut Heartbeat);
    let spoils: [Spoil; 4] = [
        |note| note.listening = false,
        |note| note.forwards = false,
        |note| note.readiness = Readiness::Away,
        |note| note.capabilities.routes.push("^C@".into()),
    ];
    for spoil in spoils {
        let mut others = all.to_vec();
        spoil(&mut others[0]);
        us.refresh(&others).await;
        assert!(!us.0.may_stop_listening(true));
    }
    // The list is stale.
    us.refresh(&all).await;
    tokio::time::advance(LIFETIME).await;
    assert_eq!(
        (
            us.0.listener_rank(&key, || true),
            us.0.may_stop_listening(true)
        ),
        (0, false)
    );
}

#[tokio::test(start_paused = true)]
async fn the_most_senior_listener_sends_hints_to_owners_that_do_not_listen() {
    let us = Observer::new();
    let deaf = Heartbeat {
        listening: false,
        ..ready(2)
    };
    let keys: Vec<TaskKey> = (0..100)
        .map(|n| TaskKey::build("C", "m", [n.to_string()]).unwrap())
        .collect();
    let recipients = |us: &Observer| {
        let recipients = keys.iter().map(|key| us.0.hint_recipient(key));
        recipients.collect::<Vec<_>>()
    };
    us.refresh(std::slice::from_ref(&deaf)).await;
    us.refresh(std::slice::from_ref(&deaf)).await;
    let owner = |key: &TaskKey| (!us.0.owns(key)).then_some(MemberId(2));
    let theirs: Vec<_> = keys.iter().map(owner).collect();
    assert!(theirs.contains(&None) && theirs.contains(&Some(MemberId(2))));
    assert_eq!(recipients(&us), theirs);
    // It listens itself, or a higher-ranked member sends the hint.
    us.refresh(&[ready(2)]).await;
    assert_eq!(recipients(&us), vec![None; 100]);
    let higher_ranked = Heartbeat {
        since: UnixMs(0),
        ..ready(3)
    };
    us.refresh(&[deaf, higher_ranked]).await;
    assert_eq!(recipients(&us), vec![None; 100]);
}

#[tokio::test(start_paused = true)]
async fn buckets_are_read_by_their_owner_and_by_all_if_capabilities_differ() {
    let us = Observer::new();
    assert!(us.0.own_buckets().is_all());
    for others in [vec![ready(2)], vec![ready(2), ready(3)]] {
        us.refresh(&others).await;
        us.refresh(&others).await;
        let own = us.0.own_buckets();
        for n in 0..200 {
            let key = TaskKey::build("C", "m", [n.to_string()]).unwrap();
            assert_eq!(own.contains(KeyBucket::of(&key)), us.0.owns(&key));
        }
    }
    us.refresh(&[ready(2), member(3, Readiness::Ready, &["C@other"])])
        .await;
    assert!(us.0.own_buckets().is_all());
}

#[tokio::test(start_paused = true)]
async fn a_member_that_has_vanished_is_missed_until_another_one_joins() {
    let us = Observer::new();
    let minute = Duration::from_secs(60);
    let gone = |span| {
        let gone = us.0.gone(span).into_iter();
        let names = gone.map(|gone| (gone.name, gone.capabilities.handlers.join(" ")));
        names.collect::<Vec<_>>()
    };
    let of = |name: &str, able: &str| (name.to_owned(), able.to_owned());
    us.refresh(&[ready(2), member(3, Readiness::Ready, &["C@other"])])
        .await;
    us.refresh(&[]).await;
    assert_eq!(gone(minute), [of("m2", "C@m"), of("m3", "C@other")]);
    us.refresh(&[ready(4)]).await;
    assert_eq!(gone(minute), [of("m3", "C@other")]);
    tokio::time::advance(minute).await;
    assert!(gone(minute).is_empty(), "that was long ago");
    assert_eq!(gone(2 * minute).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_list_is_current_while_heartbeats_are_exchanged() {
    for others in [&[][..], &[ready(2)]] {
        let us = Observer::new();
        assert!(!us.0.is_current(), "nothing was heard yet");
        us.refresh(others).await;
        us.refresh(others).await;
        assert!(us.0.is_current());
        tokio::time::advance(LIFETIME).await;
        assert!(!us.0.is_current(), "no exchange for a while");
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_leaves_without_announcing_it_has_vanished() {
    let us = Observer::new();
    us.refresh(&[ready(2), ready(3)]).await;
    let full = member(2, Readiness::Full, &["C@m"]);
    let gone = member(3, Readiness::Away, &["C@m"]);
    let of = async |members: &[Heartbeat]| us.refresh(members).await.lost;
    assert!(of(&[full.clone(), gone]).await.is_empty());
    assert!(of(&[full]).await.is_empty(), "it had announced it");
    assert_eq!(of(&[]).await, ["m2"]);
    assert!(of(&[]).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_fleet_is_every_live_member_with_what_it_runs() {
    let observer = Observer::new();
    assert!(observer.0.fleet().is_empty(), "nothing is published yet");
    let other = Heartbeat {
        version: "1.2.3".into(),
        ..member(2, Readiness::Full, &["D@n"])
    };
    observer.refresh(&[other]).await;
    let seen = |member: &Member| {
        let handlers = member.capabilities.handlers.join(" ");
        (
            member.name.clone(),
            member.version.clone(),
            member.readiness,
            handlers,
        )
    };
    let fleet = observer.refresh(&[ready(3)]).await;
    assert_eq!(fleet.joined, ["m3"]);
    let fleet = observer.0.fleet();
    let expected = [
        (
            "m1".to_owned(),
            String::new(),
            Readiness::Ready,
            "C@m".to_owned(),
        ),
        (
            "m3".to_owned(),
            String::new(),
            Readiness::Ready,
            "C@m".to_owned(),
        ),
    ];
    assert_eq!(fleet.iter().map(seen).collect::<Vec<_>>(), expected);
    assert_eq!(
        fleet
            .iter()
            .map(|member| member.is_this)
            .collect::<Vec<_>>(),
        [true, false]
    );
    // A list that is too old says nothing about the others.
    tokio::time::advance(LIFETIME).await;
    assert_eq!(observer.0.fleet().len(), 1);
}
