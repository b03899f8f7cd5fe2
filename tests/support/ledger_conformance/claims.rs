//! Who may run a task, and for how long.

use std::time::Duration;

use lapsed::ledger::{Ledger, NewTask, Renewal, Settled};
use lapsed::task::{Contents, PAYLOAD_READ_MAX, State, TaskKey, UnixMs, Verdict};

use crate::ledger_conformance::rig::{
    LEASE, SHORT_LEASE, by, claim, claim_due, create, key, pass, settle, state,
};

rules! {
    nothing_is_claimed_before_it_is_due
    one_claim_wins
    a_lease_that_ran_out_counts_a_crash_and_can_be_claimed
    a_renewed_lease_holds_and_an_expired_one_is_not_revived
    a_payload_that_is_too_long_is_not_read
}

async fn nothing_is_claimed_before_it_is_due(ledger: &impl Ledger) {
    let key = key("early", 1);
    let arming = create(ledger, &key, 300).await;
    assert!(claim(ledger, arming, LEASE).await.is_none());
    pass(ledger, arming.due).await;
    assert!(claim(ledger, arming, LEASE).await.is_some());
}

async fn one_claim_wins(ledger: &impl Ledger) {
    let keys: Vec<TaskKey> = (0..20).map(|n| key("race", n)).collect();
    let mut armings = Vec::new();
    for key in &keys {
        armings.push(create(ledger, key, -5).await);
    }
    let (one, other) = (by(LEASE), by(LEASE));
    let (one, other) = tokio::join!(ledger.claim(&armings, &one), ledger.claim(&armings, &other));
    let mut rows: Vec<u64> = one
        .unwrap()
        .iter()
        .chain(&other.unwrap())
        .map(|claim| claim.lease.arming.row)
        .collect();
    rows.sort_unstable();
    let mut expected: Vec<u64> = armings.iter().map(|arming| arming.row).collect();
    expected.sort_unstable();
    assert_eq!(rows, expected, "each once");
    assert_eq!(state(ledger, &keys[0]).await, State::Running);
}

async fn a_lease_that_ran_out_counts_a_crash_and_can_be_claimed(ledger: &impl Ledger) {
    let key = key("crash", 1);
    let first = claim_due(ledger, &key, SHORT_LEASE).await;
    assert_eq!((first.attempt.number, first.attempt.crashes), (1, 0));
    assert!(claim(ledger, first.lease.arming, LEASE).await.is_none());
    pass(ledger, ledger.clock().now().plus(SHORT_LEASE)).await;
    let second = claim(ledger, first.lease.arming, LEASE).await.unwrap();
    assert_eq!((second.attempt.number, second.attempt.crashes), (2, 1));
    assert_eq!(
        settle(ledger, &first, Verdict::Complete).await,
        Settled::Fenced
    );
}

async fn a_renewed_lease_holds_and_an_expired_one_is_not_revived(ledger: &impl Ledger) {
    let key = key("renew", 1);
    let claimed = claim_due(ledger, &key, SHORT_LEASE).await;
    assert_eq!(
        ledger.renew(&[claimed.lease], LEASE).await.unwrap(),
        [Renewal::Held]
    );
    pass(ledger, ledger.clock().now().plus(SHORT_LEASE)).await;
    assert_eq!(state(ledger, &key).await, State::Running);
    assert_eq!(
        ledger
            .renew(&[claimed.lease], Duration::from_millis(20))
            .await
            .unwrap(),
        [Renewal::Held]
    );
    pass(ledger, ledger.clock().now().plus(Duration::from_millis(50))).await;
    assert_eq!(
        ledger.renew(&[claimed.lease], LEASE).await.unwrap(),
        [Renewal::Lost]
    );
    assert_eq!(state(ledger, &key).await, State::Pending);
    assert_eq!(
        settle(ledger, &claimed, Verdict::Complete).await,
        Settled::Applied,
        "nobody else has claimed it"
    );
}

async fn a_payload_that_is_too_long_is_not_read(ledger: &impl Ledger) {
    let due = ledger.sync_clock().await.unwrap();
    // Two bytes a character: what counts is bytes.
    let text = |bytes: usize| {
        format!(
            "\"{}{}\"",
            "x".repeat(bytes % 2),
            "\u{e4}".repeat(bytes / 2 - 1)
        )
    };
    let tasks = [PAYLOAD_READ_MAX, PAYLOAD_READ_MAX + 1].map(|bytes| NewTask {
        contents: Contents {
            payload: Some(text(bytes)),
            ..Contents::default()
        },
        ..NewTask::new(key("payload", bytes), UnixMs(due.0 - 5))
    });
    let created = ledger.create(&tasks).await.unwrap();
    let longest = claim(ledger, created[0].arming, LEASE).await.unwrap();
    assert_eq!(
        (longest.payload, longest.oversize),
        (tasks[0].contents.payload.clone(), None)
    );
    let too_long = claim(ledger, created[1].arming, LEASE).await.unwrap();
    let bytes = tasks[1].contents.payload.as_ref().unwrap().len() as u64;
    assert_eq!((too_long.payload, too_long.oversize), (None, Some(bytes)));
    let none = claim_due(ledger, &key("payload", "none"), LEASE).await;
    assert_eq!((none.payload, none.oversize), (None, None));
}
