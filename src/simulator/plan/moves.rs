//! Plans of moves: two ledgers, a daemon on each, and `lapsed move` between them, killed and started again.

use std::time::Duration;

use super::{Action, FAULTS, Fault, FaultKind, Op, Plan, Policy, TimerKind, Verb};
use crate::random::Rng;

/// The producer of the destination. The others use the source.
pub const AT_DESTINATION: usize = 2;

/// The faults of a move.
const KINDS: [FaultKind; 11] = [
    FaultKind::LedgerSlow,
    FaultKind::LedgerUnreachable,
    FaultKind::LedgerRefuses,
    FaultKind::LedgerLocked,
    FaultKind::LedgerAnswerLost,
    FaultKind::LedgerAppliesLate,
    FaultKind::LedgerHangs,
    FaultKind::ClockOff,
    FaultKind::Kill,
    FaultKind::Freeze,
    FaultKind::RunsLong,
];

impl Plan {
    /// Makes it the plan of a move. Its workers are movers.
    pub(super) fn draw_move(&mut self, rng: &mut Rng) {
        (self.is_move, self.timer, self.daemons) = (true, TimerKind::LedgerPoll, 2);
        (self.series, self.rate, self.prunes) = (Vec::new(), None, false);
        self.steps = Vec::new();
        self.workers = rng.within(1, 2) as usize;
        for key in &mut self.keys {
            let (_, rest) = key.split_once('@').expect("a task key");
            *key = format!("Job@{rest}");
        }
        for _ in 0..rng.within(10, 70) {
            let at = within_faults(rng);
            let key = rng.below(self.keys.len() as u64) as usize;
            // Producers share most tasks with none that uses the other ledger.
            let producer = match (rng.percent(10), key % 3) {
                (true, _) => rng.below(self.producers as u64) as usize,
                (false, AT_DESTINATION) => AT_DESTINATION,
                (false, _) => rng.below(AT_DESTINATION as u64) as usize,
            };
            let most = *rng.pick(&[0, 900, 3_000, 20_000, 60_000]);
            let delay = Duration::from_millis(rng.below(most + 1));
            let verb = match rng.below(10) {
                0..=4 => Verb::Create {
                    delay,
                    absolute: rng.percent(50),
                    policy: *rng.pick(&[Policy::Move, Policy::Move, Policy::Keep]),
                },
                5..=7 => Verb::Cancel,
                8 => Verb::Reschedule { delay },
                _ => Verb::RunNow,
            };
            let op = Op {
                producer,
                key,
                verb,
            };
            self.push(at, Action::Op(op));
        }
        for _ in 0..rng.within(0, 3) {
            self.push(within_faults(rng), Action::Turn);
        }
        for _ in 0..rng.within(0, 14) {
            let kind = *rng.pick(&KINDS);
            let movers = self.daemons + self.producers;
            // A mover is the process that has most to lose.
            let process = match kind {
                FaultKind::RunsLong => rng.below(2) as usize,
                _ if rng.percent(60) => movers + rng.below(self.workers as u64) as usize,
                FaultKind::Kill | FaultKind::Freeze => rng.below(2) as usize,
                _ => rng.below(movers as u64) as usize,
            };
            let fault = Fault {
                kind,
                process,
                length: Duration::from_millis(
                    *rng.pick(&[200, 1_000, 2_800, 7_000, 15_000, 31_000]),
                ),
                percent: *rng.pick(&[10, 50, 90, 100]),
            };
            self.push(within_faults(rng), Action::Fault(fault));
        }
        if self.workers > 1 && rng.percent(40) {
            self.draw_late_mover(rng);
        }
    }

    /// A mover is held up after it has frozen a task. The task is created again and frozen by another mover, which dies; then
    /// the first one goes on with what it knew.
    fn draw_late_mover(&mut self, rng: &mut Rng) {
        let millis = Duration::from_millis;
        let [late, other] = [0, 1].map(|mover| self.daemons + self.producers + mover);
        let at = millis(rng.below(50_000));
        let key = self.push_key("Job@ok@late");
        // Slow calls: the freezing of a process and its death fall between two of them.
        self.push_fault(at, FaultKind::LedgerSlow, late, millis(20_000));
        self.push_fault(at, FaultKind::LedgerSlow, other, millis(20_000));
        let create = |delay| Verb::Create {
            delay,
            absolute: false,
            policy: Policy::Move,
        };
        self.push_op(at, 0, key, create(millis(40_000)));
        let frozen_at = at + millis(rng.within(200, 6_000));
        let length = millis(rng.within(3_000, 9_000));
        self.push_fault(frozen_at, FaultKind::Freeze, late, length);
        let created_at = frozen_at + millis(rng.within(100, 3_000));
        self.push_op(created_at, 0, key, create(millis(30_000)));
        let killed_at = created_at + millis(rng.within(200, 6_000));
        self.push_fault(killed_at, FaultKind::Kill, other, millis(15_000));
    }
}

fn within_faults(rng: &mut Rng) -> Duration {
    Duration::from_millis(rng.below(FAULTS.as_millis() as u64))
}
