//! Figures by class and method.

use lapsed::ledger::{DetailedStatsLimits, Ledger, MethodStats};
use lapsed::task::{UnixMs, Verdict};

use crate::ledger_conformance::rig::{
    LEASE, bury, cancel, claim_due, create, in_ms, key, retry_at, settle,
};

rules! {
    a_survey_counts_by_class_and_method
}

async fn a_survey_counts_by_class_and_method(ledger: &impl Ledger) {
    let [mixed, other] = ["survey-mixed", "survey-other"];
    create(ledger, &key(mixed, "ahead"), 60_000).await;
    let overdue = create(ledger, &key(mixed, "overdue"), -5_000).await;
    create(ledger, &key(mixed, "late"), -1_000).await;
    create(ledger, &key(mixed, "cancelled"), 60_000).await;
    cancel(ledger, &key(mixed, "cancelled")).await;
    claim_due(ledger, &key(mixed, "running"), LEASE).await;
    let waiting = claim_due(ledger, &key(mixed, "waiting"), LEASE).await;
    let again = UnixMs(waiting.lease.arming.due.0 + 60_000);
    settle(ledger, &waiting, retry_at(again)).await;
    let dead = claim_due(ledger, &key(mixed, "dead"), LEASE).await;
    settle(ledger, &dead, bury()).await;
    let first_due = in_ms(ledger, -10).await;
    for name in ["1", "2", "3"] {
        let done = claim_due(ledger, &key(other, name), LEASE).await;
        settle(ledger, &done, Verdict::Complete).await;
    }
    // Leases of other rules run out meanwhile: what is compared is of one moment if nothing changed around it.
    let (stats, survey) = loop {
        let before = ledger.stats().await.unwrap().by_state();
        let survey = ledger
            .detailed_stats(DetailedStatsLimits::default())
            .await
            .unwrap();
        if ledger.stats().await.unwrap().by_state() == before {
            break (before, survey);
        }
    };
    assert_eq!(survey.counts.by_state(), stats);
    assert!(survey.at_least.is_empty() && survey.methods_of.is_none());
    let of = |rule: &str| {
        let name = key(rule, 1).class_method().to_owned();
        let mut methods = survey.methods.iter();
        methods.find(|of| of.name == name).cloned().unwrap()
    };
    let found = of(mixed);
    let now = in_ms(ledger, 0).await;
    let overdue_ms = (now.0 - overdue.due.0).cast_unsigned();
    assert!(
        (5_000..=overdue_ms).contains(&found.overdue_ms_max),
        "{found:?}"
    );
    let expected = MethodStats {
        name: found.name.clone(),
        pending: 3,
        waiting: 1,
        running: 1,
        overdue: 2,
        overdue_ms_max: found.overdue_ms_max,
        dead: 1,
        due_to_done: None,
    };
    assert_eq!(found, expected);
    let took = of(other).due_to_done.unwrap();
    assert_eq!(took.count, 3);
    let since_first = (now.0 - first_due.0).cast_unsigned();
    assert!(
        took.p50_ms <= took.max_ms && took.max_ms <= since_first,
        "{took:?}"
    );
    assert!(survey.methods.iter().map(|of| &of.name).is_sorted());
}
