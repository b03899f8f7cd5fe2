//! Figures by class and method.

use std::time::Duration;

use lapsed::ledger::{DetailedStats, DetailedStatsLimits, ForecastRange, Ledger, MethodStats};
use lapsed::task::{UnixMs, Verdict};

use crate::ledger_conformance::rig::{
    LEASE, bury, cancel, claim, claim_due, create, create_at, in_ms, key, retry_at, settle,
};

rules! {
    a_survey_counts_by_class_and_method
    a_bounded_survey_says_what_it_did_not_count
    the_oldest_task_that_can_start_says_how_late_a_ledger_is
    a_forecast_counts_pending_tasks_by_the_time_at_which_they_may_start
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

async fn a_bounded_survey_says_what_it_did_not_count(ledger: &impl Ledger) {
    let rule = "survey-bounded";
    for name in ["1", "2", "3"] {
        create(ledger, &key(rule, name), -60_000).await;
        create(ledger, &key(rule, format!("ahead-{name}")), 60_000).await;
        let dead = claim_due(ledger, &key(rule, format!("dead-{name}")), LEASE).await;
        settle(ledger, &dead, bury()).await;
        let done = claim_due(ledger, &key(rule, format!("done-{name}")), LEASE).await;
        settle(ledger, &done, Verdict::Complete).await;
        let cancelled = key(rule, format!("cancelled-{name}"));
        create(ledger, &cancelled, 60_000).await;
        cancel(ledger, &cancelled).await;
    }
    let survey = async |limits| ledger.detailed_stats(limits).await.unwrap();
    let all = survey(DetailedStatsLimits::default()).await;
    let few_rows = DetailedStatsLimits {
        rows: 2,
        dead: 2,
        ..DetailedStatsLimits::default()
    };
    let found = survey(few_rows).await;
    assert_eq!(
        (found.methods_of, found.methods_of_dead),
        (Some(2), Some(2))
    );
    // The first two rows are overdue: what else is unfinished counts as pending.
    let unfinished = |of: &DetailedStats| of.counts.pending + of.counts.waiting + of.counts.running;
    assert_eq!(unfinished(&found), unfinished(&all));
    assert!(found.counts.pending >= all.counts.pending);
    assert!(found.counts.overdue >= all.counts.overdue);
    let ended = |of: &DetailedStats| (of.counts.done, of.counts.dead, of.counts.cancelled);
    assert_eq!(ended(&found), ended(&all));
    for exact in ["pending", "done", "dead", "cancelled", "overdue"] {
        assert!(!found.at_least.contains(&exact), "{exact}: {found:?}");
    }
    assert!(found.at_least.contains(&"waiting") && found.at_least.contains(&"running"));

    let few_entries = DetailedStatsLimits {
        entries: 2,
        ..few_rows
    };
    let found = survey(few_entries).await;
    assert_eq!(ended(&found), (2, 2, 2));
    for part in ["pending", "done", "dead", "cancelled", "overdue"] {
        assert!(found.at_least.contains(&part), "{part}: {found:?}");
    }
}

async fn the_oldest_task_that_can_start_says_how_late_a_ledger_is(ledger: &impl Ledger) {
    let rule = "survey-late";
    let longer_ms = 3_600_000;
    create(ledger, &key(rule, "late"), -longer_ms).await;
    // Older, and running.
    let running = create(ledger, &key(rule, "running"), -2 * longer_ms).await;
    claim(ledger, running, LEASE).await.unwrap();
    let limits = DetailedStatsLimits::default();
    let before = ledger.overdue_for().await.unwrap();
    let found = ledger.detailed_stats(limits).await.unwrap();
    let after = ledger.overdue_for().await.unwrap();
    let range = before.as_millis()..=after.as_millis();
    let late_ms = u128::from(found.counts.overdue_ms_max);
    assert!(range.contains(&late_ms), "{late_ms} in {range:?}");
    let expected = longer_ms as u128..2 * longer_ms as u128;
    assert!(expected.contains(&late_ms), "{late_ms}");
}

async fn a_forecast_counts_pending_tasks_by_the_time_at_which_they_may_start(ledger: &impl Ledger) {
    // No other rule has tasks then.
    let from = in_ms(ledger, 37 * 86_400_000).await;
    for (n, ms) in [0, 59_999, 60_000, 179_999, 180_000, -1]
        .into_iter()
        .enumerate()
    {
        create_at(ledger, &key("forecast", n), UnixMs(from.0 + ms)).await;
    }
    let cancelled = key("forecast", "cancelled");
    create_at(ledger, &cancelled, from).await;
    cancel(ledger, &cancelled).await;
    let forecast = async |entries| {
        let range = ForecastRange {
            from,
            step: Duration::from_secs(60),
            steps: 3,
            entries,
        };
        let forecast = ledger.forecast(range).await.unwrap();
        assert_eq!((forecast.from, forecast.step), (from, range.step));
        (forecast.counts, forecast.is_part)
    };
    assert_eq!(forecast(100).await, (vec![2, 1, 1], false));
    assert_eq!(forecast(4).await, (vec![2, 1, 1], false));
    assert_eq!(forecast(3).await, (vec![2, 1], true));
    assert_eq!(
        forecast(1).await,
        (vec![2], true),
        "there are more than one"
    );
}
