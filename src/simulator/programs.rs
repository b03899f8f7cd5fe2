//! What the tasks do: programs that succeed, fail, take long, and tell the history.

use std::sync::Arc;
use std::time::Duration;

use lapsed::{HandlerError, Handlers, RetryPolicy, TaskContext};
use lapsed_core::clock::LedgerClock;
use lapsed_core::task::Rate;
use tokio::time::sleep;

use crate::attempts::RETRY;
use crate::history::History;
use crate::plan::{FaultKind, METHODS, RATED};
use crate::process::Process;
use crate::record::{Call, End};

/// What the program of a method does.
#[derive(Debug, Clone, Copy)]
pub struct Program<'a>(pub &'a str);

impl Program<'_> {
    pub fn takes(self, process: &Process) -> Duration {
        Duration::from_millis(match self.0 {
            "slow" => process.draw(500, 12_000),
            _ => process.draw(0, 60),
        })
    }

    pub fn ends(self, attempt: u16, process: &Process) -> End {
        match (self.0, attempt) {
            ("flaky", 1 | 2) | ("hopeless", _) => End::Failed,
            ("fatal", _) => End::FailedForGood,
            ("snooze", _) if process.draw(0, 1) == 0 => End::Snoozed,
            _ => End::Succeeded,
        }
    }
}

/// The handlers of a process, for the tasks of these classes.
pub fn handlers(
    classes: &[&'static str],
    rate: Option<Rate>,
    process: &Arc<Process>,
    history: &Arc<History>,
    clock: &LedgerClock,
) -> Handlers {
    let mut handlers = Handlers::new();
    for class in classes {
        for method in METHODS {
            let (process, history) = (Arc::clone(process), Arc::clone(history));
            let clock = clock.clone();
            let run = move |task: TaskContext, _: Vec<String>| {
                let (process, history) = (Arc::clone(&process), Arc::clone(&history));
                let clock = clock.clone();
                async move { run(method, &task, &process, &history, &clock).await }
            };
            let handler = handlers
                .on((*class, method), run)
                .retry(RetryPolicy::fixed(RETRY));
            if let Some(rate) = rate
                && (*class, method) == RATED
            {
                handler.rate(rate);
            }
        }
    }
    handlers
}

async fn run(
    method: &str,
    task: &TaskContext,
    process: &Process,
    history: &History,
    clock: &LedgerClock,
) -> Result<(), HandlerError> {
    process.runs().await;
    let id = task.id();
    let row = id.split('-').next().and_then(|row| row.parse().ok());
    let call = Call {
        row: row.unwrap_or_default(),
        id,
        due: task.due(),
        attempt: task.attempt(),
        payload: task.payload_json().map(str::to_owned),
        owner: None,
    };
    history.called(process.actor, &call, clock.now());
    let program = Program(method);
    sleep(program.takes(process)).await;
    if process.strikes(FaultKind::RunsLong) {
        sleep(Duration::from_millis(process.draw(3_000, 40_000))).await;
    }
    process.runs().await;
    let end = program.ends(call.attempt, process);
    let result = match end {
        End::Succeeded => task.keep_result(call.attempt),
        End::Failed => Err(HandlerError::new("not yet")),
        End::FailedForGood => Err(HandlerError::permanent("never")),
        End::Snoozed => {
            let after = Duration::from_millis(process.draw(10, 5_000));
            Err(HandlerError::snooze(after))
        }
    };
    history.ended(process.actor, &call, end);
    result
}
