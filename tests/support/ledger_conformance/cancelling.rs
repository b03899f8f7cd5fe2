//! Cancelling tasks, one by one and many at once.

use std::time::Duration;

use lapsed::ledger::{CancelAnswer, Ledger, ListFilter, NewTask, Settled, StateFilter};
use lapsed::task::{Arming, ClassGlob, Contents, State, TaskKey, UnixMs, Verdict};

use crate::ledger_conformance::rig::{
    LEASE, SHORT_LEASE, bury, cancel, claim, claim_due, create, in_ms, key, pass, record, retry_at,
    settle, state,
};

rules! {
    a_cancelled_task_is_not_claimed
    a_cancellation_during_a_run_ends_its_attempts
    a_cancellation_fences_a_frozen_run
    a_success_after_a_cancellation_is_a_success
    tasks_are_cancelled_by_tag_each_as_if_alone
    tasks_are_cancelled_by_prefix_and_by_class
    tasks_are_cancelled_by_every_filter_that_lists_them
    a_dry_run_cancels_nothing
    many_are_cancelled_page_by_page
}

async fn a_cancelled_task_is_not_claimed(ledger: &impl Ledger) {
    let key = key("cancel", 1);
    assert_eq!(cancel(ledger, &key).await, CancelAnswer::Unknown);
    let arming = create(ledger, &key, -5).await;
    assert_eq!(cancel(ledger, &key).await, CancelAnswer::Cancelled);
    assert!(claim(ledger, arming, LEASE).await.is_none());
    assert_eq!(state(ledger, &key).await, State::Cancelled);
    assert_eq!(cancel(ledger, &key).await, CancelAnswer::Cancelled);
    let done = claim_due(ledger, &key, LEASE).await;
    settle(ledger, &done, Verdict::Complete).await;
    assert_eq!(
        cancel(ledger, &key).await,
        CancelAnswer::Finished(State::Done)
    );
}

async fn a_cancellation_during_a_run_ends_its_attempts(ledger: &impl Ledger) {
    for (n, verdict) in [retry_at(UnixMs(1)), bury(), Verdict::Release]
        .into_iter()
        .enumerate()
    {
        let claimed = claim_due(ledger, &key("during", n), LEASE).await;
        assert_eq!(cancel(ledger, &claimed.key).await, CancelAnswer::Running);
        assert!(record(ledger, &claimed.key).await.cancel_requested);
        assert_eq!(settle(ledger, &claimed, verdict).await, Settled::Cancelled);
        assert_eq!(state(ledger, &claimed.key).await, State::Cancelled);
        assert!(claim(ledger, claimed.lease.arming, LEASE).await.is_none());
    }
}

async fn a_cancellation_fences_a_frozen_run(ledger: &impl Ledger) {
    let claimed = claim_due(ledger, &key("frozen", 1), Duration::from_millis(20)).await;
    pass(ledger, ledger.clock().now().plus(Duration::from_millis(50))).await;
    assert_eq!(cancel(ledger, &claimed.key).await, CancelAnswer::Cancelled);
    assert_eq!(
        settle(ledger, &claimed, Verdict::Complete).await,
        Settled::Fenced
    );
    assert_eq!(state(ledger, &claimed.key).await, State::Cancelled);
}

async fn a_success_after_a_cancellation_is_a_success(ledger: &impl Ledger) {
    let claimed = claim_due(ledger, &key("late_cancel", 1), LEASE).await;
    cancel(ledger, &claimed.key).await;
    assert_eq!(
        settle(ledger, &claimed, Verdict::Complete).await,
        Settled::Applied
    );
    assert_eq!(state(ledger, &claimed.key).await, State::Done);
}

/// Cancels all that match. Returns the keys of those that were cancelled, and how many run.
async fn cancel_all(ledger: &impl Ledger, filter: &ListFilter) -> (Vec<TaskKey>, usize) {
    let (mut cancelled, mut running, mut filter) = (Vec::new(), 0, filter.clone());
    loop {
        let page = ledger.cancel_page(&filter, false).await.unwrap();
        cancelled.extend(page.cancelled);
        running += page.running.len();
        assert_eq!(page.locked, 0);
        filter.cursor = page.next;
        if filter.cursor.is_none() {
            cancelled.sort();
            return (cancelled, running);
        }
    }
}

async fn create_tagged(ledger: &impl Ledger, key: &TaskKey, ahead_ms: i64, tag: &str) -> Arming {
    let due = in_ms(ledger, ahead_ms).await;
    let task = NewTask {
        contents: Contents {
            tag: Some(tag.into()),
            ..Contents::default()
        },
        ..NewTask::new(key.clone(), due)
    };
    ledger.create(&[task]).await.unwrap()[0].arming
}

async fn tasks_are_cancelled_by_tag_each_as_if_alone(ledger: &impl Ledger) {
    let names = [
        "pending", "waiting", "running", "crashed", "done", "dead", "other", "none",
    ];
    let [pending, waiting, running, crashed, done, dead, other, none] =
        names.map(|name| key("tagged", name));
    let tag = "conformance_tag";
    create_tagged(ledger, &pending, 60_000, tag).await;
    create_tagged(ledger, &other, 60_000, "conformance_tag2").await;
    create(ledger, &none, 60_000).await;
    let mut claims = Vec::new();
    for key in [&waiting, &running, &done, &dead] {
        let arming = create_tagged(ledger, key, -5, tag).await;
        claims.push(claim(ledger, arming, LEASE).await.unwrap());
    }
    let arming = create_tagged(ledger, &crashed, -5, tag).await;
    let thawed = claim(ledger, arming, SHORT_LEASE).await.unwrap();
    let at = ledger.clock().now().plus(Duration::from_secs(60));
    settle(ledger, &claims[0], retry_at(at)).await;
    settle(ledger, &claims[2], Verdict::Complete).await;
    settle(ledger, &claims[3], bury()).await;
    pass(ledger, ledger.clock().now().plus(SHORT_LEASE)).await;

    let filter = ListFilter::tag(tag);
    let mut expected = vec![crashed.clone(), pending.clone(), waiting.clone()];
    expected.sort();
    assert_eq!(cancel_all(ledger, &filter).await, (expected, 1));
    let states = [
        (&pending, State::Cancelled),
        (&waiting, State::Cancelled),
        (&crashed, State::Cancelled),
        (&running, State::Running),
        (&done, State::Done),
        (&dead, State::Dead),
        (&other, State::Pending),
        (&none, State::Pending),
    ];
    for (key, expected) in states {
        assert_eq!(state(ledger, key).await, expected, "{key}");
    }
    assert_eq!(
        settle(ledger, &thawed, Verdict::Complete).await,
        Settled::Fenced
    );
    // No further attempt of what runs.
    assert_eq!(
        settle(ledger, &claims[1], retry_at(at)).await,
        Settled::Cancelled
    );
    assert_eq!(cancel_all(ledger, &filter).await, (Vec::new(), 0));
}

async fn tasks_are_cancelled_by_prefix_and_by_class(ledger: &impl Ledger) {
    let names = [
        "Cancel_x@m",
        "Cancel_x@m@1",
        "Cancel_x@m@12",
        "Cancel_x@mm@1",
        "Cancel_xy@m@1",
        "Cancelyx@m@1",
    ];
    let keys = names.map(|name| TaskKey::parse(name).unwrap());
    let of = |numbers: &[usize]| -> (Vec<TaskKey>, usize) {
        (numbers.iter().map(|n| keys[*n].clone()).collect(), 0)
    };
    let cases = [
        (ListFilter::class("Cancel_x"), of(&[0, 1, 2, 3])),
        (ListFilter::class("Cancel_x").method("m"), of(&[0, 1, 2])),
        (ListFilter::prefix("Cancel_x@m@1"), of(&[1, 2])),
        (ListFilter::prefix("Cancel_x@m@1@"), of(&[])),
        (ListFilter::prefix("Cancel_x@m@1 "), of(&[])),
        (ListFilter::prefix("Cancel_x"), of(&[0, 1, 2, 3, 4])),
    ];
    for (filter, expected) in cases {
        for key in &keys {
            create(ledger, key, 60_000).await;
        }
        assert_eq!(cancel_all(ledger, &filter).await, expected, "{filter:?}");
    }
    create(ledger, &keys[0], 70_000).await;
    let mut both = ListFilter::class("Cancel_x");
    both.tag = Some("no task has this".into());
    assert_eq!(cancel_all(ledger, &both).await, of(&[]));
    let all = ListFilter::default();
    assert!(ledger.cancel_page(&all, false).await.is_err());
}

async fn tasks_are_cancelled_by_every_filter_that_lists_them(ledger: &impl Ledger) {
    let names = ["pending", "waiting", "running", "far", "done"];
    let [pending, waiting, running, far, done] = names.map(|name| key("every_filter", name));
    let method = "every_filter";
    create(ledger, &pending, 60_000).await;
    create(ledger, &far, 900_000).await;
    let at = ledger.clock().now().plus(Duration::from_secs(30));
    let failed = claim_due(ledger, &waiting, LEASE).await;
    settle(ledger, &failed, retry_at(at)).await;
    claim_due(ledger, &running, LEASE).await;
    let ended = claim_due(ledger, &done, LEASE).await;
    settle(ledger, &ended, Verdict::Complete).await;
    let of_states = |states: &[State]| ListFilter {
        states: states.iter().copied().map(StateFilter::Is).collect(),
        ..ListFilter::default().method(method)
    };
    let soon = ListFilter {
        due_before: Some(ledger.clock().now().plus(Duration::from_secs(600))),
        ..of_states(&[State::Pending])
    };
    let with_an_error = ListFilter {
        error: Some("NO".to_owned()),
        ..ListFilter::default().method(method)
    };
    let only = |class: &str| ListFilter {
        only: vec![ClassGlob::parse(class).unwrap()],
        ..of_states(&[State::Pending])
    };
    assert_eq!(cancel_all(ledger, &soon).await, (vec![pending], 0));
    assert_eq!(cancel_all(ledger, &with_an_error).await, (vec![waiting], 0));
    let none = (Vec::new(), 0);
    assert_eq!(cancel_all(ledger, &only("Another*")).await, none);
    assert_eq!(state(ledger, &far).await, State::Pending);
    let runs = of_states(&[State::Running]);
    assert_eq!(cancel_all(ledger, &runs).await, (Vec::new(), 1));
    assert_eq!(state(ledger, &far).await, State::Pending);
    let rest = ListFilter::default().method(method);
    assert_eq!(cancel_all(ledger, &rest).await, (vec![far], 0));
    assert_eq!(state(ledger, &done).await, State::Done);
    for refused in [of_states(&[State::Done]), ListFilter::prefix("")] {
        assert!(ledger.cancel_page(&refused, false).await.is_err());
    }
}

async fn a_dry_run_cancels_nothing(ledger: &impl Ledger) {
    let tag = "dry_tag";
    let (one, other) = (key("dry", 1), key("dry", 2));
    create_tagged(ledger, &one, 60_000, tag).await;
    let arming = create_tagged(ledger, &other, -5, tag).await;
    claim(ledger, arming, LEASE).await.unwrap();
    let filter = ListFilter::tag(tag);
    let page = ledger.cancel_page(&filter, true).await.unwrap();
    assert_eq!(page.cancelled, std::slice::from_ref(&one));
    assert_eq!(page.running.len(), 1);
    assert_eq!(state(ledger, &one).await, State::Pending);
    let running = record(ledger, &other).await;
    assert!(!running.cancel_requested);
}

async fn many_are_cancelled_page_by_page(ledger: &impl Ledger) {
    const MANY: usize = 5_000;
    let due = in_ms(ledger, 60_000).await;
    let task = |n: usize| NewTask {
        contents: Contents {
            tag: Some("many_tag".into()),
            ..Contents::default()
        },
        ..NewTask::new(
            TaskKey::build("Pages", "many", [n.to_string()]).unwrap(),
            due,
        )
    };
    let tasks: Vec<NewTask> = (0..MANY).map(task).collect();
    for filter in [
        ListFilter::tag("many_tag"),
        ListFilter::prefix("Pages@many@"),
    ] {
        ledger.create(&tasks).await.unwrap();
        let (mut cancelled, running) = cancel_all(ledger, &filter).await;
        cancelled.dedup();
        assert_eq!((cancelled.len(), running), (MANY, 0), "{filter:?}");
    }
}
