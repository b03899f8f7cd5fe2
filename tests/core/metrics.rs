//! Dashboards and alerts name metrics and labels.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lapsed::engine::{DropReason, Metrics};
use lapsed::ledger::Stats;
use lapsed::task::{Reason, State};

use crate::support::metrics;
use crate::support::snapshot::assert_snapshot;

#[test]
fn metrics_keep_their_names_types_and_labels() {
    let text = recorded().render();
    let mut helps = BTreeMap::new();
    let mut types = BTreeMap::new();
    let mut samples: BTreeMap<&str, BTreeSet<(&str, String)>> = BTreeMap::new();
    for line in text.lines() {
        if let Some(line) = line.strip_prefix("# HELP ") {
            let (name, help) = line.split_once(' ').unwrap();
            helps.insert(name, help);
        } else if let Some(line) = line.strip_prefix("# TYPE ") {
            let (name, kind) = line.split_once(' ').unwrap();
            types.insert(name, kind);
        } else if !line.starts_with('#') {
            let (sample, _) = line.rsplit_once(' ').unwrap();
            let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
            let family = types.keys().filter(|family| name.starts_with(**family));
            let family = family.max_by_key(|family| family.len()).unwrap();
            samples
                .entry(family)
                .or_default()
                .insert((name, label_names(labels)));
        }
    }
    let lines = samples.into_iter().flat_map(|(family, samples)| {
        let (kind, help) = (types[family], helps[family]);
        let line = move |(name, labels)| format!("{name}{{{labels}}} {kind}: {help}");
        samples.into_iter().map(line)
    });
    assert_snapshot("metrics", lines);
}

/// `a,b` of `a="1",b="2"}`.
fn label_names(labels: &str) -> String {
    let pairs = labels.trim_end_matches('}').split("\",");
    let names = pairs.filter_map(|pair| Some(pair.split_once('=')?.0));
    names.collect::<Vec<_>>().join(",")
}

/// One of each: a family without samples is not rendered.
fn recorded() -> Metrics {
    let metrics = Metrics::default();
    metrics.started("Job", None, 1);
    metrics.started("Mail", Some("mail"), 1);
    metrics.ran("Job", "done", Duration::from_millis(1));
    metrics.signalled("expired");
    metrics.dropped(DropReason::Early, 1);
    metrics.claimed("won", 1);
    metrics.starts().nudge.inc();
    for (state, count) in Stats::default().by_state() {
        metrics.counted(state, count, false);
    }
    metrics.overdue_for(Duration::from_millis(1));
    metrics.subscription("127.0.0.1:6379", true);
    metrics.resubscribed();
    metrics.event_received();
    metrics.recovered("overdue", 1);
    metrics.sentinel_age(Duration::from_millis(1), Duration::from_millis(1));
    metrics.ledger(true);
    metrics.adopted("bare");
    metrics.cancelled_by_key();
    metrics.waiting("Job", 1);
    metrics.fenced();
    metrics.occurrences_skipped(1);
    metrics.buried("Job", Reason::Permanent);
    metrics.pruned(State::Done, 1);
    metrics.prune_behind(State::Done, true);
    metrics.members(1);
    metrics.pauses(1);
    metrics.audit_skipped();
    metrics.resp_connections(1);
    metrics.resp_refused("max_connections");
    metrics.resp_commands("get").inc();
    metrics.resp_errors("get").inc();
    metrics.login_failed("resp");
    metrics.audited("start", 1);
    metrics
}

#[test]
fn a_metric_that_does_not_exist_cannot_be_read() {
    for name in [
        "lapsed_claim_total{result=\"won\"}",
        "lapsed_claims_total",
        "lapsed_claims_total{outcome=\"won\"}",
        "lapsed_claims_total{result=\"win\"}",
        "lapsed_dead_total{reason=\"expired\",route=\"Job\"}",
        "lapsed_signals_dropped_total{reason=\"overflowed\"}",
        "lapsed_pauses{}",
    ] {
        let read = std::panic::catch_unwind(|| metrics::value("", name));
        assert!(read.is_err(), "{name}");
    }
    for name in [
        "lapsed_claims_total{result=\"missed\"}",
        "lapsed_dead_total{route=\"Job\",reason=\"expired\"}",
        "lapsed_pauses",
    ] {
        assert_eq!(metrics::value("", name), 0.0, "{name}");
    }
}
