//! What the parts of the timer share.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use super::absence::Absences;
use super::mark::Marks;
use super::requests::Requests;
use crate::alarms::SetEntries;
use crate::{Keyspace, RedisError};
use lapsed_core::clock::LedgerClock;
use lapsed_core::telemetry::Metrics;
use lapsed_core::telemetry::log::LogLimiter;
use lapsed_core::timer::due_signals::DueSignals;
use lapsed_core::timer::{AdoptionSink, Alarm};

/// State of the timer.
pub(super) struct State {
    pub(super) entries: SetEntries,
    pub(super) keyspace: Keyspace,
    pub(super) clock: LedgerClock,
    pub(super) metrics: Arc<Metrics>,
    /// Raises signals at their due times.
    pub(super) signals: DueSignals,
    pub(super) marks: Marks,
    pub(super) absences: Absences,
    /// Requests a look at the sets.
    pub(super) changed: Notify,
    requests: Mutex<Requests>,
    /// Ended tasks whose entries could not be removed.
    unsettled: Mutex<Vec<Alarm>>,
    /// The engine, while the timer runs.
    sink: Mutex<Option<Arc<dyn AdoptionSink>>>,
    /// Limits log lines.
    pub(super) warnings: LogLimiter,
}

impl State {
    pub(super) fn new(
        entries: SetEntries,
        keyspace: Keyspace,
        clock: LedgerClock,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            entries,
            keyspace,
            signals: DueSignals::new(clock.clone()),
            absences: Absences::default(),
            clock,
            metrics,
            marks: Marks::default(),
            changed: Notify::new(),
            requests: Mutex::default(),
            unsettled: Mutex::default(),
            sink: Mutex::default(),
            warnings: LogLimiter::every(Duration::from_secs(30)),
        }
    }

    /// The requests of programs that were read.
    pub(super) fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests
            .lock()
            .expect("nothing panics while holding the requests")
    }

    /// Ended tasks whose entries could not be removed.
    pub(super) fn unsettled(&self) -> MutexGuard<'_, Vec<Alarm>> {
        self.unsettled
            .lock()
            .expect("nothing panics while holding the ended tasks")
    }

    /// The engine; `None` if the timer does not run in this process.
    pub(super) fn sink(&self) -> Option<Arc<dyn AdoptionSink>> {
        self.held_sink().clone()
    }

    pub(super) fn set_sink(&self, sink: Option<Arc<dyn AdoptionSink>>) {
        *self.held_sink() = sink;
    }

    fn held_sink(&self) -> MutexGuard<'_, Option<Arc<dyn AdoptionSink>>> {
        self.sink
            .lock()
            .expect("nothing panics while holding the sink")
    }

    /// Raises signals for these alarms when they are due.
    pub(super) fn expect(&self, alarms: Vec<Alarm>) {
        self.signals.expect(alarms);
    }

    pub(super) fn node(&self) -> &str {
        self.keyspace.commands().endpoint().node()
    }

    /// Logs an error, at most twice a minute for each reason.
    pub(super) fn warn(&self, what: &'static str, error: &RedisError) {
        if let Some(held_back) = self.warnings.admit(error.reason()) {
            let remedy = error.remedy();
            let error = error as &dyn std::error::Error;
            tracing::warn!(redis.node = self.node(), error, remedy, held_back, "{what}");
        }
    }
}
