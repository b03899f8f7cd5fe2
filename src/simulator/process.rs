//! A simulated process, as the rest of the world sees it: whether it is alive, gets time, and which faults it has.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::history::History;
use crate::plan::{Fault, FaultKind};
use crate::random::Rng;
use crate::record::Actor;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Running,
    Frozen,
    Dead,
}

/// One run of a process: what it calls goes through here.
#[derive(Debug)]
pub struct Process {
    pub actor: Actor,
    life: watch::Sender<Life>,
    faults: Mutex<BTreeMap<FaultKind, (Instant, u64)>>,
    rng: Mutex<Rng>,
    history: Arc<History>,
}

impl Process {
    pub fn new(actor: Actor, seed: u64, history: Arc<History>) -> Arc<Self> {
        Arc::new(Self {
            life: watch::Sender::new(Life::Running),
            faults: Mutex::default(),
            rng: Mutex::new(Rng::new(seed, &format!("{actor:?}"))),
            actor,
            history,
        })
    }

    /// Nothing that it does has an effect from now on.
    pub fn kill(&self) {
        self.life.send_replace(Life::Dead);
    }

    pub fn is_dead(&self) -> bool {
        *self.life.borrow() == Life::Dead
    }

    pub fn is_frozen(&self) -> bool {
        *self.life.borrow() == Life::Frozen
    }

    pub fn freeze(&self) {
        self.life.send_if_modified(|life| {
            let runs = *life == Life::Running;
            if runs {
                *life = Life::Frozen;
            }
            runs
        });
    }

    pub fn thaw(&self) {
        self.life.send_if_modified(|life| {
            let frozen = *life == Life::Frozen;
            if frozen {
                *life = Life::Running;
            }
            frozen
        });
    }

    /// Waits while the process is frozen, and for ever once it is dead.
    pub async fn runs(&self) {
        let mut life = self.life.subscribe();
        if life.wait_for(|life| *life == Life::Running).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    pub fn begin(&self, fault: &Fault) {
        let until = Instant::now() + fault.length;
        let mut faults = self.faults();
        let (end, percent) = faults.entry(fault.kind).or_insert((until, fault.percent));
        *end = until.max(*end);
        *percent = fault.percent.max(*percent);
    }

    pub fn heal(&self) {
        self.faults().clear();
    }

    /// True if this fault strikes now. Counts it.
    pub fn strikes(&self, kind: FaultKind) -> bool {
        let Some(percent) = self.has(kind) else {
            return false;
        };
        let strikes = self.rng().percent(percent);
        if strikes {
            self.history.struck(kind, self.actor);
        }
        strikes
    }

    /// Tells the judge, until the guard is dropped, that a statement of this process waits for an answer.
    pub fn waits(&self) -> Waits {
        self.history.judge_any(|judge| judge.waits(self.actor));
        Waits {
            history: Arc::clone(&self.history),
            actor: self.actor,
        }
    }

    /// Returns the chance of this fault, if the process has it now.
    pub fn has(&self, kind: FaultKind) -> Option<u64> {
        let (until, percent) = *self.faults().get(&kind)?;
        (Instant::now() < until).then_some(percent)
    }

    /// How far the ledger's clock is misread by [`FaultKind::ClockDrifts`]: up to 5 % of the time that is left of it.
    pub fn drift_ms(&self) -> i64 {
        let kind = FaultKind::ClockDrifts;
        let fault = self.faults().get(&kind).copied();
        let Some((until, percent)) = fault else {
            return 0;
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return 0;
        }
        self.history.struck(kind, self.actor);
        let of_hundred = (percent % 11).cast_signed() - 5;
        i64::try_from(left.as_millis()).unwrap_or(0) * of_hundred / 100
    }

    /// Waits until this fault has ended.
    pub async fn outlasts(&self, kind: FaultKind) {
        while self.has(kind).is_some() {
            sleep(Duration::from_millis(50)).await;
        }
    }

    pub fn draw(&self, from: u64, to: u64) -> u64 {
        self.rng().within(from, to)
    }

    fn faults(&self) -> MutexGuard<'_, BTreeMap<FaultKind, (Instant, u64)>> {
        self.faults.lock().expect("nothing panics while holding it")
    }

    fn rng(&self) -> MutexGuard<'_, Rng> {
        self.rng.lock().expect("nothing panics while holding it")
    }
}

/// A statement of a process waits for an answer that comes late or never. Others wait behind it, such as renewals.
#[must_use]
#[derive(Debug)]
pub struct Waits {
    history: Arc<History>,
    actor: Actor,
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.history
            .judge_any(|judge| judge.waits_no_more(self.actor));
    }
}
