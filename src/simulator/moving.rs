//! A run of a move: two ledgers, a daemon on each, and movers that carry the tasks of one to the other.

use std::sync::Arc;
use std::time::Duration;

use lapsed::Config;
use lapsed::ledger::transfer::mover::Mover;
use lapsed_core::ledger::memory::MemoryLedger;
use lapsed_core::ledger::{Ledger as _, LedgerError};
use lapsed_core::task::UnixMs;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::daemon::{Daemon, Ground, Start};
use crate::history::History;
use crate::judge::{MOVED, MoveJudge};
use crate::keyed;
use crate::ledger::SimLedger;
use crate::outcome::Outcome;
use crate::plan::{AT_DESTINATION, Action, FAULTS, Fault, FaultKind, Op, Plan, START};
use crate::process::Process;
use crate::producer::Producer;
use crate::record::{Actor, Side};

/// How long after the faults everything may take at most to be settled.
const SETTLED_WITHIN: Duration = Duration::from_secs(400);

/// One of the two ledgers, and who uses it.
struct Place {
    ground: Ground,
    daemon: Option<Daemon>,
    starts: usize,
}

/// A run of `lapsed move`.
struct RunningMover {
    process: Arc<Process>,
    running: JoinHandle<()>,
}

enum AtEnd {
    StartDaemon(usize),
    StartMover(usize),
    Thaw(Arc<Process>),
}

pub struct MoveWorld {
    plan: Plan,
    places: [Place; 2],
    producers: Vec<(Arc<Process>, mpsc::UnboundedSender<Op>)>,
    movers: Vec<Option<RunningMover>>,
    mover_starts: usize,
    /// The ledger from which tasks move.
    from: Side,
    config: Config,
    began: Instant,
}

impl MoveWorld {
    pub fn new(plan: Plan, prints: bool, forgets: u64) -> Self {
        let config = keyed::config(&plan, &[]);
        let histories = History::of_move(MoveJudge::new(&plan), prints, forgets);
        let places = histories.map(|history| Place {
            ground: Ground {
                plan: plan.clone(),
                ledger: Arc::new(MemoryLedger::new(START)),
                members: Arc::default(),
                limiter: Arc::default(),
                history,
                redis: None,
                servers: Arc::default(),
            },
            daemon: None,
            starts: 0,
        });
        let producers = (0..plan.producers).map(|number| {
            let side = match number {
                AT_DESTINATION => Side::Destination,
                _ => Side::Source,
            };
            let ground = &places[side as usize].ground;
            let history = Arc::clone(&ground.history);
            let process = Process::new(Actor::Producer(number), plan.seed, Arc::clone(&history));
            let producer = Producer::new(
                Arc::clone(&process),
                Arc::clone(&ground.ledger),
                history,
                plan.names(),
                None,
                plan.timer,
                &config,
            );
            let (ops, receiver) = mpsc::unbounded_channel();
            tokio::spawn(producer.run(receiver));
            (process, ops)
        });
        Self {
            producers: producers.collect(),
            movers: (0..plan.workers).map(|_| None).collect(),
            mover_starts: 0,
            from: Side::Source,
            places,
            config,
            began: Instant::now(),
            plan,
        }
    }

    pub async fn run(mut self) -> Outcome {
        for side in Side::BOTH {
            self.start_daemon(side as usize);
        }
        for number in 0..self.movers.len() {
            self.start_mover(number);
        }
        self.disturb().await;
        self.heal();
        self.settle().await;
        self.finish()
    }

    fn history(&self) -> &Arc<History> {
        &self.places[0].ground.history
    }

    fn now(&self) -> UnixMs {
        self.places[0].ground.ledger.clock().now()
    }

    fn start_daemon(&mut self, number: usize) {
        let place = &mut self.places[number];
        if place.daemon.is_none() {
            let daemon = Daemon::start(
                &place.ground,
                number,
                place.starts,
                Start::default(),
                &self.config,
            );
            place.daemon = Some(daemon);
            place.starts += 1;
        }
    }

    fn start_mover(&mut self, number: usize) {
        if self.movers[number].is_some() {
            return;
        }
        let actor = Actor::Mover {
            number,
            start: self.mover_starts,
        };
        self.mover_starts += 1;
        let from = self.from;
        self.history().say(format!("{actor:?} moves from {from:?}"));
        let process = Process::new(actor, self.plan.seed, Arc::clone(self.history()));
        let connected = |side: Side| {
            let ground = &self.places[side as usize].ground;
            let ledger = Arc::clone(&ground.ledger);
            SimLedger::new(ledger, Arc::clone(&process), Arc::clone(&ground.history), 0)
        };
        let (source, destination) = (connected(from), connected(from.other()));
        let running = tokio::spawn(async move {
            loop {
                // An error ends the program, and its operator starts it again.
                let _ = move_all(&source, &destination).await;
                sleep(Duration::from_millis(500)).await;
            }
        });
        self.movers[number] = Some(RunningMover { process, running });
    }

    fn kill_mover(&mut self, number: usize) {
        if let Some(mover) = self.movers[number].take() {
            self.history().struck(FaultKind::Kill, mover.process.actor);
            mover.process.kill();
            mover.running.abort();
        }
    }

    /// The movers are killed where they are, and started in the other direction.
    fn turn(&mut self, from: Side) {
        self.from = from;
        for number in 0..self.movers.len() {
            self.kill_mover(number);
            self.start_mover(number);
        }
    }

    /// The first phase: operations and faults.
    async fn disturb(&mut self) {
        let mut ends: Vec<(Instant, AtEnd)> = Vec::new();
        let mut steps = self.plan.steps.clone().into_iter().peekable();
        let over = self.began + FAULTS;
        loop {
            let next_step = steps.peek().map(|step| self.began + step.at);
            let next_end = ends.iter().map(|(at, _)| *at).min();
            let next = next_step.into_iter().chain(next_end).min();
            let Some(next) = next.filter(|next| *next < over) else {
                break;
            };
            sleep_until(next).await;
            if next_step == Some(next) {
                match steps.next().expect("it was seen").action {
                    Action::Op(op) => drop(self.producers[op.producer].1.send(op)),
                    Action::Turn => self.turn(self.from.other()),
                    Action::Fault(fault) => {
                        let end = self.begin(&fault);
                        ends.extend(end.map(|end| (next + fault.length, end)));
                    }
                    Action::Configure { .. } => unreachable!("a move has no series"),
                }
                continue;
            }
            let place = ends.iter().position(|(at, _)| *at == next);
            let (_, end) = ends.swap_remove(place.expect("it was seen"));
            match end {
                AtEnd::StartDaemon(number) => self.start_daemon(number),
                AtEnd::StartMover(number) => self.start_mover(number),
                AtEnd::Thaw(process) => process.thaw(),
            }
        }
        sleep_until(over).await;
    }

    fn begin(&mut self, fault: &Fault) -> Option<AtEnd> {
        let Fault { kind, process, .. } = *fault;
        self.history().say(format!("fault: {fault:?}"));
        let daemons = self.places.len();
        let mover = process.checked_sub(daemons + self.producers.len());
        if kind == FaultKind::Kill {
            if let Some(number) = mover {
                self.kill_mover(number);
                return Some(AtEnd::StartMover(number));
            }
            let daemon = self.places[process].daemon.take()?;
            self.history().struck(kind, daemon.process.actor);
            daemon.kill();
            return Some(AtEnd::StartDaemon(process));
        }
        let process = match mover {
            Some(number) => &self.movers[number].as_ref()?.process,
            None if process < daemons => &self.places[process].daemon.as_ref()?.process,
            None => &self.producers[process - daemons].0,
        };
        if kind == FaultKind::Freeze {
            process.freeze();
            self.history().struck(kind, process.actor);
            return Some(AtEnd::Thaw(Arc::clone(process)));
        }
        process.begin(fault);
        None
    }

    /// Everything is well, for good, and the tasks move to the destination.
    fn heal(&mut self) {
        self.history().say("healed");
        self.producers
            .iter()
            .for_each(|(process, _)| process.heal());
        for side in Side::BOTH {
            if let Some(daemon) = self.places[side as usize].daemon.take() {
                self.history().struck(FaultKind::Kill, daemon.process.actor);
                daemon.kill();
            }
            self.start_daemon(side as usize);
        }
        self.turn(Side::Source);
    }

    async fn settle(&mut self) {
        // Late statements, leases of the dead.
        sleep(self.plan.lease + Duration::from_secs(20)).await;
        // As docs/moving.md says, the command is run once more: only at its start, it looks for what late statements left.
        self.turn(Side::Source);
        let settled_by = Instant::now() + SETTLED_WITHIN;
        while Instant::now() < settled_by {
            sleep(Duration::from_secs(1)).await;
            let now = self.now();
            let is_settled = |judge: &mut MoveJudge| judge.unfinished(now).is_empty();
            if self.history().judge_move(is_settled) {
                break;
            }
        }
        let now = self.now();
        self.history().judge_move(|judge| judge.is_over(now));
    }

    fn finish(self) -> Outcome {
        let (ran, history) = (self.began.elapsed(), self.history());
        let struck = history.struck_by_kind();
        let (lines, digest) = history.digest();
        history.judge_move(|judge| Outcome {
            violations: judge.violations.clone(),
            struck,
            guards: std::collections::BTreeSet::new(),
            claims: judge.claims_seen,
            writes: judge.writes_seen,
            looked: judge.looked,
            daemon_time: ran * 2,
            lines,
            digest,
        })
    }
}

/// As the command does, but without end: tasks are created all the time.
async fn move_all(source: &SimLedger, destination: &SimLedger) -> Result<(), LedgerError> {
    let mut mover = Mover::new(source, destination, MOVED.to_owned());
    mover.tidy().await?;
    loop {
        mover.pass(|_| std::ops::ControlFlow::Continue(())).await?;
        sleep(Duration::from_millis(300)).await;
    }
}
