//! Leases that are found by a scan, and those of dead daemons.

use std::time::Duration;

use lapsed::ledger::{Claim, FoundLease, Ledger, Prune, Renewal, Settled};
use lapsed::task::{State, UnixMs, Verdict};

use crate::ledger_conformance::rig::{
    LEASE, SHORT_LEASE, by, cancel, claim, claim_due, create, create_at, in_ms, key, lookup, pass,
    retry_at, settle, state,
};

rules! {
    a_scan_finds_the_leases_of_due_tasks_with_who_holds_them
    ending_a_lease_counts_a_crash_as_running_out_does
    only_the_very_claim_of_the_very_daemon_is_ended
    a_result_that_arrives_after_its_lease_was_ended_counts_unless_it_runs_again
    ending_the_lease_of_an_older_arming_counts_no_crash
    a_task_cancelled_during_its_run_stays_cancelled_when_its_lease_is_ended
    free_rows_are_distinguished_from_leased_ones
    the_lease_of_a_dead_daemon_is_ended_though_another_arming_waits_for_it
    a_task_cancelled_during_a_run_whose_lease_expired_is_cancelled
    a_pardoned_suspect_stays_one_when_its_lease_is_ended
}

const AHEAD: Duration = Duration::from_secs(120);

/// The lease that stands in the row of this claim, found by scanning all.
async fn lease_of(ledger: &impl Ledger, claim: &Claim) -> Option<FoundLease> {
    let mut after = None;
    loop {
        let page = ledger.scan_leases(after, AHEAD).await.unwrap();
        let row = claim.lease.arming.row;
        let found = page.leases.into_iter().find(|lease| lease.row == row);
        if found.is_some() || page.next.is_none() {
            return found;
        }
        after = page.next;
    }
}

async fn end(ledger: &impl Ledger, lease: &FoundLease) -> u64 {
    ledger
        .end_leases(std::slice::from_ref(lease))
        .await
        .unwrap()
}

async fn a_scan_finds_the_leases_of_due_tasks_with_who_holds_them(ledger: &impl Ledger) {
    let claimed = claim_due(ledger, &key("lease", "found"), LEASE).await;
    let found = lease_of(ledger, &claimed).await.unwrap();
    assert_eq!(found.owner, claimed.lease.owner);
    assert_eq!(found.daemon, by(LEASE).daemon);
    let now = in_ms(ledger, 0).await;
    assert!(found.until > now && found.until <= now.plus(LEASE));
    settle(ledger, &claimed, Verdict::Complete).await;
    assert_eq!(lease_of(ledger, &claimed).await, None, "it is done");

    let retried = claim_due(ledger, &key("lease", "retried"), LEASE).await;
    settle(ledger, &retried, retry_at(UnixMs(0))).await;
    assert_eq!(lease_of(ledger, &retried).await, None, "it is free");

    let superseded = claim_due(ledger, &key("lease", "superseded"), LEASE).await;
    create(ledger, &key("lease", "superseded"), 60_000).await;
    assert!(lease_of(ledger, &superseded).await.is_some());
    settle(ledger, &superseded, Verdict::Complete).await;
    assert_eq!(lease_of(ledger, &superseded).await, None, "it has ended");

    let ran_out = claim_due(ledger, &key("lease", "ran_out"), SHORT_LEASE).await;
    pass(ledger, ledger.clock().now().plus(SHORT_LEASE)).await;
    assert!(lease_of(ledger, &ran_out).await.is_some());
}

async fn ending_a_lease_counts_a_crash_as_running_out_does(ledger: &impl Ledger) {
    let name = key("lease", "ended");
    let mut claimed = claim_due(ledger, &name, LEASE).await;
    for crashes in 1..=3 {
        let lease = lease_of(ledger, &claimed).await.unwrap();
        assert_eq!(end(ledger, &lease).await, 1);
        assert_eq!(state(ledger, &name).await, State::Pending);
        assert_eq!(end(ledger, &lease).await, 0, "once");
        claimed = claim(ledger, claimed.lease.arming, LEASE).await.unwrap();
        let attempt = &claimed.attempt;
        assert_eq!(
            (attempt.number, attempt.crashes),
            (u16::from(crashes) + 1, crashes)
        );
    }
}

async fn only_the_very_claim_of_the_very_daemon_is_ended(ledger: &impl Ledger) {
    let claimed = claim_due(ledger, &key("lease", "fenced"), LEASE).await;
    let lease = lease_of(ledger, &claimed).await.unwrap();
    let other_claim = FoundLease {
        owner: lapsed::ledger::Owner::random(),
        ..lease.clone()
    };
    let other_daemon = FoundLease {
        daemon: "test:2".into(),
        ..lease.clone()
    };
    let other_row = FoundLease {
        row: lease.row + 1_000_000,
        ..lease.clone()
    };
    let others = [other_claim, other_daemon, other_row];
    assert_eq!(ledger.end_leases(&others).await.unwrap(), 0);
    assert_eq!(ledger.end_leases(&[]).await.unwrap(), 0);
    let renewed = ledger.renew(&[claimed.lease], LEASE).await.unwrap();
    assert_eq!(renewed, [Renewal::Held]);
    // A renewal in between does not matter: the claim is the same.
    assert_eq!(end(ledger, &lease).await, 1);
    let renewed = ledger.renew(&[claimed.lease], LEASE).await.unwrap();
    assert_eq!(renewed, [Renewal::Lost], "never revived");

    let next = claim(ledger, claimed.lease.arming, LEASE).await.unwrap();
    assert_eq!(end(ledger, &lease).await, 0, "another has it now");
    let settled = settle(ledger, &next, Verdict::Complete).await;
    assert_eq!(settled, Settled::Applied);
}

async fn a_result_that_arrives_after_its_lease_was_ended_counts_unless_it_runs_again(
    ledger: &impl Ledger,
) {
    let name = key("lease", "late");
    let claimed = claim_due(ledger, &name, LEASE).await;
    let lease = lease_of(ledger, &claimed).await.unwrap();
    assert_eq!(end(ledger, &lease).await, 1);
    let settled = settle(ledger, &claimed, Verdict::Complete).await;
    assert_eq!(settled, Settled::Applied, "what it did is done");
    assert_eq!(state(ledger, &name).await, State::Done);

    let name = key("lease", "failed late");
    let claimed = claim_due(ledger, &name, LEASE).await;
    end(ledger, &lease_of(ledger, &claimed).await.unwrap()).await;
    settle(ledger, &claimed, retry_at(in_ms(ledger, 600_000).await)).await;
    assert_eq!(state(ledger, &name).await, State::Waiting);

    let name = key("lease", "late again");
    let claimed = claim_due(ledger, &name, LEASE).await;
    end(ledger, &lease_of(ledger, &claimed).await.unwrap()).await;
    claim(ledger, claimed.lease.arming, LEASE).await.unwrap();
    let settled = settle(ledger, &claimed, Verdict::Complete).await;
    assert_eq!(settled, Settled::Fenced);
    assert_eq!(state(ledger, &name).await, State::Running);
}

async fn ending_the_lease_of_an_older_arming_counts_no_crash(ledger: &impl Ledger) {
    let name = key("lease", "moved");
    let claimed = claim_due(ledger, &name, LEASE).await;
    let due = in_ms(ledger, -5).await;
    create_at(ledger, &name, due).await;
    let lease = lease_of(ledger, &claimed).await.unwrap();
    assert_eq!(end(ledger, &lease).await, 1);
    let arming = create_at(ledger, &name, due).await.arming;
    let next = claim(ledger, arming, LEASE).await.unwrap();
    assert_eq!((next.attempt.number, next.attempt.crashes), (1, 0));
}

async fn a_task_cancelled_during_its_run_stays_cancelled_when_its_lease_is_ended(
    ledger: &impl Ledger,
) {
    let name = key("lease", "cancelled");
    let claimed = claim_due(ledger, &name, LEASE).await;
    let lease = lease_of(ledger, &claimed).await.unwrap();
    cancel(ledger, &name).await;
    assert_eq!(lease_of(ledger, &claimed).await, None);
    // It was found before the cancellation.
    end(ledger, &lease).await;
    assert_eq!(state(ledger, &name).await, State::Cancelled);
    assert!(claim(ledger, claimed.lease.arming, LEASE).await.is_none());
}

async fn free_rows_are_distinguished_from_leased_ones(ledger: &impl Ledger) {
    let due = create(ledger, &key("lease", "due"), -10).await;
    let ahead = create(ledger, &key("lease", "ahead"), 600_000).await;
    let leased = claim_due(ledger, &key("lease", "leased"), LEASE).await;
    let done = claim_due(ledger, &key("lease", "done"), LEASE).await;
    settle(ledger, &done, Verdict::Complete).await;
    let ran_out = claim_due(ledger, &key("lease", "over"), SHORT_LEASE).await;
    pass(ledger, ledger.clock().now().plus(SHORT_LEASE)).await;
    let rows = [due, ahead, leased.lease.arming, done.lease.arming].map(|arming| arming.row);
    let ran_out = ran_out.lease.arming;
    let rows: Vec<u64> = rows.into_iter().chain([ran_out.row, u64::MAX]).collect();
    let free = ledger.claimable(&rows).await.unwrap();
    let mut free: Vec<_> = free.into_iter().map(|row| row.arming).collect();
    free.sort_unstable();
    assert_eq!(free, [due, ran_out]);
    assert_eq!(ledger.claimable(&[]).await.unwrap(), []);
}

async fn the_lease_of_a_dead_daemon_is_ended_though_another_arming_waits_for_it(
    ledger: &impl Ledger,
) {
    let claimed = claim_due(ledger, &key("dead-behind", 1), LEASE).await;
    let arming = create(ledger, &claimed.key, 60_000).await;
    let found = lease_of(ledger, &claimed).await.unwrap();
    assert_eq!(end(ledger, &found).await, 1);
    let row = lookup(ledger, &claimed.key).await.unwrap();
    assert_eq!((row.arming, row.state), (arming, State::Pending));
    // Not that of one beyond the time that is asked for.
    let claimed = claim_due(ledger, &key("dead-behind", 2), LEASE).await;
    create(ledger, &claimed.key, 600_000).await;
    assert_eq!(lease_of(ledger, &claimed).await, None);
}

async fn a_task_cancelled_during_a_run_whose_lease_expired_is_cancelled(ledger: &impl Ledger) {
    let names = ["ran-out", "behind", "runs", "open"];
    let mut claims = Vec::new();
    for name in names {
        let lease = if name == "runs" { LEASE } else { SHORT_LEASE };
        claims.push(claim_due(ledger, &key("cancelled-run", name), lease).await);
    }
    create(ledger, &claims[1].key, -5).await;
    for claimed in &claims[..3] {
        cancel(ledger, &claimed.key).await;
    }
    let over = ledger.clock().now().plus(SHORT_LEASE).plus(SHORT_LEASE);
    pass(ledger, over).await;
    let (mut ended, mut after) = (0, None);
    loop {
        let (count, next) = ledger.end_cancelled(after).await.unwrap();
        ended += count;
        after = next;
        if after.is_none() {
            break;
        }
    }
    assert!(ended >= 2, "{ended}");
    let prune = Prune {
        state: State::Cancelled,
        age: Some(Duration::from_millis(1)),
        surplus: None,
        after: None,
        limit: 1_000,
        archive: false,
        dry_run: false,
    };
    let rows: Vec<u64> = claims.iter().map(|it| it.lease.arming.row).collect();
    assert_eq!(ledger.prune_rows(&prune, &rows).await.unwrap(), 2);
    assert!(lookup(ledger, &claims[0].key).await.is_none());
    assert!(lookup(ledger, &claims[1].key).await.is_none());
    assert_eq!(state(ledger, &claims[2].key).await, State::Running);
    assert_eq!(state(ledger, &claims[3].key).await, State::Pending);
}

async fn a_pardoned_suspect_stays_one_when_its_lease_is_ended(ledger: &impl Ledger) {
    let key = key("lease", "pardoned");
    let mut claimed = claim_due(ledger, &key, LEASE).await;
    for crashes in 1..=2 {
        let lease = lease_of(ledger, &claimed).await.unwrap();
        assert_eq!(end(ledger, &lease).await, 1);
        let former = claimed;
        claimed = claim(ledger, former.lease.arming, LEASE).await.unwrap();
        assert_eq!(claimed.attempt.crashes, crashes);
        let pardon = ledger.pardon(&former.lease).await.unwrap();
        assert_eq!(pardon, Renewal::Lost, "another claim holds it");
    }
    // To repeat it changes nothing.
    for _ in 0..2 {
        let pardon = ledger.pardon(&claimed.lease).await.unwrap();
        assert_eq!(pardon, Renewal::Held);
    }
    let lease = lease_of(ledger, &claimed).await.unwrap();
    assert_eq!(end(ledger, &lease).await, 1);
    let again = claim(ledger, claimed.lease.arming, LEASE).await.unwrap();
    assert_eq!((again.attempt.number, again.attempt.crashes), (4, 2));
    settle(ledger, &again, Verdict::Complete).await;
    assert_eq!(ledger.pardon(&again.lease).await.unwrap(), Renewal::Lost);
}
