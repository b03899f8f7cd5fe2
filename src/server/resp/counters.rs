//! Counts commands and errors. Labels are the names in the table.

use std::sync::{Arc, OnceLock};

use prometheus_client::metrics::counter::Counter;

use super::command::Registry;
use super::reply::Reply;
use lapsed_core::telemetry::Metrics;

/// Counters of commands, by place in the table. Looked up once: a command costs an addition.
pub struct Counters {
    metrics: Arc<Metrics>,
    names: Vec<&'static str>,
    commands: Vec<OnceLock<Counter>>,
    errors: Vec<OnceLock<Counter>>,
}

impl Counters {
    /// The place of commands that are not in the table.
    pub const UNKNOWN: usize = usize::MAX;

    /// Creates counters for the commands of this table.
    pub fn new(metrics: Arc<Metrics>, registry: &Registry) -> Self {
        let mut names: Vec<&'static str> = registry.all().iter().map(|it| it.name).collect();
        names.push("unknown");
        Self {
            metrics,
            commands: names.iter().map(|_| OnceLock::new()).collect(),
            errors: names.iter().map(|_| OnceLock::new()).collect(),
            names,
        }
    }

    /// Counts a command with its reply.
    pub fn count(&self, index: usize, reply: &Reply) {
        self.called(index);
        if reply.is_error() {
            let index = index.min(self.names.len() - 1);
            let counter = || self.metrics.resp_errors(self.names[index]);
            self.errors[index].get_or_init(counter).inc();
        }
    }

    /// Counts a command that is not answered yet.
    pub fn called(&self, index: usize) {
        let index = index.min(self.names.len() - 1);
        let counter = || self.metrics.resp_commands(self.names[index]);
        self.commands[index].get_or_init(counter).inc();
    }
}
