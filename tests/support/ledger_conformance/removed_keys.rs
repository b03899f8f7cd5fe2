//! Keys that a program has deleted.

use std::time::Duration;

use lapsed::ledger::{
    AdoptionRequest, CancelAnswer, CancelByKey, CancelByKeyAnswer, Ledger, Lookup, Settled,
};
use lapsed::task::{Arming, Origin, State, TaskKey, UnixMs, Verdict};

use super::adoption::{adopt, written};
use crate::ledger_conformance::rig::{
    LEASE, SHORT_LEASE, bury, cancel, claim, claim_due, create, create_at, in_ms, key, lookup,
    pass, retry_at, settle, state,
};
use crate::support::wait::until;

rules! {
    a_deleted_key_cancels_only_an_adopted_task_that_is_not_nearly_due
    a_removed_entry_cancels_its_task_even_if_due
    absence_is_no_evidence_after_an_interrupted_run_or_a_redrive
    a_deleted_key_cancels_a_retry_and_an_arming_behind_a_run
    a_cancellation_ends_the_arming_behind_a_run
    a_cancellation_during_a_run_is_not_mistaken_for_a_deletion_by_a_program
}

async fn a_deleted_key_cancels_only_an_adopted_task_that_is_not_nearly_due(ledger: &impl Ledger) {
    let rule = "only_an_adopted_task_is_withdrawn";
    let far = in_ms(ledger, 60_000).await;
    let made = key(rule, "made");
    create_at(ledger, &made, far).await;
    assert!(!cancel_by_key(ledger, &made).await, "a program made it");

    let soon = key(rule, "soon");
    written(adopt(ledger, &soon, in_ms(ledger, 900).await, None).await);
    assert!(!cancel_by_key(ledger, &soon).await, "it may have expired");

    let pending = key(rule, "pending");
    let arming = written(adopt(ledger, &pending, far, None).await);
    let seen = lookup(ledger, &pending).await.unwrap();
    let older = Lookup {
        arming: Arming {
            due: UnixMs(far.0 - 1),
            ..arming
        },
        ..seen.clone()
    };
    let heard = in_ms(ledger, 0).await;
    let by = |over: &Lookup| CancelByKey {
        over: over.clone(),
        heard,
    };
    // One after another: those of one call are written in any order.
    let mut answers = Vec::new();
    for over in [&older, &seen, &seen] {
        answers.extend(ledger.cancel_by_key(&[by(over)], AHEAD).await.unwrap());
    }
    assert_eq!(
        answers,
        [
            CancelByKeyAnswer::Left,
            CancelByKeyAnswer::Cancelled,
            CancelByKeyAnswer::Left
        ],
        "another arming, this one, and once"
    );
    let row = lookup(ledger, &pending).await.unwrap();
    assert_eq!(
        (row.state, row.origin),
        (State::Cancelled, Origin::DeletedKey)
    );
    assert_eq!(row.stamp.changed, heard);
    let again = written(adopt(ledger, &pending, far, Some(row)).await);
    assert_eq!(again, arming);
    let row = lookup(ledger, &pending).await.unwrap();
    assert_eq!((row.state, row.origin), (State::Pending, Origin::Key));
}

/// Many new ones at a time, and one over a row.
async fn a_removed_entry_cancels_its_task_even_if_due(ledger: &impl Ledger) {
    let rule = "a_removed_entry_cancels_its_task_even_if_due";
    let due = in_ms(ledger, -5_000).await;
    let entry = |number: i32, over| AdoptionRequest {
        key: key(rule, number),
        due,
        heard: due,
        from_key: true,
        is_entry: true,
        over,
        payload: None,
    };
    create(ledger, &key(rule, 20), -9_000).await;
    let over = lookup(ledger, &key(rule, 20)).await;
    let mut found: Vec<AdoptionRequest> = (0..20).map(|number| entry(number, None)).collect();
    found.push(entry(20, over));
    for adopted in ledger.adopt(&found).await.unwrap() {
        written(adopted);
    }
    for request in &found {
        let seen = lookup(ledger, &request.key).await.unwrap();
        assert_eq!((seen.origin, seen.state), (Origin::Entry, State::Pending));
        let heard = in_ms(ledger, 0).await;
        let withdrawal = [CancelByKey { over: seen, heard }];
        for (ahead, answer) in [
            (Duration::from_millis(1), CancelByKeyAnswer::Left),
            (Duration::ZERO, CancelByKeyAnswer::Cancelled),
        ] {
            let answers = ledger.cancel_by_key(&withdrawal, ahead).await.unwrap();
            assert_eq!(answers, [answer], "{ahead:?}");
        }
        let row = lookup(ledger, &request.key).await.unwrap();
        let cancelled = (State::Cancelled, Origin::DeletedKey);
        assert_eq!((row.state, row.origin), cancelled);
    }
}

/// An entry is removed when its task dies, and taken when a run starts.
async fn absence_is_no_evidence_after_an_interrupted_run_or_a_redrive(ledger: &impl Ledger) {
    let rule = "absence_is_no_evidence_after_an_interrupted_run_or_a_redrive";
    let due = in_ms(ledger, -5_000).await;
    let mut armings = Vec::new();
    for number in 0..2 {
        let request = AdoptionRequest {
            key: key(rule, number),
            due,
            heard: due,
            from_key: true,
            is_entry: true,
            over: None,
            payload: None,
        };
        armings.push(written(ledger.adopt(&[request]).await.unwrap().remove(0)));
    }
    for (number, arming) in armings.iter().enumerate() {
        let key = key(rule, number);
        let seen = async || lookup(ledger, &key).await.unwrap();
        assert!(!seen().await.interrupted, "it has not run");
        claim(ledger, *arming, SHORT_LEASE).await.unwrap();
        assert!(!seen().await.interrupted, "it runs");
        let over = SHORT_LEASE.as_millis() as i64 + 5;
        pass(ledger, in_ms(ledger, over).await).await;
        let row = seen().await;
        assert_eq!((row.state, row.interrupted), (State::Pending, true));
        let run = claim(ledger, *arming, LEASE).await.unwrap();
        settle(ledger, &run, bury()).await;
        match number {
            0 => drop(ledger.redrive(&key).await.unwrap()),
            _ => assert_eq!(ledger.redrive_rows(&[arming.row]).await.unwrap(), 1),
        }
        let row = seen().await;
        let wanted = (State::Pending, Origin::Key, false);
        assert_eq!((row.state, row.origin, row.interrupted), wanted);
    }
}

async fn cancel_by_key(ledger: &impl Ledger, key: &TaskKey) -> bool {
    let seen = lookup(ledger, key).await.unwrap();
    let heard = in_ms(ledger, 0).await;
    let withdrawal = CancelByKey { over: seen, heard };
    let answers = ledger.cancel_by_key(&[withdrawal], AHEAD).await.unwrap();
    answers == [CancelByKeyAnswer::Cancelled]
}

async fn a_deleted_key_cancels_a_retry_and_an_arming_behind_a_run(ledger: &impl Ledger) {
    let rule = "a_deleted_key_cancels_a_retry_and_an_arming_behind_a_run";
    let far = in_ms(ledger, 60_000).await;
    for behind in [false, true] {
        let key = key(rule, behind);
        let arming = written(adopt(ledger, &key, in_ms(ledger, 5).await, None).await);
        pass(ledger, arming.due).await;
        let run = claim(ledger, arming, LEASE).await.unwrap();
        if behind {
            let running = lookup(ledger, &key).await.unwrap();
            assert!(!cancel_by_key(ledger, &key).await, "its own run has begun");
            let next = written(adopt(ledger, &key, far, Some(running)).await);
            assert!(cancel_by_key(ledger, &key).await);
            let row = lookup(ledger, &key).await.unwrap();
            assert_eq!((row.state, row.cancelling), (State::Running, true));
            let settled = settle(ledger, &run, Verdict::Complete).await;
            assert_eq!(settled, Settled::Superseded);
            assert_eq!(lookup(ledger, &key).await.unwrap().arming, next);
        } else {
            settle(ledger, &run, retry_at(far)).await;
            assert!(cancel_by_key(ledger, &key).await);
        }
        let row = lookup(ledger, &key).await.unwrap();
        assert_eq!(
            (row.state, row.origin, row.deleted),
            (State::Cancelled, Origin::DeletedKey, false)
        );
    }
}

async fn a_cancellation_ends_the_arming_behind_a_run(ledger: &impl Ledger) {
    let rule = "a_cancellation_ends_the_arming_behind_a_run";
    let key = key(rule, 1);
    let run = claim_due(ledger, &key, LEASE).await;
    create(ledger, &key, 60_000).await;
    assert_eq!(cancel(ledger, &key).await, CancelAnswer::Running);
    let settled = settle(ledger, &run, Verdict::Complete).await;
    assert_eq!(settled, Settled::Superseded);
    let row = lookup(ledger, &key).await.unwrap();
    assert_eq!((row.state, row.deleted), (State::Cancelled, false));
    assert!(!ledger.undelete(row.arming).await.unwrap());
}

async fn a_cancellation_during_a_run_is_not_mistaken_for_a_deletion_by_a_program(
    ledger: &impl Ledger,
) {
    let rule = "what_was_cancelled_during_a_run_is_not_revived";
    let key = key(rule, 1);
    let run = claim_due(ledger, &key, SHORT_LEASE).await;
    assert_eq!(cancel(ledger, &key).await, CancelAnswer::Running);
    // Its daemon has died.
    until_free(ledger, &key).await;
    assert_eq!(state(ledger, &key).await, State::Cancelled);
    assert!(!ledger.undelete(run.lease.arming).await.unwrap());
    // The same due time once more takes the cancellation back.
    create_at(ledger, &key, run.lease.arming.due).await;
    assert_eq!(state(ledger, &key).await, State::Pending);
}

async fn until_free(ledger: &impl Ledger, key: &TaskKey) {
    until("no lease is on it", async || {
        state(ledger, key).await != State::Running
    })
    .await;
}

/// How far ahead of its due time a task is withdrawn at the latest.
const AHEAD: Duration = Duration::from_secs(1);
