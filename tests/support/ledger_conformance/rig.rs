//! The few steps of which most rules consist.

use std::time::Duration;

use lapsed::ledger::{
    Admin, CancelAnswer, Claim, Claimant, Created, Ledger, Lookup, NewTask, Settled, Settlement,
    TaskRecord,
};
use lapsed::task::{Arming, AttemptError, Death, How, Reason, State, TaskKey, UnixMs, Verdict};

use crate::support::wait::until;

/// Longer than any rule takes.
pub const LEASE: Duration = Duration::from_secs(300);

/// Soon over.
pub const SHORT_LEASE: Duration = Duration::from_secs(2);

/// A key of this rule, which no other rule uses.
pub fn key(rule: &str, arg: impl ToString) -> TaskKey {
    TaskKey::build("Conformance", rule, [arg.to_string()]).unwrap()
}

/// A daemon that asks for leases of this length.
pub fn by(lease: Duration) -> Claimant {
    Claimant {
        daemon: "test:1".into(),
        lease,
    }
}

/// So many milliseconds from now, by the ledger's clock.
pub async fn in_ms(ledger: &impl Ledger, ms: i64) -> UnixMs {
    UnixMs(ledger.sync_clock().await.unwrap().0 + ms)
}

/// Creates a task that falls due so many milliseconds from now.
pub async fn create(ledger: &impl Ledger, key: &TaskKey, ahead_ms: i64) -> Arming {
    let due = in_ms(ledger, ahead_ms).await;
    create_at(ledger, key, due).await.arming
}

pub async fn create_at(ledger: &impl Ledger, key: &TaskKey, due: UnixMs) -> Created {
    let task = NewTask::new(key.clone(), due);
    ledger.create(&[task]).await.unwrap()[0]
}

/// Waits until the ledger's clock has passed `moment`.
pub async fn pass(ledger: &impl Ledger, moment: UnixMs) {
    until(format!("it is {moment:?}"), async || {
        ledger.sync_clock().await.unwrap() > moment
    })
    .await;
}

/// `None` if it was not to be had.
pub async fn claim(ledger: &impl Ledger, arming: Arming, lease: Duration) -> Option<Claim> {
    ledger.claim(&[arming], &by(lease)).await.unwrap().pop()
}

/// Creates a task that is due, and claims it.
pub async fn claim_due(ledger: &impl Ledger, key: &TaskKey, lease: Duration) -> Claim {
    let arming = create(ledger, key, -10).await;
    claim(ledger, arming, lease).await.unwrap()
}

pub async fn settle(ledger: &impl Ledger, claim: &Claim, verdict: Verdict) -> Settled {
    let lease = claim.lease;
    let settlement = Settlement { lease, verdict };
    ledger.settle(&[settlement]).await.unwrap()[0]
}

pub async fn state(ledger: &impl Ledger, key: &TaskKey) -> State {
    lookup(ledger, key).await.expect("it has a row").state
}

pub async fn cancel(ledger: &impl Ledger, key: &TaskKey) -> CancelAnswer {
    ledger.cancel(std::slice::from_ref(key)).await.unwrap()[0]
}

/// How an attempt failed, at some fixed time.
pub fn attempt_error(how: How, attempt: u16, error: &str) -> AttemptError {
    AttemptError {
        how,
        attempt,
        started: None,
        at: UnixMs(1_795_291_200_250),
        error: error.into(),
        daemon: "test:1".into(),
        crashes: 0,
        snoozes: 0,
    }
}

/// A failure that is to be tried again.
pub fn retry_at(at: UnixMs) -> Verdict {
    Verdict::RetryAt {
        at,
        error: "no".into(),
        attempt_error: attempt_error(How::Failed, 1, "no"),
    }
}

/// A failure for good.
pub fn bury() -> Verdict {
    bury_for(Reason::Permanent, "for good")
}

pub fn bury_for(reason: Reason, error: &str) -> Verdict {
    Verdict::Bury(death(reason, error))
}

pub fn death(reason: Reason, error: &str) -> Death {
    Death {
        reason,
        error: error.into(),
        attempt_error: attempt_error(How::Failed, 1, error),
    }
}

/// Where the task stands, as a claim would see it.
pub async fn lookup(ledger: &impl Ledger, key: &TaskKey) -> Option<Lookup> {
    ledger
        .look_up(std::slice::from_ref(key))
        .await
        .unwrap()
        .remove(0)
}

/// The task, as people see it.
pub async fn record(ledger: &impl Admin, key: &TaskKey) -> TaskRecord {
    ledger.find(key).await.unwrap().unwrap()
}
