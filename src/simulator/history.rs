//! What happened, in order, and what the judge says about it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use lapsed_core::task::UnixMs;
use tokio::time::Instant;

use crate::judge::{AllSeries, Judge, MoveJudge};
use crate::plan::{FaultKind, Op, Series};
use crate::random::Rng;
use crate::record::{Actor, Answer, Call, End, Side, Tables};

#[derive(Debug)]
pub struct History {
    /// Of a move: the ledger that its processes use.
    side: Side,
    started: Instant,
    prints: bool,
    /// Transactions that are forgotten, of a hundred: to see that the judge finds it.
    forgets: u64,
    state: Arc<Mutex<State>>,
}

/// Who judges.
#[derive(Debug)]
enum Court {
    Ledger(Box<Judge>),
    Move(Box<MoveJudge>),
}

#[derive(Debug)]
struct State {
    court: Court,
    /// The operation under way of each producer.
    ops: BTreeMap<usize, usize>,
    struck: BTreeMap<FaultKind, u64>,
    lines: u64,
    digest: u64,
    forgetful: Rng,
}

impl History {
    pub fn new(judge: Judge, prints: bool, forgets: u64) -> Arc<Self> {
        Arc::new(Self::of(Court::Ledger(Box::new(judge)), prints, forgets))
    }

    /// One history of two ledgers, as the processes of each note it.
    pub fn of_move(judge: MoveJudge, prints: bool, forgets: u64) -> [Arc<Self>; 2] {
        let source = Self::of(Court::Move(Box::new(judge)), prints, forgets);
        let destination = Self {
            side: Side::Destination,
            state: Arc::clone(&source.state),
            ..source
        };
        [Arc::new(source), Arc::new(destination)]
    }

    fn of(court: Court, prints: bool, forgets: u64) -> Self {
        Self {
            side: Side::Source,
            started: Instant::now(),
            prints,
            forgets,
            state: Arc::new(Mutex::new(State {
                court,
                ops: BTreeMap::new(),
                struck: BTreeMap::new(),
                lines: 0,
                digest: 0xcbf2_9ce4_8422_2325,
                forgetful: Rng::new(0, "forgets"),
            })),
        }
    }

    /// Adds a line to the trace.
    pub fn say(&self, line: impl AsRef<str>) {
        self.trace(&mut self.state(), line.as_ref());
    }

    fn trace(&self, state: &mut State, line: &str) {
        let at = self.started.elapsed().as_millis();
        let line = format!("{at:>7} ms  {line}");
        for byte in line.bytes() {
            state.digest = (state.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        state.lines += 1;
        if self.prints {
            println!("{line}");
        }
    }

    /// A transaction has left these tables.
    pub fn wrote(&self, actor: Actor, now: UnixMs, tables: Tables) {
        let mut state = self.state();
        let lines = match &mut state.court {
            Court::Ledger(judge) => judge.wrote(actor, now, tables),
            Court::Move(judge) => judge.wrote(self.side, actor, now, tables.rows),
        };
        if let (true, Court::Ledger(judge)) = (self.prints, &mut state.court) {
            judge
                .take_redis_changes()
                .iter()
                .for_each(|line| println!("{line}"));
        }
        for line in lines {
            self.trace(&mut state, &line);
        }
    }

    /// The ledger was replaced by a copy, which has these tables.
    pub fn restored(&self, now: UnixMs, tables: Tables, series: AllSeries) {
        let mut state = self.state();
        *state.struck.entry(FaultKind::LedgerRestored).or_default() += 1;
        self.trace(&mut state, &format!("restored: {} rows", tables.rows.len()));
        state.court.of_ledger().restored(now, tables, series);
    }

    /// True if the ledger forgets this transaction.
    pub fn forgets(&self) -> bool {
        self.forgets > 0 && self.state().forgetful.percent(self.forgets)
    }

    /// The actor of a change by this process.
    pub fn acting(&self, process: Actor) -> Actor {
        match process {
            Actor::Producer(number) => {
                let op = self.state().ops.get(&number).copied();
                op.map_or(process, Actor::Op)
            }
            _ => process,
        }
    }

    pub fn invoked(&self, op: &Op, now: UnixMs) -> usize {
        let mut state = self.state();
        let number = match &mut state.court {
            Court::Ledger(judge) => judge.invoked(op.clone(), now),
            Court::Move(judge) => judge.invoked(self.side, op.clone(), now),
        };
        state.ops.insert(op.producer, number);
        let line = format!("op {number}: {:?} of key {}", op.verb, op.key);
        self.trace(&mut state, &line);
        number
    }

    pub fn answered(&self, number: usize, answer: Answer, now: UnixMs) {
        let mut state = self.state();
        let line = format!("op {number}: {answer:?}");
        self.trace(&mut state, &line);
        match &mut state.court {
            Court::Ledger(judge) => judge.answered(number, answer, now),
            Court::Move(judge) => judge.answered(number, answer, now),
        }
    }

    pub fn called(&self, actor: Actor, call: &Call, now: UnixMs) {
        let mut state = self.state();
        let line = format!("{actor:?} runs {} attempt {}", call.id, call.attempt);
        self.trace(&mut state, &line);
        match &mut state.court {
            Court::Ledger(judge) => judge.called(actor, call, now),
            Court::Move(judge) => judge.called(self.side, call, now),
        }
    }

    pub fn ended(&self, actor: Actor, call: &Call, end: End) {
        let mut state = self.state();
        let line = format!(
            "{actor:?} ends {} attempt {}: {end:?}",
            call.id, call.attempt
        );
        self.trace(&mut state, &line);
        if let Court::Ledger(judge) = &mut state.court {
            judge.ended(actor, call, end);
        }
    }

    /// The configuration has this series from now on.
    pub fn configured(&self, series: &Series) {
        let mut state = self.state();
        self.trace(&mut state, &format!("configured: {series}"));
        state.court.of_ledger().configured(series);
    }

    /// A fault has struck.
    pub fn struck(&self, kind: FaultKind, actor: Actor) {
        *self.state().struck.entry(kind).or_default() += 1;
        self.judge_any(|judge| judge.disturbed(actor, kind));
    }

    /// Lets the judge look, if this is no move.
    pub fn judge_any(&self, look: impl FnOnce(&mut Judge)) {
        if let Court::Ledger(judge) = &mut self.state().court {
            look(judge);
        }
    }

    /// Lets the judge look.
    pub fn judge<T>(&self, look: impl FnOnce(&mut Judge) -> T) -> T {
        look(self.state().court.of_ledger())
    }

    /// Lets the judge of a move look.
    pub fn judge_move<T>(&self, look: impl FnOnce(&mut MoveJudge) -> T) -> T {
        match &mut self.state().court {
            Court::Ledger(_) => unreachable!("one ledger has another judge"),
            Court::Move(judge) => look(judge),
        }
    }

    /// Returns how often each fault has struck.
    pub fn struck_by_kind(&self) -> BTreeMap<FaultKind, u64> {
        self.state().struck.clone()
    }

    /// Returns the number of lines of the trace, and their digest.
    pub fn digest(&self) -> (u64, u64) {
        let state = self.state();
        (state.lines, state.digest)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while holding it")
    }
}

impl Court {
    fn of_ledger(&mut self) -> &mut Judge {
        match self {
            Self::Ledger(judge) => judge,
            Self::Move(_) => unreachable!("a move has another judge"),
        }
    }
}
