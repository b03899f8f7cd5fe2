//! What happened, in order, and what the judge says about it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use lapsed_core::ledger::row::Row;
use lapsed_core::task::UnixMs;
use tokio::time::Instant;

use crate::judge::{AllSeries, Judge};
use crate::plan::{FaultKind, Op, Series};
use crate::random::Rng;
use crate::record::{Actor, Answer, Call, End};

#[derive(Debug)]
pub struct History {
    started: Instant,
    prints: bool,
    /// Transactions that are forgotten, of a hundred: to see that the judge finds it.
    forgets: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    judge: Judge,
    /// The operation under way of each producer.
    ops: BTreeMap<usize, usize>,
    struck: BTreeMap<FaultKind, u64>,
    lines: u64,
    digest: u64,
    forgetful: Rng,
}

impl History {
    pub fn new(judge: Judge, prints: bool, forgets: u64) -> Arc<Self> {
        Arc::new(Self {
            started: Instant::now(),
            prints,
            forgets,
            state: Mutex::new(State {
                judge,
                ops: BTreeMap::new(),
                struck: BTreeMap::new(),
                lines: 0,
                digest: 0xcbf2_9ce4_8422_2325,
                forgetful: Rng::new(0, "forgets"),
            }),
        })
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

    /// A transaction has left these rows.
    pub fn wrote(&self, actor: Actor, now: UnixMs, rows: Vec<Row>) {
        let mut state = self.state();
        for line in state.judge.wrote(actor, now, rows) {
            self.trace(&mut state, &line);
        }
    }

    /// The ledger was replaced by a copy, which has these rows.
    pub fn restored(&self, now: UnixMs, rows: Vec<Row>, series: AllSeries) {
        let mut state = self.state();
        *state.struck.entry(FaultKind::LedgerRestored).or_default() += 1;
        self.trace(&mut state, &format!("restored: {} rows", rows.len()));
        state.judge.restored(now, rows, series);
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
        let number = state.judge.invoked(op.clone(), now);
        state.ops.insert(op.producer, number);
        let line = format!("op {number}: {:?} of key {}", op.verb, op.key);
        self.trace(&mut state, &line);
        number
    }

    pub fn answered(&self, number: usize, answer: Answer, now: UnixMs) {
        let mut state = self.state();
        let line = format!("op {number}: {answer:?}");
        self.trace(&mut state, &line);
        state.judge.answered(number, answer, now);
    }

    pub fn called(&self, actor: Actor, call: &Call, now: UnixMs) {
        let mut state = self.state();
        let line = format!("{actor:?} runs {} attempt {}", call.id, call.attempt);
        self.trace(&mut state, &line);
        state.judge.called(actor, call, now);
    }

    pub fn ended(&self, actor: Actor, call: &Call, end: End) {
        let mut state = self.state();
        let line = format!(
            "{actor:?} ends {} attempt {}: {end:?}",
            call.id, call.attempt
        );
        self.trace(&mut state, &line);
        state.judge.ended(actor, call, end);
    }

    /// The configuration has this series from now on.
    pub fn configured(&self, series: &Series) {
        let mut state = self.state();
        self.trace(&mut state, &format!("configured: {series}"));
        state.judge.configured(series);
    }

    /// A fault has struck.
    pub fn struck(&self, kind: FaultKind, actor: Actor) {
        let mut state = self.state();
        *state.struck.entry(kind).or_default() += 1;
        state.judge.disturbed(actor, kind);
    }

    /// Lets the judge look.
    pub fn judge<T>(&self, look: impl FnOnce(&mut Judge) -> T) -> T {
        look(&mut self.state().judge)
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
