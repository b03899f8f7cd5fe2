use super::*;

/// A member that adopts no key, which joined at `since`.
fn not_adopting(id: u64, since: i64) -> Heartbeat {
    let mut member = Heartbeat {
        since: UnixMs(since),
        ..ready(id)
    };
    member.capabilities.handlers_unadopted = true;
    member
}

#[tokio::test(start_paused = true)]
async fn a_member_that_adopts_a_key_acts_before_more_senior_ones_that_do_not() {
    let key = TaskKey::build("C", "m", ["1"]).unwrap();
    let us = Observer::new();
    let elders = [
        not_adopting(5, -3),
        not_adopting(6, -2),
        not_adopting(7, -1),
    ];
    let younger = Heartbeat {
        since: UnixMs(9),
        ..ready(9)
    };
    for _ in 0..2 {
        us.refresh(&elders).await;
    }
    assert_eq!(us.0.listener_rank(&key, || true), 0);
    assert_eq!(us.0.highest_ranked_listener(&key), None);
    assert_eq!(us.0.listener_rank(&key, || false), 3, "as we do not adopt");
    assert!(!us.0.may_stop_listening(true), "they adopt less than we do");
    // A member that adopts comes before us if we do not.
    let mut own = ready(1);
    own.capabilities.handlers_unadopted = true;
    us.refresh_as(&own, std::slice::from_ref(&younger));
    assert_eq!(us.0.listener_rank(&key, || false), 1);
    assert!(us.0.others_adopt());
    us.refresh(&elders).await;
    assert!(!us.0.others_adopt());
}

#[tokio::test(start_paused = true)]
async fn a_member_that_hears_no_armings_is_not_relied_on_for_them() {
    let key = TaskKey::build("C", "m", ["1"]).unwrap();
    let us = Observer::new();
    let elders: Vec<Heartbeat> = (5..8)
        .map(|id| Heartbeat {
            since: UnixMs(0),
            listening: false,
            expired_only: true,
            ..ready(id)
        })
        .collect();
    for _ in 0..2 {
        us.refresh(&elders).await;
    }
    assert_eq!(us.0.listener_rank(&key, || true), 0);
    assert!(!us.0.may_stop_listening(true));
    assert!(us.0.may_stop_listening(false), "they hear what we do");
    // They hear expired keys themselves.
    let keys = (0..100).map(|n| TaskKey::build("C", "m", [n.to_string()]).unwrap());
    assert!(
        keys.into_iter()
            .all(|key| us.0.hint_recipient(&key).is_none())
    );
}

#[tokio::test(start_paused = true)]
async fn one_member_adopts_expired_keys_whose_owner_adopts_none() {
    let keys: Vec<TaskKey> = (0..100)
        .map(|n| TaskKey::build("C", "m", [n.to_string()]).unwrap())
        .collect();
    let us = Observer::new();
    let ours = |us: &Observer, adopts: bool| {
        let ours = keys
            .iter()
            .filter(|key| us.0.adopts_for_owner(key, || adopts));
        ours.cloned().collect::<Vec<_>>()
    };
    let owned_by_others = |us: &Observer| {
        let theirs = keys.iter().filter(|key| !us.0.owns(key));
        theirs.cloned().collect::<Vec<_>>()
    };
    for _ in 0..2 {
        us.refresh(&[not_adopting(2, 0)]).await;
    }
    let theirs = owned_by_others(&us);
    assert!((30..70).contains(&theirs.len()), "{}", theirs.len());
    assert_eq!(ours(&us, true), theirs);
    assert_eq!(ours(&us, false), []);
    // Where the owner adopts, it does so itself.
    us.refresh(&[ready(2)]).await;
    assert_eq!(ours(&us, true), []);
    // A higher-ranked member that adopts comes first.
    let higher_ranked = Heartbeat {
        since: UnixMs(0),
        ..ready(3)
    };
    us.refresh(&[not_adopting(2, 0), higher_ranked]).await;
    assert_eq!(ours(&us, true), []);
}
