//! Families of metrics: names, types, labels and help texts.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Seconds from 1 ms to a day: lateness spans both.
const LATENESS_BUCKETS: [f64; 19] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0,
    900.0, 3600.0, 86400.0,
];

const DURATION_BUCKETS: [f64; 13] = [
    0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0,
];

pub type Seconds = Gauge<f64, AtomicU64>;
pub type Histograms<Labels> = Family<Labels, Histogram, fn() -> Histogram>;

/// Declares a set of labels, with a constructor from their values in order.
macro_rules! labels {
    ($name:ident { $($field:ident),+ }) => {
        #[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
        pub struct $name { $(pub $field: String),+ }

        impl $name {
            pub fn of($($field: &str),+) -> Self {
                Self { $($field: $field.to_owned()),+ }
            }
        }
    };
}

labels!(Route { route });
/// Route and, if workers take its tasks from a pull queue, that queue.
pub type RouteQueue = Vec<(&'static str, String)>;

labels!(RouteOutcome { route, outcome });
labels!(RouteReason { route, reason });
labels!(BySource { source });
labels!(ByReason { reason });
labels!(ByResult { result });
labels!(ByState { state });
labels!(Node { node });
labels!(ByCommand { command });
labels!(ByServer { server });

/// Declares the metrics: the name of each, its type and its help text. `with` constructs a metric that has no default.
/// The text format appends `_total` to the names of counters.
macro_rules! families {
    ($($name:ident: $kind:ty $(, with $new:expr)?, $help:literal;)+) => {
        #[derive(Debug)]
        pub struct Families {
            $(pub $name: $kind),+
        }

        impl Families {
            pub fn registered(registry: &mut Registry) -> Self {
                $(
                    let $name: $kind = families!(@new $($new)?);
                    registry.register(stringify!($name), $help, $name.clone());
                )+
                Self { $($name),+ }
            }
        }
    };
    (@new) => { Default::default() };
    (@new $new:expr) => { $new };
}

families! {
    lateness_seconds: Histograms<RouteQueue>,
        with Family::new_with_constructor(|| Histogram::new(LATENESS_BUCKETS)),
        "Handler start minus due time (or creation, if later)";
    run_duration_seconds: Histograms<Route>,
        with Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS)),
        "How long handlers ran";
    runs: Family<RouteOutcome, Counter>, "Runs that ended, by outcome";
    signals: Family<BySource, Counter>, "Signals taken in, by source";
    signals_dropped: Family<ByReason, Counter>, "Signals that led to no run, by reason";
    claims: Family<ByResult, Counter>, "Rows asked for in claims, by result";
    starts: Family<BySource, Counter>, "Claimed tasks, by the source of the signal that started them";
    tasks: Family<ByState, Gauge>, "Tasks in the ledger, by state";
    tasks_at_least: Family<ByState, Gauge>,
        "1 where counting tasks of this state ended early: there are at least as many as lapsed_tasks says";
    ledger_up: Gauge, "1 while the ledger answers";
    overdue_seconds_max: Seconds, "How long the oldest overdue task has waited";
    overdue_unpaused_seconds_max: Seconds,
        "How long the oldest overdue task that is not paused or held has waited; 0 where another daemon looks";
    subscription_up: Family<Node, Gauge>, "1 while expired events are heard";
    resubscriptions: Counter, "Subscriptions confirmed after the first";
    redis_events: Counter, "Keyspace events received from Redis";
    sweep_recovered: Family<ByReason, Counter>, "Tasks the sweep found that no signal had named";
    sentinel_age_seconds: Seconds, "Time since a sentinel was last written or heard";
    sentinel_interval_seconds: Seconds, "Time between the expiries of two sentinels; 0 without sentinels";
    fenced: Counter, "Results discarded because the claim was no longer ours";
    dead: Family<RouteReason, Counter>, "Tasks buried, by reason";
    pruned: Family<ByState, Counter>, "Finished rows deleted by retention, by state";
    prune_behind: Family<ByState, Gauge>,
        "1 where more finished rows of this state are old enough than retention lets go";
    occurrences_skipped: Counter, "Occurrences of recurring tasks that were missed and left out";
    audits: Family<ByReason, Counter>, "Audits, by cause";
    audits_skipped: Counter, "Audits that were another daemon's turn";
    rearmed: Counter, "Keys armed again because the timer had lost them";
    pauses: Gauge, "Pauses, holds and releases in force";
    members: Gauge, "Daemons that are known to share this ledger, this one included";
    members_vanished: Counter, "Other daemons that ended without saying so";
    adopted: Family<ByReason, Counter>, "Rows written on behalf of keys that programs armed, by reason";
    withdrawn: Counter, "Adopted tasks cancelled because their key was deleted";
    withdrawn_at_once: Counter, "Adopted tasks cancelled at once with many others";
    waiting: Family<Route, Gauge>, "Signals that wait to be claimed, by route";
    resp_connections: Gauge, "Open connections of the RESP server";
    resp_refused: Family<ByReason, Counter>, "Connections that the RESP server refused, by reason";
    resp_commands: Family<ByCommand, Counter>, "Commands of Redis clients, by name";
    resp_errors: Family<ByCommand, Counter>, "Errors that Redis clients were answered with, by command";
    logins_failed: Family<ByServer, Counter>, "Wrong tokens and passwords, by server";
}
