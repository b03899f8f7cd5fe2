//! Progress of runs.

use lapsed::ledger::{Claim, Ledger, ListFilter, Progress, Renewal};
use lapsed::task::{State, UnixMs, Verdict};

use crate::ledger_conformance::rig::{
    LEASE, SHORT_LEASE, cancel, claim, claim_due, create_at, in_ms, key, pass, record, retry_at,
    settle,
};

rules! {
    progress_is_shown_while_its_run_lasts
    a_report_renews_its_lease
    the_progress_of_a_lost_claim_is_refused
    another_run_of_the_task_begins_without_progress
    a_renewal_without_progress_keeps_what_was_reported
    several_reports_are_written_together
    what_runs_after_its_cancellation_shows_its_progress
}

fn progress(percent: i64, text: &str) -> Progress {
    Progress::new(percent, text).unwrap()
}

async fn report(ledger: &impl Ledger, claim: &Claim, progress: &Progress) -> Renewal {
    let reports = [(claim.lease, progress.clone())];
    ledger.report(&reports, LEASE).await.unwrap()[0]
}

async fn progress_is_shown_while_its_run_lasts(ledger: &impl Ledger) {
    let name = key("progress", "shown");
    let claimed = claim_due(ledger, &name, LEASE).await;
    assert_eq!(record(ledger, &name).await.progress, None);
    for shown in [
        progress(0, ""),
        progress(40, "row 4 of 10, \"ä\" \\ 👩‍💻"),
        progress(100, &"é".repeat(200)),
    ] {
        assert_eq!(report(ledger, &claimed, &shown).await, Renewal::Held);
        assert_eq!(record(ledger, &name).await.progress, Some(shown.clone()));
        for brief in [false, true] {
            let filter = ListFilter {
                prefix: Some(name.as_str().to_owned()),
                brief,
                limit: 2,
                ..ListFilter::default()
            };
            let listed = ledger.list(&filter).await.unwrap().tasks;
            assert_eq!(listed[0].progress, Some(shown.clone()), "brief: {brief}");
        }
    }
    settle(ledger, &claimed, Verdict::Complete).await;
    let done = record(ledger, &name).await;
    assert_eq!((done.state, done.progress), (State::Done, None));
}

async fn a_report_renews_its_lease(ledger: &impl Ledger) {
    let name = key("progress", "renews");
    let claimed = claim_due(ledger, &name, SHORT_LEASE).await;
    assert_eq!(
        report(ledger, &claimed, &progress(1, "")).await,
        Renewal::Held
    );
    let until = record(ledger, &name).await.lease_until.unwrap();
    assert!(until > in_ms(ledger, 0).await.plus(SHORT_LEASE), "{until}");
}

async fn the_progress_of_a_lost_claim_is_refused(ledger: &impl Ledger) {
    let name = key("progress", "lost");
    let first = claim_due(ledger, &name, SHORT_LEASE).await;
    pass(ledger, ledger.clock().now().plus(SHORT_LEASE)).await;
    let lost = progress(90, "lost");
    assert_eq!(report(ledger, &first, &lost).await, Renewal::Lost);
    let second = claim(ledger, first.lease.arming, LEASE).await.unwrap();
    assert_eq!(report(ledger, &first, &lost).await, Renewal::Lost);
    assert_eq!(record(ledger, &name).await.progress, None);
    let held = progress(10, "held");
    assert_eq!(report(ledger, &second, &held).await, Renewal::Held);
    assert_eq!(report(ledger, &first, &lost).await, Renewal::Lost);
    assert_eq!(record(ledger, &name).await.progress, Some(held));

    settle(ledger, &second, Verdict::Complete).await;
    assert_eq!(report(ledger, &second, &lost).await, Renewal::Lost);
    assert_eq!(record(ledger, &name).await.progress, None);
}

async fn another_run_of_the_task_begins_without_progress(ledger: &impl Ledger) {
    let name = key("progress", "again");
    let first = claim_due(ledger, &name, LEASE).await;
    report(ledger, &first, &progress(90, "first")).await;
    settle(ledger, &first, retry_at(UnixMs(0))).await;
    assert_eq!(record(ledger, &name).await.progress, None, "it waits");
    let second = claim(ledger, first.lease.arming, LEASE).await.unwrap();
    assert_eq!(record(ledger, &name).await.progress, None, "it runs again");
    report(ledger, &second, &progress(5, "second")).await;

    // The older arming runs on, and the next one waits for it.
    let due = in_ms(ledger, -5).await;
    create_at(ledger, &name, due).await;
    let shown = record(ledger, &name).await.progress;
    assert_eq!(shown, Some(progress(5, "second")));
    settle(ledger, &second, Verdict::Complete).await;
    let arming = create_at(ledger, &name, due).await.arming;
    claim(ledger, arming, LEASE).await.unwrap();
    assert_eq!(record(ledger, &name).await.progress, None);
}

async fn a_renewal_without_progress_keeps_what_was_reported(ledger: &impl Ledger) {
    let name = key("progress", "kept");
    let claimed = claim_due(ledger, &name, LEASE).await;
    report(ledger, &claimed, &progress(7, "kept")).await;
    let renewed = ledger.renew(&[claimed.lease], LEASE).await.unwrap();
    assert_eq!(renewed, [Renewal::Held]);
    let shown = record(ledger, &name).await.progress;
    assert_eq!(shown, Some(progress(7, "kept")));
}

async fn several_reports_are_written_together(ledger: &impl Ledger) {
    assert_eq!(ledger.report(&[], LEASE).await.unwrap(), []);
    let mut claims = Vec::new();
    for n in 0..5 {
        claims.push(claim_due(ledger, &key("progress_several", n), LEASE).await);
    }
    settle(ledger, &claims[2], Verdict::Complete).await;
    // In another order than that of the rows.
    claims.reverse();
    let reports: Vec<_> = (1..)
        .zip(&claims)
        .map(|(percent, claim)| (claim.lease, progress(percent, claim.key.as_str())))
        .collect();
    let renewed = ledger.report(&reports, LEASE).await.unwrap();
    let (held, lost) = (Renewal::Held, Renewal::Lost);
    assert_eq!(renewed, [held, held, lost, held, held]);
    for ((claim, (_, reported)), renewal) in claims.iter().zip(reports).zip(renewed) {
        let shown = record(ledger, &claim.key).await.progress;
        assert_eq!(shown, (renewal == held).then_some(reported));
    }
}

async fn what_runs_after_its_cancellation_shows_its_progress(ledger: &impl Ledger) {
    let name = key("progress", "cancelled");
    let claimed = claim_due(ledger, &name, LEASE).await;
    cancel(ledger, &name).await;
    let shown = progress(50, "half");
    assert_eq!(report(ledger, &claimed, &shown).await, Renewal::Held);
    let running = record(ledger, &name).await;
    assert_eq!(
        (running.cancel_requested, running.progress),
        (true, Some(shown))
    );
    settle(ledger, &claimed, retry_at(UnixMs(0))).await;
    let ended = record(ledger, &name).await;
    assert_eq!((ended.state, ended.progress), (State::Cancelled, None));
}
