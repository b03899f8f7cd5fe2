//! Processes that die at every step of a transaction: its effect is there once, and its task done, or neither.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use lapsed::task::{CatchUp, State};
use lapsed::{
    Due, Engine, HandlerError, Handlers, MysqlTask, MysqlTaskClient, Recurrence, Task, TaskClient,
    TaskContext, UnixMs,
};
use rustix::process::{Signal, getpid, kill_process};
use sqlx::Connection as _;
use tempfile::NamedTempFile;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::support::handlers::take_effect;
use crate::support::process::{Process, config_file, config_of_program};
use crate::support::rig::Rig;
use crate::support::tasks::{create, key};
use crate::support::wait::until;

/// Where a process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Before the first statement of its transaction.
    Before,
    /// Between its effect and what is said about the task.
    Between,
    /// All is said, the commit has not reached the server.
    CommitUnsent,
    /// The server has committed, its reply has not come.
    CommitUnanswered,
    /// The commit has succeeded, and nobody else has heard of it.
    After,
}

impl Step {
    const ALL: [Self; 5] = [
        Self::Before,
        Self::Between,
        Self::CommitUnsent,
        Self::CommitUnanswered,
        Self::After,
    ];

    fn is_committed(self) -> bool {
        matches!(self, Self::CommitUnanswered | Self::After)
    }

    /// What holds the wire at the commit, for the steps that are nobody's code.
    fn held(self) -> Option<Held> {
        match self {
            Self::CommitUnsent => Some(Held::Question),
            Self::CommitUnanswered => Some(Held::Answer),
            Self::Before | Self::Between | Self::After => None,
        }
    }

    /// Ends this process if it is to die here.
    async fn die_at(self, here: Self) {
        if self == here {
            kill_process(getpid(), Signal::KILL).unwrap();
            std::future::pending::<()>().await;
        }
    }
}

/// Names the [`Step`] to a program.
const STEP: &str = "E2E_STEP";

fn step_of_program() -> Step {
    let name = std::env::var(STEP).expect("started by another test");
    let named = |step: &Step| format!("{step:?}") == name;
    Step::ALL.into_iter().find(named).unwrap()
}

/// What a wire keeps back, from a commit on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Question,
    Answer,
}

/// A wire to the ledger that goes dead at the first commit, until the client has gone.
struct Gate {
    port: u16,
    held: watch::Receiver<bool>,
}

impl Gate {
    async fn to(target: u16, what: Held) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (holding, held) = watch::channel(false);
        let holding = Arc::new(holding);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(Self::forward(client, target, what, Arc::clone(&holding)));
            }
        });
        Self { port, held }
    }

    async fn forward(
        mut client: TcpStream,
        target: u16,
        what: Held,
        holding: Arc<watch::Sender<bool>>,
    ) {
        let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await else {
            return;
        };
        let (mut asked, mut answered) = ([0; 64 * 1024], [0; 64 * 1024]);
        loop {
            tokio::select! {
                read = client.read(&mut asked) => {
                    let Ok(count @ 1..) = read else { return };
                    let packet = &asked[..count];
                    let is_commit = packet.ends_with(b"\x03COMMIT");
                    if is_commit && what == Held::Answer {
                        server.write_all(packet).await.unwrap();
                        // It has acted when it answers.
                        let _ = server.read(&mut answered).await;
                    }
                    if is_commit {
                        holding.send_replace(true);
                        // The server hears that the client has gone, as it would without a wire.
                        while !matches!(client.read(&mut asked).await, Ok(0) | Err(_)) {}
                        return;
                    }
                    if server.write_all(packet).await.is_err() {
                        return;
                    }
                }
                read = server.read(&mut answered) => {
                    let Ok(count @ 1..) = read else { return };
                    if client.write_all(&answered[..count]).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    async fn has_held(&self) {
        until("a commit is held", async || *self.held.borrow()).await;
    }
}

/// A program that dies at this step, and has died.
async fn died(rig: &Rig, program: &str, step: Step) {
    let name = format!("{step:?}");
    let env = [(STEP, name.as_str())];
    let Some(held) = step.held() else {
        let mut process = Process::program(program, config_file(rig), &env);
        let status = process.until_ended().await;
        assert!(!status.success(), "{step:?}: {}", process.log());
        return;
    };
    let url = rig.config().ledger.url.expose().to_owned();
    let port = url.split([':', '/']).nth(4).unwrap();
    let gate = Gate::to(port.parse().unwrap(), held).await;
    let config = NamedTempFile::new().unwrap();
    // Readable to the gate: MySQL has TLS switched on.
    let through = url.replace(port, &gate.port.to_string()) + "?ssl-mode=disabled";
    let text = rig.config_text().replace(&url, &through);
    std::fs::write(config.path(), text).unwrap();
    let mut process = Process::program(program, config, &env);
    gate.has_held().await;
    process.kill();
}

/// How the transaction ends the run.
#[derive(Debug, Clone, Copy)]
enum Ending {
    /// `complete_in`.
    Complete,
    /// `again_in`, an hour later.
    Again,
    /// `complete_in` of a task that comes again each hour.
    Series,
}

/// `Job@complete` and `Job@again`; the first attempt dies at this step, if any.
fn endings(dies_at: Option<Step>) -> Handlers {
    let mut handlers = Handlers::new();
    for method in ["complete", "again"] {
        handlers.on(("Job", method), move |task: TaskContext, _: Vec<String>| {
            run(task, method, dies_at)
        });
    }
    handlers
}

async fn run(task: TaskContext, method: &str, dies_at: Option<Step>) -> Result<(), HandlerError> {
    let die_at = async |here: Step| {
        if let (Some(step), 1) = (dies_at, task.attempt()) {
            step.die_at(here).await;
        }
    };
    die_at(Step::Before).await;
    let mut tx = task.begin().await?;
    take_effect(&task, &mut tx).await?;
    die_at(Step::Between).await;
    match method {
        "again" => task.again_in(tx, Due::after_ms(3_600_000)?).await?,
        _ => task.complete_in(tx).await?,
    }
    die_at(Step::After).await;
    Ok(())
}

#[tokio::test]
#[ignore = "a program for the other tests to start"]
async fn worker() {
    let handlers = endings(Some(step_of_program()));
    let engine = Engine::new(config_of_program(), handlers).unwrap();
    engine.run_until(std::future::pending()).await.unwrap();
}

async fn a_killed_run_takes_effect_once(ending: Ending) {
    let rig = Rig::new("engine.lease = '1s'").await;
    let client = rig.client().await;
    for step in Step::ALL {
        let name = match ending {
            Ending::Again => format!("Job@again@{step:?}"),
            Ending::Complete | Ending::Series => format!("Job@complete@{step:?}"),
        };
        let began = rig.now_ms().await;
        let due = match ending {
            Ending::Complete | Ending::Again => create(&client, &name, 0).await.due(),
            Ending::Series => begin_hourly(&rig, &client, &name).await,
        };
        died(&rig, "end_to_end::crashes::worker", step).await;
        let effects = format!("SELECT COUNT(*) FROM effects WHERE name = '{name}'");
        let left = rig.number(effects.as_str()).await;
        assert_eq!(left, i64::from(step.is_committed()), "{step:?}");

        let second = rig.daemon_with(endings(None));
        until(format!("{name} is settled"), async || {
            let record = rig.record(&name).await;
            match ending {
                Ending::Complete => record.state == State::Done,
                Ending::Again => record.due.0 >= began + 3_600_000,
                Ending::Series => record.due.0 == due.0 + 3_600_000,
            }
        })
        .await;
        let record = rig.record(&name).await;
        if let Ending::Complete = ending {
            let attempts = if step.is_committed() { 1 } else { 2 };
            assert_eq!(record.attempt, attempts, "{step:?}");
        }
        assert_eq!(record.last_error, None, "{step:?}");
        // Stopped in good order: whatever it had begun has been written.
        second.stop().await;
        assert_eq!(rig.number(effects.as_str()).await, 1, "{step:?}");
        let ids = format!(
            "SELECT COUNT(*) FROM effects WHERE name = '{name}' AND task LIKE '%-{}'",
            due.0
        );
        assert_eq!(rig.number(ids).await, 1, "{step:?}: of this arming");
    }
}

/// Due a second ago for the first time.
async fn begin_hourly(rig: &Rig, client: &TaskClient, name: &str) -> UnixMs {
    let start = UnixMs(rig.now_ms().await + 500);
    let hourly = Recurrence::every(Duration::from_secs(3600)).unwrap();
    let hourly = hourly.starting(start).catch_up(CatchUp::All);
    let task = Task::from(key(name));
    client.create_recurring(task, hourly).await.unwrap().due()
}

#[tokio::test]
async fn a_worker_killed_at_any_step_of_complete_in_takes_effect_once() {
    a_killed_run_takes_effect_once(Ending::Complete).await;
}

#[tokio::test]
async fn a_worker_killed_at_any_step_of_again_in_takes_effect_once() {
    a_killed_run_takes_effect_once(Ending::Again).await;
}

#[tokio::test]
async fn a_worker_killed_at_any_step_of_a_series_takes_effect_once() {
    a_killed_run_takes_effect_once(Ending::Series).await;
}

/// Places an order, as a row of `effects`, and its task, in one transaction; dies at its step.
#[tokio::test]
#[ignore = "a program for the other tests to start"]
async fn producer() {
    let (config, step) = (config_of_program(), step_of_program());
    let tasks = MysqlTaskClient::connect(&config).await.unwrap();
    let mut connection = sqlx::MySqlConnection::connect(config.ledger.url.expose())
        .await
        .unwrap();
    step.die_at(Step::Before).await;
    let mut tx = connection.begin().await.unwrap();
    sqlx::query("INSERT INTO effects (name, task) VALUES (?, 'order')")
        .bind(format!("order {step:?}"))
        .execute(&mut *tx)
        .await
        .unwrap();
    let task = Task::new("Job", "complete", [format!("{step:?}")]).unwrap();
    let delay = Duration::from_millis(500);
    let unarmed = tasks.create_in(&mut tx, task, delay).await.unwrap();
    step.die_at(Step::Between).await;
    tx.commit().await.unwrap();
    step.die_at(Step::After).await;
    unarmed.arm().await;
}

#[tokio::test]
async fn a_producer_killed_at_any_step_leaves_an_order_with_its_task_or_neither() {
    let rig = Rig::new("").await;
    let daemon = rig.daemon_with(endings(None));
    daemon.hears_events().await;
    for step in Step::ALL {
        died(&rig, "end_to_end::crashes::producer", step).await;
        let name = format!("Job@complete@{step:?}");
        let orders = format!("SELECT COUNT(*) FROM effects WHERE name = 'order {step:?}'");
        let tasks = format!("SELECT COUNT(*) FROM tb_time_limit_task WHERE `key` = '{name}'");
        let expected = i64::from(step.is_committed());
        assert_eq!(rig.number(orders).await, expected, "{step:?}");
        assert_eq!(rig.number(tasks).await, expected, "{step:?}");
        if step.is_committed() {
            rig.until_state(&name, State::Done).await;
        }
    }
    daemon.stop().await;
    let effects = "SELECT COUNT(*) FROM effects WHERE name LIKE 'Job@%'";
    assert_eq!(rig.number(effects).await, 2);
}
