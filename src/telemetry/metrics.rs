//! The metrics, by the names the documentation promises. Labels come from small fixed sets: routes,
//! outcomes, sources, reasons; never a key or an id.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::drop_reason::DropReason;
use crate::task::{Reason, State};

/// Seconds from 1 ms to a day: lateness spans both.
const LATENESS_BUCKETS: [f64; 19] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0,
    900.0, 3600.0, 86400.0,
];

const DURATION_BUCKETS: [f64; 13] = [
    0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0,
];

macro_rules! labels {
    ($(#[$doc:meta])* $name:ident { $($field:ident),+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
        struct $name { $($field: String),+ }
    };
}

labels!(Route { route });
labels!(RouteOutcome { route, outcome });
labels!(RouteReason { route, reason });
labels!(BySource { source });
labels!(ByReason { reason });
labels!(ByResult { result });
labels!(ByState { state });
labels!(Node { node });

/// Every metric of the daemon. Counting never blocks and never fails.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    lateness: Family<Route, Histogram, fn() -> Histogram>,
    run_duration: Family<Route, Histogram, fn() -> Histogram>,
    runs: Family<RouteOutcome, Counter>,
    signals: Family<BySource, Counter>,
    signals_dropped: Family<ByReason, Counter>,
    claims: Family<ByResult, Counter>,
    tasks: Family<ByState, Gauge>,
    tasks_at_least: Family<ByState, Gauge>,
    overdue_seconds_max: Gauge<f64, std::sync::atomic::AtomicU64>,
    subscription_up: Family<Node, Gauge>,
    resubscriptions: Counter,
    redis_events: Counter,
    sweep_recovered: Family<ByReason, Counter>,
    sentinel_age: Gauge<f64, std::sync::atomic::AtomicU64>,
    fenced: Counter,
    occurrences_skipped: Counter,
    dead: Family<RouteReason, Counter>,
    audits: Family<ByReason, Counter>,
    audits_skipped: Counter,
    rearmed: Counter,
    members: Gauge,
    pauses: Gauge,
    adopted: Family<ByReason, Counter>,
    withdrawn: Counter,
    waiting: Family<Route, Gauge>,
    pruned: Family<ByState, Counter>,
    prune_behind: Family<ByState, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut this = Self {
            registry: Registry::with_prefix("lapsed"),
            lateness: Family::new_with_constructor(|| Histogram::new(LATENESS_BUCKETS)),
            run_duration: Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS)),
            runs: Family::default(),
            signals: Family::default(),
            signals_dropped: Family::default(),
            claims: Family::default(),
            tasks: Family::default(),
            tasks_at_least: Family::default(),
            overdue_seconds_max: Gauge::default(),
            subscription_up: Family::default(),
            resubscriptions: Counter::default(),
            redis_events: Counter::default(),
            sweep_recovered: Family::default(),
            sentinel_age: Gauge::default(),
            fenced: Counter::default(),
            occurrences_skipped: Counter::default(),
            dead: Family::default(),
            audits: Family::default(),
            audits_skipped: Counter::default(),
            rearmed: Counter::default(),
            members: Gauge::default(),
            pauses: Gauge::default(),
            adopted: Family::default(),
            withdrawn: Counter::default(),
            waiting: Family::default(),
            pruned: Family::default(),
            prune_behind: Family::default(),
        };
        this.register();
        this
    }
}

impl Metrics {
    /// Counters get their `_total` from the text format.
    fn register(&mut self) {
        let r = &mut self.registry;
        r.register(
            "lateness_seconds",
            "Handler start minus due time (or creation, if later)",
            self.lateness.clone(),
        );
        r.register(
            "run_duration_seconds",
            "How long handlers ran",
            self.run_duration.clone(),
        );
        r.register("runs", "Runs that ended, by outcome", self.runs.clone());
        r.register(
            "signals",
            "Signals taken in, by source",
            self.signals.clone(),
        );
        r.register(
            "signals_dropped",
            "Signals that led to no run, by reason",
            self.signals_dropped.clone(),
        );
        r.register(
            "claims",
            "Rows asked for in claims, by result",
            self.claims.clone(),
        );
        r.register("tasks", "Tasks in the ledger, by state", self.tasks.clone());
        r.register(
            "tasks_at_least",
            "1 where counting tasks of this state ended early: there are at least as many as lapsed_tasks says",
            self.tasks_at_least.clone(),
        );
        r.register(
            "overdue_seconds_max",
            "How long the oldest overdue task has waited",
            self.overdue_seconds_max.clone(),
        );
        r.register(
            "subscription_up",
            "1 while expired events are heard",
            self.subscription_up.clone(),
        );
        r.register(
            "resubscriptions",
            "Subscriptions confirmed after the first",
            self.resubscriptions.clone(),
        );
        r.register(
            "redis_events",
            "Keyspace events received from Redis",
            self.redis_events.clone(),
        );
        r.register(
            "sweep_recovered",
            "Tasks the sweep found that no signal had named",
            self.sweep_recovered.clone(),
        );
        r.register(
            "sentinel_age_seconds",
            "Time since a sentinel was last written or heard",
            self.sentinel_age.clone(),
        );
        r.register(
            "fenced",
            "Results discarded because the claim was no longer ours",
            self.fenced.clone(),
        );
        r.register("dead", "Tasks buried, by reason", self.dead.clone());
        r.register(
            "pruned",
            "Finished rows deleted by retention, by state",
            self.pruned.clone(),
        );
        r.register(
            "prune_behind",
            "1 where more finished rows of this state are old enough than retention lets go",
            self.prune_behind.clone(),
        );
        r.register(
            "occurrences_skipped",
            "Occurrences of recurring tasks that were missed and left out",
            self.occurrences_skipped.clone(),
        );
        r.register("audits", "Audits, by cause", self.audits.clone());
        r.register(
            "audits_skipped",
            "Audits that were another daemon's turn",
            self.audits_skipped.clone(),
        );
        r.register(
            "rearmed",
            "Keys armed again because the timer had lost them",
            self.rearmed.clone(),
        );
        r.register(
            "pauses",
            "Pauses, holds and releases that stand",
            self.pauses.clone(),
        );
        r.register(
            "members",
            "Daemons that are known to share this ledger, this one included",
            self.members.clone(),
        );
        r.register(
            "adopted",
            "Rows written on behalf of keys that programs armed, by reason",
            self.adopted.clone(),
        );
        r.register(
            "withdrawn",
            "Adopted tasks called off because their key was deleted",
            self.withdrawn.clone(),
        );
        r.register(
            "waiting",
            "Signals that wait to be claimed, by route",
            self.waiting.clone(),
        );
    }

    /// The text that `/metrics` answers.
    pub fn render(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)
            .expect("writing to a string does not fail");
        text
    }

    /// A handler has started so many milliseconds late.
    pub fn started(&self, route: &str, lateness_ms: u64) {
        let route = Route {
            route: route.to_owned(),
        };
        self.lateness
            .get_or_create(&route)
            .observe(lateness_ms as f64 / 1000.0);
    }

    /// A run has ended.
    pub fn ran(&self, route: &str, outcome: &'static str, took: std::time::Duration) {
        let route = route.to_owned();
        self.run_duration
            .get_or_create(&Route {
                route: route.clone(),
            })
            .observe(took.as_secs_f64());
        self.runs
            .get_or_create(&RouteOutcome {
                route,
                outcome: outcome.to_owned(),
            })
            .inc();
    }

    /// A signal has come in.
    pub fn signalled(&self, source: &'static str) {
        self.signals
            .get_or_create(&BySource {
                source: source.to_owned(),
            })
            .inc();
    }

    /// So many signals led to no run.
    pub fn dropped(&self, reason: DropReason, count: u64) {
        self.signals_dropped
            .get_or_create(&ByReason {
                reason: reason.as_str().to_owned(),
            })
            .inc_by(count);
    }

    /// So many rows of a claim came to this.
    pub fn claimed(&self, result: &'static str, count: u64) {
        self.claims
            .get_or_create(&ByResult {
                result: result.to_owned(),
            })
            .inc_by(count);
    }

    /// The ledger has `count` tasks in this state; with `at_least`, counting stopped there.
    pub fn counted(&self, state: &str, count: u64, at_least: bool) {
        let label = ByState {
            state: state.to_owned(),
        };
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.tasks.get_or_create(&label).set(count);
        let at_least = i64::from(at_least);
        self.tasks_at_least.get_or_create(&label).set(at_least);
    }

    /// Another daemon counts the tasks: what was counted here before says nothing any more.
    pub fn counted_elsewhere(&self) {
        self.tasks.clear();
        self.tasks_at_least.clear();
    }

    /// How long the oldest overdue task has waited.
    pub fn overdue_for(&self, waited: std::time::Duration) {
        self.overdue_seconds_max.set(waited.as_secs_f64());
    }

    /// Whether the events of this node are heard now.
    pub fn subscription(&self, node: &str, up: bool) {
        self.subscription_up
            .get_or_create(&Node {
                node: node.to_owned(),
            })
            .set(i64::from(up));
    }

    /// A subscription was confirmed again after a loss.
    pub fn resubscribed(&self) {
        self.resubscriptions.inc();
    }

    /// Redis delivered a keyspace event.
    pub fn event_received(&self) {
        self.redis_events.inc();
    }

    /// How many keyspace events Redis has delivered.
    pub fn events_received(&self) -> u64 {
        self.redis_events.get()
    }

    /// The sweep handed in so many tasks that no signal had named.
    pub fn recovered(&self, reason: &'static str, count: u64) {
        self.sweep_recovered
            .get_or_create(&ByReason {
                reason: reason.to_owned(),
            })
            .inc_by(count);
    }

    /// How long ago a sentinel was written or heard.
    pub fn sentinel_age(&self, age: std::time::Duration) {
        self.sentinel_age.set(age.as_secs_f64());
    }

    /// A row was written on behalf of a key.
    pub fn adopted(&self, reason: &'static str) {
        self.adopted
            .get_or_create(&ByReason {
                reason: reason.to_owned(),
            })
            .inc();
    }

    /// An adopted task was called off.
    pub fn withdrawn(&self) {
        self.withdrawn.inc();
    }

    /// So many signals of a route wait to be claimed.
    pub fn waiting(&self, route: &str, count: usize) {
        let route = Route {
            route: route.to_owned(),
        };
        let gauge = self.waiting.get_or_create(&route);
        gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// A result was discarded.
    pub fn fenced(&self) {
        self.fenced.inc();
    }

    /// Occurrences of a series were left out.
    pub fn occurrences_skipped(&self, count: u64) {
        self.occurrences_skipped.inc_by(count);
    }

    /// A task was buried.
    pub fn buried(&self, route: &str, reason: Reason) {
        self.dead
            .get_or_create(&RouteReason {
                route: route.to_owned(),
                reason: reason.as_str().to_owned(),
            })
            .inc();
    }

    /// Retention has deleted so many rows of this state.
    pub fn pruned(&self, state: State, count: u64) {
        self.pruned
            .get_or_create(&ByState {
                state: state.as_str().to_owned(),
            })
            .inc_by(count);
    }

    /// Whether more finished rows of this state are old enough than retention lets go.
    pub fn prune_behind(&self, state: State, behind: bool) {
        self.prune_behind
            .get_or_create(&ByState {
                state: state.as_str().to_owned(),
            })
            .set(i64::from(behind));
    }

    /// So many daemons share the ledger.
    pub fn members(&self, count: usize) {
        self.members.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// So many pauses, holds and releases stand.
    pub fn pauses(&self, count: usize) {
        self.pauses.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// An audit was left to another daemon.
    pub fn audit_skipped(&self) {
        self.audits_skipped.inc();
    }

    /// An audit ran, and armed so many keys again.
    pub fn audited(&self, cause: &'static str, rearmed: u64) {
        self.audits
            .get_or_create(&ByReason {
                reason: cause.to_owned(),
            })
            .inc();
        self.rearmed.inc_by(rearmed);
    }
}
