//! An engine and a ledger in memory, on a clock that the test moves.

mod assertions;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;

pub use self::assertions::{DeadTask, ScheduledTask, TaskRuns};
use super::Ran;
use crate::client::TaskClient;
use crate::clock::LedgerClock;
use crate::config::Config;
use crate::engine::{Engine, Parts, Stepper};
use crate::handler::{Handlers, Router};
use crate::ledger::memory::MemoryLedger;
use crate::ledger::{Admin, DueScan, ListFilter, Scans, StateFilter, TaskRecord, Upcoming, Window};
use crate::limiter::MemoryLimiter;
use crate::membership::MemoryMembership;
use crate::task::{State, TaskKey, UnixMs};
use crate::telemetry::Metrics;
use crate::timer::Timer;
use crate::timer::ledger_poll::LedgerPoll;

/// The initial time of a [`TestKit`]: 2030-01-01T00:00:00Z.
pub const START: UnixMs = UnixMs(1_893_456_000_000);

/// Maximum number of runs at one moment. More are taken for a task that creates itself without end.
const RUNS_MAX: usize = 5_000;

/// Number of rows that one scan reads.
const PAGE: u32 = 1_000;

/// Runs tasks without servers, on a clock of its own.
///
/// The code of the engine claims, runs, judges and settles tasks on the ledger in memory, one at a time, in the order of
/// their due times, then of their creation. The clock does not move while a handler runs. A handler that sleeps takes real
/// time, and so does its time limit. Retries have no jitter. A task without a handler or a route is not run.
///
/// It needs a tokio runtime of any kind.
pub struct TestKit {
    clock: LedgerClock,
    ledger: Arc<MemoryLedger>,
    tasks: TaskClient,
    engine: Stepper,
    ran: Vec<Ran>,
}

impl TestKit {
    /// Creates a kit with these handlers and the default configuration.
    pub fn new<S>(handlers: Handlers<S>) -> Self {
        Self::with_config(&Config::default(), handlers)
    }

    /// Creates a kit with these handlers, and the routes, retry policies and limits of a configuration. No server is
    /// contacted. A route with `exec` starts its program.
    pub fn with_config<S>(config: &Config, handlers: Handlers<S>) -> Self {
        Self::build(config, |_| handlers)
    }

    /// As [`with_config`](Self::with_config), for handlers that create tasks: they are built with the client of the kit.
    ///
    /// ```
    /// use lapsed::testing::TestKit;
    /// use lapsed::{Config, HandlerError, Handlers, State, TaskClient, TaskType};
    /// use std::time::Duration;
    ///
    /// const REMIND: TaskType<(u64,)> = TaskType::new("Order", "remind");
    /// const CLOSE: TaskType<(u64,)> = TaskType::new("Order", "close");
    ///
    /// async fn remind(State(tasks): State<TaskClient>, order: u64) -> Result<(), HandlerError> {
    ///     tasks.create(CLOSE.args(order), Duration::from_secs(3600)).await?;
    ///     Ok(())
    /// }
    ///
    /// fn handlers(tasks: TaskClient) -> Handlers<TaskClient> {
    ///     let mut handlers = Handlers::with_state(tasks);
    ///     handlers.on(REMIND, remind);
    ///     handlers
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut kit = TestKit::build(&Config::default(), handlers);
    /// kit.tasks().create(REMIND.args(42), Duration::from_secs(60)).await?;
    /// kit.advance(Duration::from_secs(60)).await;
    /// kit.assert_scheduled(CLOSE.args(42)).due_in(Duration::from_secs(3600));
    /// # Ok(())
    /// # }
    /// ```
    pub fn build<S>(config: &Config, handlers: impl FnOnce(TaskClient) -> Handlers<S>) -> Self {
        let mut config = config.clone();
        config.retry.jitter = 0.0;
        let policies = config.routes.iter_mut();
        policies
            .filter_map(|route| route.retry.as_mut())
            .for_each(|retry| retry.jitter = 0.0);

        let clock = LedgerClock::frozen_at(START);
        let ledger = Arc::new(MemoryLedger::on(clock.clone()));
        let timer: Arc<dyn Timer> = Arc::new(LedgerPoll::new(clock.clone()));
        let tasks = TaskClient::with_parts(Arc::clone(&ledger) as _, Arc::clone(&timer) as _);
        let parts = Parts {
            ledger: Arc::clone(&ledger) as _,
            timer,
            membership: Arc::new(MemoryMembership::default()),
            limiter: Arc::new(MemoryLimiter::default()),
            router: Arc::new(Router::new(handlers(tasks.clone()), &config)),
            metrics: Arc::new(Metrics::default()),
            tracer: None,
        };
        let engine = Engine::with_parts(parts, &config).stepper();
        Self {
            clock,
            ledger,
            tasks,
            engine,
            ran: Vec::new(),
        }
    }

    /// Returns a client on the ledger of the kit, for the test and for the code under test.
    pub fn tasks(&self) -> TaskClient {
        self.tasks.clone()
    }

    /// Returns the ledger in memory, for administration: list, redrive, run now.
    pub fn ledger(&self) -> &MemoryLedger {
        &self.ledger
    }

    /// Returns the time of the kit.
    pub fn now(&self) -> UnixMs {
        self.clock.now()
    }

    /// Sets the clock without running tasks. Tasks that are due then run late, at the next [`advance`](Self::advance).
    pub fn set_now(&mut self, now: UnixMs) {
        self.clock.set(now);
    }

    /// Moves the clock forward, stops at each moment at which a task falls due, and runs the task. This includes retries
    /// and tasks that are created meanwhile. Returns the runs in their order. `Duration::ZERO` runs the tasks that are due
    /// now.
    ///
    /// # Panics
    /// After 5,000 runs at one moment: a task creates itself without delay.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future drops the current run, and its task stays claimed.
    pub async fn advance(&mut self, by: Duration) -> Vec<Ran> {
        self.advance_to(self.now().plus(by)).await
    }

    /// As [`advance`](Self::advance), to this moment. A moment in the past runs the tasks that are due now.
    ///
    /// # Panics
    /// As for [`advance`](Self::advance).
    ///
    /// # Cancel safety
    /// As for [`advance`](Self::advance).
    pub async fn advance_to(&mut self, moment: UnixMs) -> Vec<Ran> {
        let before = self.ran.len();
        let mut left = HashSet::new();
        let (mut at, mut runs) = (self.now(), 0);
        while let Some(ran) = self.run_next_until(moment, &mut left).await {
            runs = if ran.at == at { runs + 1 } else { 1 };
            at = ran.at;
            self.ran.push(ran);
            assert!(
                runs < RUNS_MAX,
                "{RUNS_MAX} runs at {at}: a task creates itself again without delay; the last ones were\n{}",
                lines(&self.ran[self.ran.len() - 3..])
            );
        }
        self.clock.set(self.now().max(moment));
        self.ran[before..].to_vec()
    }

    /// Moves the clock to the next due time, and runs one task. `None` if no task is scheduled that has a handler or a
    /// route.
    ///
    /// # Cancel safety
    /// As for [`advance`](Self::advance).
    pub async fn run_next(&mut self) -> Option<Ran> {
        let ran = self
            .run_next_until(UnixMs(i64::MAX), &mut HashSet::new())
            .await?;
        self.ran.push(ran.clone());
        Some(ran)
    }

    /// Returns all runs so far, in their order. Also tasks that were claimed but not run: see [`Ran::reached_handler`].
    pub fn ran(&self) -> &[Ran] {
        &self.ran
    }

    /// Returns a task; `None` if the key has no row.
    ///
    /// # Panics
    /// If the text is not a key.
    #[track_caller]
    pub fn task(&self, key: &str) -> Option<TaskRecord> {
        match TaskKey::parse(key) {
            Ok(key) => self.find(&key),
            Err(error) => panic!("{error}"),
        }
    }

    /// Returns the tasks that are pending or wait for a retry, by due time.
    pub fn scheduled(&self) -> Vec<TaskRecord> {
        let states = [State::Pending, State::Waiting].map(StateFilter::Is);
        let mut tasks = self.list(states.to_vec());
        tasks.sort_by_key(|task| task.due_at);
        tasks
    }

    /// Returns the tasks that are due now and have not run, by due time.
    pub fn due_tasks(&self) -> Vec<TaskRecord> {
        let mut tasks = self.scheduled();
        tasks.retain(|task| task.due_at <= self.now());
        tasks
    }

    /// Returns all tasks in these states, or in any state if there are none, in the order of their creation.
    fn list(&self, states: Vec<StateFilter>) -> Vec<TaskRecord> {
        let filter = ListFilter {
            states,
            limit: u32::MAX,
            ..ListFilter::default()
        };
        at_once(self.ledger.list(&filter)).tasks
    }

    fn find(&self, key: &TaskKey) -> Option<TaskRecord> {
        at_once(self.ledger.find(key))
    }

    /// Runs the next task, if it is due by `end`. Skips the tasks in `left`, and adds those that cannot be claimed to it.
    async fn run_next_until(
        &mut self,
        end: UnixMs,
        left: &mut HashSet<(u64, UnixMs)>,
    ) -> Option<Ran> {
        while let Some(next) = self.next_until(end, left) {
            let Upcoming {
                key,
                arming,
                due_at,
            } = next;
            let at = self.now().max(due_at);
            self.clock.set(at);
            let driven = self.engine.drive(key.clone(), arming).await;
            match driven.expect("the ledger in memory always answers") {
                Some(driven) => {
                    return Some(Ran {
                        id: driven.claim.lease.arming.to_string(),
                        at,
                        attempt: driven.claim.attempt.number,
                        route: driven.route.to_string(),
                        outcome: driven.outcome,
                        task: self.find(&key).expect("it has just run"),
                        key,
                    });
                }
                None => _ = left.insert((arming.row, due_at)),
            }
        }
        None
    }

    fn next_until(&self, end: UnixMs, left: &HashSet<(u64, UnixMs)>) -> Option<Upcoming> {
        let windows = [
            Window::OverdueOldest(Duration::ZERO),
            Window::Ahead(end.since(self.now())),
        ];
        windows.into_iter().find_map(|window| {
            let mut after = None;
            loop {
                let scan = DueScan {
                    window,
                    after,
                    limit: PAGE,
                };
                let page = at_once(self.ledger.scan(scan));
                let fits = |row: &Upcoming| {
                    self.engine.runs(&row.key) && !left.contains(&(row.arming.row, row.due_at))
                };
                if let Some(row) = page.rows.into_iter().find(fits) {
                    return Some(row);
                }
                after = Some(page.next?);
            }
        })
    }
}

impl std::fmt::Debug for TestKit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestKit")
            .field("now", &self.now())
            .field("ran", &self.ran.len())
            .finish_non_exhaustive()
    }
}

/// Returns the result of a future of the ledger in memory, which is always ready.
fn at_once<T, E: std::fmt::Debug>(answer: impl Future<Output = Result<T, E>>) -> T {
    let answer = answer.now_or_never();
    answer
        .expect("the ledger in memory is always ready")
        .expect("the ledger in memory does not fail")
}

fn lines<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let lines: Vec<String> = items
        .into_iter()
        .map(|item| format!("  {}", item.to_string()))
        .collect();
    match lines.is_empty() {
        true => "  nothing".to_owned(),
        false => lines.join("\n"),
    }
}
