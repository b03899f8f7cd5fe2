//! The first phase: operations and faults.

use std::sync::Arc;
use std::time::Duration;

use lapsed_core::ledger::memory::Dump;
use lapsed_core::ledger::rows::{Length, RowLedger as _};
use tokio::time::{Instant, sleep_until};

use super::World;
use crate::daemon::{Ground, Start};
use crate::judge::AllSeries;
use crate::keyed;
use crate::ledger::read_tables;
use crate::plan::{Action, FAULTS, Fault, FaultKind};
use crate::process::Process;

/// The faults of Redis have ended this long before the second phase.
const BEFORE_HEALING: Duration = Duration::from_millis(2);

/// What a fault does at its end.
enum AtEnd {
    Start(usize, Start),
    Thaw(Arc<Process>),
    Restore(Dump, Box<AllSeries>),
}

impl World {
    /// The first phase: operations and faults.
    pub(super) async fn disturb(&mut self) {
        let mut ends: Vec<(Instant, AtEnd)> = Vec::new();
        let steps = self.ground.plan.steps.clone();
        let mut steps = steps.into_iter().peekable();
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
                let step = steps.next().expect("it was seen");
                match step.action {
                    Action::Op(op) => self.send(op),
                    Action::Configure { series, rule } => self.configure(series, rule),
                    Action::Turn => unreachable!("only a move is turned round"),
                    Action::Fault(fault) => {
                        let end = self.begin(&fault).await;
                        ends.extend(end.map(|end| (next + fault.length, end)));
                    }
                }
                continue;
            }
            let place = ends.iter().position(|(at, _)| *at == next);
            let (_, end) = ends.swap_remove(place.expect("it was seen"));
            self.end(end).await;
        }
        sleep_until(over).await;
    }

    /// Begins a fault.
    async fn begin(&mut self, fault: &Fault) -> Option<AtEnd> {
        let Fault { kind, process, .. } = *fault;
        self.history().say(format!("fault: {fault:?}"));
        // Its leases, late statements and signals outlast it.
        let after = self.ground.plan.lease + Duration::from_secs(15);
        let lasts = match kind {
            FaultKind::ConfigChange => FAULTS,
            _ => fault.length,
        };
        self.unrest(lasts + after);
        let from = self.now();
        // A process notices at its next request that a connection has broken, and starts its own part of a rate.
        let rates_disturbed_for = match kind == FaultKind::Freeze || kind.is_of_redis() {
            true => FAULTS + after,
            false => lasts + after,
        };
        let until = from.plus(rates_disturbed_for);
        self.history()
            .judge(|judge| judge.rates_disturbed(kind, from, until));
        if let Some(producer) = process.checked_sub(self.daemons.len()) {
            match producer.checked_sub(self.producers.len()) {
                Some(worker) => self.workers[worker].begin(fault),
                None => self.producers[producer].0.begin(fault),
            }
            return None;
        }
        if kind == FaultKind::LedgerRestored {
            let series = self.history().judge(|judge| judge.dumped());
            return Some(AtEnd::Restore(self.ground.ledger.dump(), series));
        }
        if kind.is_of_redis() && kind != FaultKind::MembersFalseDeath {
            let daemon = self.daemons[process].as_ref()?;
            let (redis, link) = (self.ground.redis.as_ref()?, daemon.link.as_ref()?);
            // Redis is healed for good with the daemons.
            let left = (self.began + FAULTS).saturating_duration_since(Instant::now());
            let fault = Fault {
                length: fault.length.min(left.saturating_sub(BEFORE_HEALING)),
                ..fault.clone()
            };
            keyed::begin(redis, link, &fault, &self.ground.plan.names());
            self.history().struck(kind, daemon.process.actor);
            return None;
        }
        let restart = match kind {
            FaultKind::ConfigChange => Start {
                has_fewer_classes: true,
                ahead_ms: 0,
            },
            FaultKind::ClockAtStart => Start {
                has_fewer_classes: false,
                ahead_ms: [-7_000, -900, 900, 7_000][fault.percent as usize % 4],
            },
            _ => Start::default(),
        };
        match kind {
            FaultKind::Kill | FaultKind::ClockAtStart => {
                let daemon = self.take(process)?;
                self.history().struck(kind, daemon.process.actor);
                daemon.kill();
                Some(AtEnd::Start(process, restart))
            }
            FaultKind::Stop | FaultKind::ConfigChange => {
                let daemon = self.take(process)?;
                self.history().struck(kind, daemon.process.actor);
                tokio::spawn(daemon.stop());
                Some(AtEnd::Start(process, restart))
            }
            FaultKind::Freeze => {
                let daemon = self.daemons[process].as_ref()?;
                let process = Arc::clone(&daemon.process);
                process.freeze();
                self.history().struck(kind, process.actor);
                Some(AtEnd::Thaw(process))
            }
            _ => {
                let daemon = self.daemons[process].as_ref()?;
                daemon.process.begin(fault);
                None
            }
        }
    }

    async fn end(&mut self, end: AtEnd) {
        match end {
            AtEnd::Restore(dump, series) => self.restore(dump, *series).await,
            AtEnd::Start(number, how) => self.start(number, how),
            AtEnd::Thaw(process) => {
                self.history().struck(FaultKind::Freeze, process.actor);
                self.thaw(&process);
            }
        }
    }

    /// What it sent before it froze is carried out now.
    pub(super) fn thaw(&self, process: &Process) {
        let now = self.now();
        self.history()
            .judge(|judge| judge.thawed(process.actor, now));
        process.thaw();
    }

    /// An older state of the ledger comes back, while the processes go on.
    async fn restore(&self, dump: Dump, series: AllSeries) {
        let Ground {
            ledger, history, ..
        } = &*self.ground;
        ledger.restore(dump);
        let tables = ledger.read(Length::Short, read_tables).await;
        let tables = tables.expect("the ledger answers");
        history.restored(self.now(), tables, series);
    }
}
