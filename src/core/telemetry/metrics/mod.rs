//! Metrics. Labels come from small fixed sets (routes, outcomes, sources, reasons), never from keys or ids.

mod families;

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

use self::families::{
    ByCommand, ByReason, ByResult, ByServer, BySource, ByState, Families, Node, Route,
    RouteOutcome, RouteQueue, RouteReason,
};
use super::drop_reason::DropReason;
use super::history::{PerSource, Recorder};
use super::marks::{Mark, TaskMarks};
use crate::task::{Reason, State};

/// The metrics of a daemon. Recording never blocks and never fails.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    families: Families,
    history: Recorder,
    tasks_changed: Mark,
    stats_changed: Mark,
    members_changed: Mark,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("lapsed");
        let families = Families::registered(&mut registry);
        let starts = |source| families.starts.get_or_create(&BySource::of(source)).clone();
        let history = Recorder::new(PerSource {
            event: starts("event"),
            nudge: starts("nudge"),
            sweep: starts("sweep"),
            direct: starts("direct"),
        });
        Self {
            registry,
            families,
            history,
            tasks_changed: Mark::default(),
            stats_changed: Mark::default(),
            members_changed: Mark::default(),
        }
    }
}

impl Metrics {
    /// Returns the metrics in the text format of Prometheus.
    pub fn render(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)
            .expect("writing to a string does not fail");
        text
    }

    /// The counters of the history of the last 24 h.
    pub fn history(&self) -> &Recorder {
        &self.history
    }

    /// Counters of claimed tasks, by the source of their signal.
    pub fn starts(&self) -> &PerSource<Counter> {
        self.history.started()
    }

    /// Returns numbers that change whenever what they stand for may have changed.
    pub fn marks(&self) -> TaskMarks {
        TaskMarks {
            tasks: self.tasks_changed.get(),
            stats: self.stats_changed.get(),
            pauses: self.families.pauses.get(),
            members: self.members_changed.get(),
        }
    }

    /// Counts the start of a handler, or of a worker that has taken a task from a pull queue.
    pub fn started(&self, route: &str, queue: Option<&str>, lateness_ms: u64) {
        let labels = [Some(("route", route)), queue.map(|queue| ("queue", queue))];
        let labels = labels.into_iter().flatten();
        let labels: RouteQueue = labels
            .map(|(name, value)| (name, value.to_owned()))
            .collect();
        let lateness = self.families.lateness_seconds.get_or_create(&labels);
        lateness.observe(lateness_ms as f64 / 1000.0);
        self.history.late(lateness_ms, queue.is_some());
        self.tasks_changed.touch();
    }

    /// Counts a run that has ended.
    pub fn ran(&self, route: &str, outcome: &'static str, took: Duration) {
        let duration = self
            .families
            .run_duration_seconds
            .get_or_create(&Route::of(route));
        duration.observe(took.as_secs_f64());
        let labels = RouteOutcome::of(route, outcome);
        self.families.runs.get_or_create(&labels).inc();
        self.history.ran(outcome);
        self.tasks_changed.touch();
    }

    /// Counts a signal.
    pub fn signalled(&self, source: &'static str) {
        self.families
            .signals
            .get_or_create(&BySource::of(source))
            .inc();
    }

    /// Counts signals that led to no run.
    pub fn dropped(&self, reason: DropReason, count: u64) {
        let labels = ByReason::of(reason.as_str());
        self.families
            .signals_dropped
            .get_or_create(&labels)
            .inc_by(count);
    }

    /// Counts rows of a claim by result.
    pub fn claimed(&self, result: &'static str, count: u64) {
        let labels = ByResult::of(result);
        self.families.claims.get_or_create(&labels).inc_by(count);
    }

    /// Sets the number of tasks in this state; with `at_least`, counting stopped there.
    pub fn counted(&self, state: &str, count: u64, at_least: bool) {
        self.history.counted(state, count, at_least);
        let labels = ByState::of(state);
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        if self.families.tasks.get_or_create(&labels).set(count) != count {
            self.tasks_changed.touch();
        }
        let at_least = i64::from(at_least);
        self.families
            .tasks_at_least
            .get_or_create(&labels)
            .set(at_least);
    }

    /// Forgets the numbers of tasks: another daemon counts them now.
    pub fn counted_elsewhere(&self) {
        self.history.counted_elsewhere();
        self.families.tasks.clear();
        self.families.tasks_at_least.clear();
    }

    /// Sets how long the oldest overdue task has waited.
    pub fn overdue_for(&self, waited: Duration) {
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        self.history.overdue_for(waited_ms);
        let waited = waited.as_secs_f64();
        if self.families.overdue_seconds_max.set(waited) != waited {
            self.stats_changed.touch();
        }
    }

    /// Sets how long the oldest overdue task that is not paused or held has waited.
    pub fn overdue_unpaused_for(&self, waited: Duration) {
        let gauge = &self.families.overdue_unpaused_seconds_max;
        gauge.set(waited.as_secs_f64());
    }

    /// How long the oldest overdue task that is not paused or held has waited, as it was last looked for.
    pub fn overdue_unpaused(&self) -> Duration {
        Duration::from_secs_f64(self.families.overdue_unpaused_seconds_max.get())
    }

    /// Sets whether the events of this node arrive.
    pub fn subscription(&self, node: &str, up: bool) {
        let up = i64::from(up);
        self.families
            .subscription_up
            .get_or_create(&Node::of(node))
            .set(up);
    }

    /// Counts a subscription that was confirmed again after a loss.
    pub fn resubscribed(&self) {
        self.families.resubscriptions.inc();
    }

    /// Counts a keyspace event from Redis.
    pub fn event_received(&self) {
        self.families.redis_events.inc();
    }

    /// Number of keyspace events from Redis so far.
    pub fn events_received(&self) -> u64 {
        self.families.redis_events.get()
    }

    /// Counts tasks that only the sweep found.
    pub fn recovered(&self, reason: &'static str, count: u64) {
        let labels = ByReason::of(reason);
        self.families
            .sweep_recovered
            .get_or_create(&labels)
            .inc_by(count);
    }

    /// Sets whether the ledger answers.
    pub fn ledger(&self, up: bool) {
        self.families.ledger_up.set(i64::from(up));
    }

    /// Sets the time since a sentinel was written or heard, and the time between the expiries of two.
    pub fn sentinel_age(&self, age: Duration, interval: Duration) {
        let families = &self.families;
        families.sentinel_age_seconds.set(age.as_secs_f64());
        families
            .sentinel_interval_seconds
            .set(interval.as_secs_f64());
    }

    /// The time since a sentinel was written or heard, and the time between the expiries of two.
    pub fn sentinel(&self) -> (Duration, Duration) {
        let families = &self.families;
        let [age, interval] = [
            families.sentinel_age_seconds.get(),
            families.sentinel_interval_seconds.get(),
        ];
        (
            Duration::from_secs_f64(age),
            Duration::from_secs_f64(interval),
        )
    }

    /// Counts a row written for a key.
    pub fn adopted(&self, reason: &'static str) {
        self.families
            .adopted
            .get_or_create(&ByReason::of(reason))
            .inc();
    }

    /// Counts an adopted task that was cancelled because its key was deleted.
    pub fn cancelled_by_key(&self) {
        self.families.withdrawn.inc();
    }

    /// Counts adopted tasks that were cancelled at once with many others.
    pub fn cancelled_by_key_at_once(&self, count: u64) {
        self.families.withdrawn_at_once.inc_by(count);
    }

    /// Returns the number of adopted tasks that were cancelled at once with many others.
    pub fn many_cancelled_by_key(&self) -> u64 {
        self.families.withdrawn_at_once.get()
    }

    /// Sets the number of signals of a route that wait to be claimed.
    pub fn waiting(&self, route: &str, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.families
            .waiting
            .get_or_create(&Route::of(route))
            .set(count);
    }

    /// Counts a discarded result.
    pub fn fenced(&self) {
        self.families.fenced.inc();
    }

    /// Counts missed occurrences of a recurring task.
    pub fn occurrences_skipped(&self, count: u64) {
        self.families.occurrences_skipped.inc_by(count);
    }

    /// Counts a dead task.
    pub fn buried(&self, route: &str, reason: Reason) {
        let labels = RouteReason::of(route, reason.as_str());
        self.families.dead.get_or_create(&labels).inc();
        self.history.buried();
    }

    /// Counts rows of this state that retention has deleted.
    pub fn pruned(&self, state: State, count: u64) {
        let labels = ByState::of(state.as_str());
        self.families.pruned.get_or_create(&labels).inc_by(count);
    }

    /// Sets whether more rows of this state are past their retention than its rate allows to prune.
    pub fn prune_behind(&self, state: State, behind: bool) {
        let labels = ByState::of(state.as_str());
        let behind = i64::from(behind);
        self.families
            .prune_behind
            .get_or_create(&labels)
            .set(behind);
    }

    /// True if retention is behind in any state.
    pub fn is_prune_behind(&self) -> bool {
        let states = [State::Done, State::Dead, State::Cancelled];
        states.iter().any(|state| {
            let labels = ByState::of(state.as_str());
            let gauge = self.families.prune_behind.get(&labels);
            gauge.is_some_and(|gauge| gauge.get() > 0)
        })
    }

    /// Number of keys that audits have armed again because the timer had lost them.
    pub fn keys_rearmed(&self) -> u64 {
        self.families.rearmed.get()
    }

    /// Sets the number of daemons that share the ledger.
    pub fn members(&self, count: usize) {
        self.families
            .members
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Counts other daemons that ended without saying so.
    pub fn members_lost(&self, count: usize) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.families.members_vanished.inc_by(count);
    }

    /// Notes that the daemons, what one of them says of itself, or the workers of a pull queue have changed.
    pub fn members_changed(&self) {
        self.members_changed.touch();
    }

    /// Sets the number of pauses, holds and releases.
    pub fn pauses(&self, count: usize) {
        self.families
            .pauses
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Counts an audit that was left to another daemon.
    pub fn audit_skipped(&self) {
        self.families.audits_skipped.inc();
    }

    /// Counts an audit, and the keys that it armed again.
    pub fn audited(&self, cause: &'static str, rearmed: u64) {
        self.families
            .audits
            .get_or_create(&ByReason::of(cause))
            .inc();
        self.families.rearmed.inc_by(rearmed);
    }

    /// Sets the number of open connections of the RESP server.
    pub fn resp_connections(&self, count: u64) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.families.resp_connections.set(count);
    }

    /// Counts a connection that the RESP server refused.
    pub fn resp_refused(&self, reason: &'static str) {
        self.families
            .resp_refused
            .get_or_create(&ByReason::of(reason))
            .inc();
    }

    /// Counts a wrong token or password at a server.
    pub fn login_failed(&self, server: &'static str) {
        self.families
            .logins_failed
            .get_or_create(&ByServer::of(server))
            .inc();
    }

    /// Returns the counter of this command of Redis clients.
    pub fn resp_commands(&self, command: &'static str) -> Counter {
        let labels = ByCommand::of(command);
        self.families.resp_commands.get_or_create(&labels).clone()
    }

    /// Returns the counter of errors that this command was answered with.
    pub fn resp_errors(&self, command: &'static str) -> Counter {
        let labels = ByCommand::of(command);
        self.families.resp_errors.get_or_create(&labels).clone()
    }
}
