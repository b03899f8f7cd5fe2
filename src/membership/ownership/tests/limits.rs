//! The moment at which a heartbeat, a list or an absence ends, and who is first.

use super::*;

fn key() -> TaskKey {
    TaskKey::build("C", "m", ["1"]).unwrap()
}

impl Observer {
    /// Reads heartbeats that are valid for so long.
    fn refresh_until(&self, others: &[Heartbeat], valid: Duration) -> Change {
        let until = self.0.clock.now().plus(valid);
        let others = others.iter().cloned();
        let others = others.map(|other| Heartbeat { until, ..other }).collect();
        self.0.update(&ready(1), others, Instant::now())
    }

    /// Members, members with what they run, and whether member 2 is alive.
    fn seen(&self) -> (usize, usize, Option<bool>) {
        let alive = self.0.is_alive(MemberId(2));
        (self.0.members(), self.0.fleet().len(), alive)
    }
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_ends_at_its_time() {
    const VALID: Duration = Duration::from_secs(1);
    let us = Observer::new();
    us.refresh(&[ready(2)]).await;
    us.refresh_until(&[ready(2)], VALID);
    tokio::time::advance(VALID - Duration::from_millis(1)).await;
    assert_eq!(us.seen(), (2, 2, Some(true)));
    assert!(us.owned() < 100);
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(us.seen(), (1, 1, Some(false)));
    assert_eq!(us.owned(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_list_ends_at_its_time_whatever_it_says() {
    let us = Observer::new();
    us.refresh(&[ready(2)]).await;
    us.refresh_until(&[ready(2)], 2 * LIFETIME);
    tokio::time::advance(LIFETIME - Duration::from_millis(1)).await;
    assert_eq!(us.seen(), (2, 2, Some(true)));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(us.seen(), (1, 1, None));
    assert_eq!(us.owned(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_the_others_have_forgotten_owns_all_until_they_read_of_it() {
    for (rest, owns_all) in [
        (LIFETIME - Duration::from_millis(1), false),
        (LIFETIME, true),
    ] {
        let us = Observer::new();
        us.refresh(&[ready(2)]).await;
        us.refresh(&[ready(2)]).await;
        tokio::time::advance(rest).await;
        us.refresh_as(&ready(1), &[ready(2)]);
        assert_eq!(us.owned() == 100, owns_all, "{rest:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_smallest_id_of_those_that_own_tasks_is_first() {
    let us = Observer::new();
    assert!(us.0.is_first());
    for (others, is_first) in [
        (vec![], true),
        (vec![ready(2)], true),
        (vec![ready(0), ready(2)], false),
        (vec![member(0, Readiness::Away, &["C@m"])], true),
    ] {
        us.refresh(&others).await;
        us.refresh(&others).await;
        assert_eq!(us.0.is_first(), is_first, "{others:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_single_member_is_the_same_set_of_owners_at_any_readiness() {
    let us = Observer::new();
    let sets = [Readiness::Ready, Readiness::Full].map(|readiness| {
        let own = member(1, readiness, &["C@m"]);
        (0..2).for_each(|_| drop(us.refresh_as(&own, &[])));
        let alone = us.0.owner_set();
        (0..2).for_each(|_| drop(us.refresh_as(&own, &[ready(2)])));
        (alone, us.0.owner_set())
    });
    let [(alone, two), (alone_and_full, two_and_full)] = sets;
    assert_eq!(alone, alone_and_full);
    assert_ne!(alone, two);
    assert_ne!(two, two_and_full);
}

#[tokio::test(start_paused = true)]
async fn a_route_that_is_idle_changes_the_owners_if_there_are_others() {
    let idle = |routes: &[u16]| {
        let mut own = ready(1);
        own.capabilities.idle = routes.to_vec();
        own
    };
    for (others, changes) in [(vec![ready(2)], true), (vec![], false)] {
        let us = Observer::new();
        (0..2).for_each(|_| drop(us.refresh_as(&idle(&[]), &others)));
        assert!(!us.refresh_as(&idle(&[]), &others).owners);
        assert_eq!(us.refresh_as(&idle(&[0]), &others).owners, changes);
        assert!(!us.refresh_as(&idle(&[0]), &others).owners);
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_cannot_run_a_key_does_not_act_on_it_first() {
    let us = Observer::new();
    let senior = |handlers: &[&str]| member(0, Readiness::Ready, handlers);
    for (handlers, rank) in [(["C@m"], 1), (["C@other"], 0)] {
        us.refresh(&[senior(&handlers)]).await;
        us.refresh(&[senior(&handlers)]).await;
        assert_eq!(us.0.listener_rank(&key(), || true), rank, "{handlers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_absence_is_remembered_for_a_span_that_excludes_its_end() {
    const SPAN: Duration = Duration::from_secs(60);
    let us = Observer::new();
    us.refresh(&[ready(2)]).await;
    us.refresh(&[]).await;
    tokio::time::advance(SPAN).await;
    assert_eq!(us.0.gone(SPAN).len(), 0);
    assert_eq!(us.0.gone(SPAN + Duration::from_millis(1)).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_member_whose_route_is_idle_leaves_its_tasks_to_those_that_can_start_them() {
    let with_idle = |id: u64, idle: &[u16]| {
        let mut member = member(id, Readiness::Ready, &[]);
        member.capabilities.routes = vec!["^C@".into()];
        member.capabilities.idle = idle.to_vec();
        member
    };
    for (ours, theirs, owns) in [
        ([].as_slice(), [0].as_slice(), Some(100)),
        (&[0], &[], Some(0)),
        (&[], &[], None),
    ] {
        let us = Observer::new();
        let others = [with_idle(2, theirs)];
        (0..2).for_each(|_| drop(us.refresh_as(&with_idle(1, ours), &others)));
        match owns {
            Some(owned) => assert_eq!(us.owned(), owned, "{ours:?} {theirs:?}"),
            None => assert!((30..70).contains(&us.owned()), "{}", us.owned()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hint_is_left_to_a_higher_ranked_member_only_if_that_can_run_the_key() {
    let deaf = Heartbeat {
        listening: false,
        ..ready(2)
    };
    let senior = |handlers: &[&str]| Heartbeat {
        // It leaves the task to others.
        readiness: Readiness::Full,
        ..member(0, Readiness::Ready, handlers)
    };
    for (handlers, is_sent) in [(["C@m"], false), (["C@other"], true)] {
        let us = Observer::new();
        let others = [deaf.clone(), senior(&handlers)];
        us.refresh(&others).await;
        us.refresh(&others).await;
        let keys = (0..100).map(|n| TaskKey::build("C", "m", [n.to_string()]).unwrap());
        let theirs: Vec<TaskKey> = keys.filter(|key| !us.0.owns(key)).collect();
        assert!(!theirs.is_empty());
        for key in theirs {
            let expected = is_sent.then_some(MemberId(2));
            assert_eq!(us.0.hint_recipient(&key), expected, "{handlers:?}");
        }
    }
}
