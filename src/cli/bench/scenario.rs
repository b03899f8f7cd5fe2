//! The scenarios of `lapsed bench`.

use clap::Subcommand;

use super::adopt::Adopt;
use super::burst::Burst;
use super::cancel::Cancel;
use super::compare::Compare;
use super::daemons::Daemons;
use super::enqueue::Enqueue;
use super::environment::Environment;
use super::fairness::Fairness;
use super::http::Http;
use super::idle::Idle;
use super::kill::Kill;
use super::lateness::Lateness;
use super::options::{Common, arriving};
use super::pull::Pull;
use super::recovery::Recovery;
use super::report::Report;
use super::sizes::Sizes;
use super::throughput::Throughput;

#[derive(Subcommand)]
pub enum Scenario {
    /// Lateness at a steady rate: from due time to start
    Lateness(Lateness),
    /// Sustained throughput: whether a high rate is kept up
    Throughput(Throughput),
    /// Many tasks due in the same millisecond
    Burst(Burst),
    /// Rate at which tasks are created
    Enqueue(Enqueue),
    /// Time to drain an overdue backlog, and lateness of newly due tasks meanwhile
    Recovery(Recovery),
    /// Cost of an idle daemon
    Idle(Idle),
    /// One daemon compared with several
    Daemons(Daemons),
    /// Lateness of one class while many slow tasks of another are due
    Fairness(Fairness),
    /// Rate at which tasks are cancelled by tag
    Cancel(Cancel),
    /// Time to finish all tasks when the daemon is killed halfway and restarted
    Kill(Kill),
    /// Adoption of bare SETEX keys at a steady rate
    Adopt(Adopt),
    /// Tasks handed over to pull workers at the RESP server: lateness at a steady rate, then the rate at which tasks that are
    /// due are taken and completed
    Pull(Pull),
    /// The HTTP API and the dashboard: reading and creating single tasks, loading each page, and what clients that follow
    /// the events cost the engine
    Http(Http),
    /// Cost of lists, counts, sweeps and batches by the size of the table: time, and rows read
    ///
    /// Loads a table step by step. At each size, calls what the command line, the API, the dashboard and the daemon call, and
    /// counts the rows that the database reads for it: a call that scans reads more of a larger table. The last sizes are
    /// extrapolated to 100,000,000 rows.
    Sizes(Sizes),
    /// The same work with each timer: lateness, burst, memory and cost
    ///
    /// For each timer: writes the pending tasks and measures the memory that Redis needs for them; runs tasks at a steady
    /// rate; creates tasks that are due at once, from another process; runs a burst; and watches an idle daemon.
    Compare(Compare),
}

/// The table of scenarios: evaluates an expression with the name and the options of any of them.
macro_rules! with_options {
    (@table $scenario:expr, $name:pat_param, $options:ident, $body:expr, $($variant:ident $text:literal,)*) => {
        match $scenario {
            $(Scenario::$variant($options) => {
                let $name = $text;
                $body
            })*
        }
    };
    ($scenario:expr, |$name:pat_param, $options:ident| $body:expr) => {
        with_options!(
            @table $scenario, $name, $options, $body,
            Lateness "lateness",
            Throughput "throughput",
            Burst "burst",
            Enqueue "enqueue",
            Recovery "recovery",
            Idle "idle",
            Daemons "daemons",
            Fairness "fairness",
            Cancel "cancel",
            Kill "kill",
            Adopt "adopt",
            Pull "pull",
            Http "http",
            Sizes "sizes",
            Compare "compare",
        )
    };
}

impl Scenario {
    /// Options of every scenario.
    pub fn common(&self) -> &Common {
        with_options!(self, |_, options| &options.common)
    }

    /// Name and options of the scenario, for the report.
    pub fn describe(&self) -> (&'static str, serde_json::Result<serde_json::Value>) {
        with_options!(self, |name, options| (name, serde_json::to_value(options)))
    }

    pub async fn run(&self, environment: &mut Environment) -> anyhow::Result<Report> {
        with_options!(self, |_, options| options.run(environment).await)
    }

    /// Size of the private database's buffer pool in megabytes, if one was asked for.
    pub fn buffer_pool_mb(&self) -> Option<u64> {
        match self {
            Self::Sizes(it) => it.buffer_pool,
            _ => None,
        }
    }

    /// Number of pending tasks, and the maximum number of rows in all.
    pub fn workload(&self) -> (u32, u64) {
        let (pending, rows) = match self {
            Self::Lateness(it) => {
                let tasks = arriving(it.rate, it.warm_up + it.duration);
                (it.pending, it.nets.len() as u64 * tasks)
            }
            Self::Throughput(it) => (it.pending, arriving(it.rate, it.warm_up + it.duration)),
            Self::Burst(it) => (it.pending, u64::from(it.tasks)),
            // Bulk is the fastest of the three.
            Self::Enqueue(it) => (it.pending, arriving(100_000, it.duration)),
            Self::Recovery(it) => {
                let overdue = u64::from(it.blocked.blocked) + u64::from(it.tasks);
                (it.pending, overdue + arriving(it.rate, it.duration))
            }
            Self::Idle(it) => (it.pending, 0),
            Self::Daemons(it) => (it.pending, 2 * u64::from(it.pairs) * u64::from(it.tasks)),
            Self::Fairness(it) => {
                let others = u64::from(it.blocked.blocked) + u64::from(it.tasks);
                let rows = others + arriving(it.rate, it.warm_up + it.duration);
                (it.pending, rows)
            }
            Self::Cancel(it) => (it.pending, u64::from(it.tasks)),
            Self::Kill(it) => (it.pending, u64::from(it.tasks)),
            Self::Adopt(it) => (it.pending, arriving(it.rate, it.duration)),
            Self::Pull(it) => {
                let arrived = arriving(it.rate, it.warm_up + it.duration);
                (it.pending, u64::from(it.tasks) + arrived)
            }
            Self::Http(it) => {
                let created = arriving(20_000, it.duration);
                let rows =
                    u64::from(it.dead) + created + 2 * u64::from(it.pairs) * u64::from(it.tasks);
                (it.pending, rows)
            }
            // These two write their own.
            Self::Sizes(it) => (0, it.rows()),
            Self::Compare(it) => {
                let one = u64::from(it.pending) + u64::from(it.burst);
                let all = one + 3 * arriving(it.rate, it.duration);
                (0, it.timers().len() as u64 * all)
            }
        };
        let runs = u64::from(self.common().runs);
        (pending, u64::from(pending) + runs * rows)
    }
}
