//! What happens in a certain order, on keys of its own, in the middle of everything else.

use std::time::Duration;

use lapsed_core::task::IfDead;

use super::{Action, FAULTS, Fault, FaultKind, Op, Plan, Policy, TimerKind, Verb};
use crate::random::Rng;

impl Plan {
    /// A dump of the ledger is restored. A program has armed a key since, and Redis has it.
    pub(super) fn draw_restore(&mut self, rng: &mut Rng) {
        if !rng.percent(30) {
            return;
        }
        let length = *rng.pick(&[1_000, 5_000, 15_000, 40_000]);
        let at = Duration::from_millis(rng.below(FAULTS.as_millis() as u64 - length));
        let length = Duration::from_millis(length);
        self.push_fault(at, FaultKind::LedgerRestored, self.core, length);
        if self.timer == TimerKind::KeyExpiry {
            // It falls due when all is well again.
            let (armed_at, due) = (
                at + length / 4,
                FAULTS + self.lease + Duration::from_secs(35),
            );
            let delay = due - armed_at;
            let key = self.push_key("Job@ok@armed");
            self.push_op(armed_at, 0, key, Verb::KeySet { delay });
        }
    }

    /// A worker disturbs the tasks that it takes in some part of the run.
    pub(super) fn draw_worker_fault(&mut self, rng: &mut Rng) {
        if !rng.percent(25) {
            return;
        }
        let kinds = FaultKind::ALL.into_iter();
        let kinds: Vec<FaultKind> = kinds.filter(|kind| kind.is_of_workers()).collect();
        let worker = rng.below(self.workers as u64) as usize;
        let process = self.daemons + self.producers + worker;
        let length = Duration::from_secs(40);
        let at = Duration::from_millis(rng.below((FAULTS - length).as_millis() as u64));
        self.push_fault(at, *rng.pick(&kinds), process, length);
    }

    /// The task of a program's key is run long before the key expires, and Redis does not hear of it: the row must stay as
    /// long as the key.
    pub(super) fn draw_leftover(&mut self, rng: &mut Rng) {
        if !self.prunes || self.timer != TimerKind::KeyExpiry || !rng.percent(60) {
            return;
        }
        let seconds = Duration::from_secs;
        let at = Duration::from_millis(rng.below(30_000));
        let key = self.push_key("Job@ok@left");
        let delay = seconds(130);
        self.push_op(at, 0, key, Verb::KeySet { delay });
        let operator = 1;
        let process = self.daemons + operator;
        self.push_fault(
            at + seconds(3),
            FaultKind::TimerRefuses,
            process,
            seconds(4),
        );
        self.push_op(at + seconds(4), operator, key, Verb::RunNow);
    }

    /// Redis loses the set of entries which daemons have read, and whose rows they are about to write.
    pub(super) fn draw_lost_set(&mut self, rng: &mut Rng) {
        if self.timer != TimerKind::SortedSet || !rng.percent(50) {
            return;
        }
        let millis = Duration::from_millis;
        let at = millis(rng.below(70_000));
        for number in 0..rng.within(1, 4) {
            let key = self.push_key(&format!("Job@ok@read{number}"));
            let delay = millis(rng.within(6_000, 30_000));
            self.push_op(at + millis(rng.below(300)), 0, key, Verb::KeySet { delay });
        }
        let flushed_at = at + millis(rng.within(100, 700));
        self.push_fault(flushed_at, FaultKind::RedisFlushed, 0, Duration::ZERO);
    }

    /// A run is cancelled, and every daemon dies: retention ends it.
    pub(super) fn draw_cancelled_run(&mut self, rng: &mut Rng) {
        if !self.prunes || !rng.percent(50) {
            return;
        }
        let at = Duration::from_millis(rng.below(60_000));
        let key = self.push_key("Job@slow@cancelled");
        let now = Verb::Create {
            delay: Duration::ZERO,
            absolute: false,
            policy: Policy::Move,
        };
        self.push_op(at, 0, key, now);
        let millis = Duration::from_millis;
        self.push_op(at + millis(1_000), 1, key, Verb::Cancel);
        for daemon in 0..self.daemons {
            self.push_fault(
                at + millis(1_100),
                FaultKind::Kill,
                daemon,
                millis(rng.within(200, 9_000)),
            );
        }
    }

    /// A task is cancelled, and created again for the same time.
    pub(super) fn draw_again(&mut self, rng: &mut Rng) {
        if !rng.percent(20) {
            return;
        }
        let millis = Duration::from_millis;
        let at = millis(rng.below(60_000));
        let delay = millis(rng.within(8_000, 40_000));
        let key = self.push_key("Job@ok@again");
        let create = |delay: Duration| Verb::Create {
            delay,
            absolute: true,
            policy: Policy::Move,
        };
        let pause = millis(rng.within(50, 1_500));
        self.push_op(at, 0, key, create(delay));
        self.push_op(at + pause, 0, key, Verb::Cancel);
        self.push_op(at + pause * 2, 0, key, create(delay - pause * 2));
    }

    /// Programs push entries into the lists of a wheel.
    pub(super) fn draw_pushes(&mut self, rng: &mut Rng) {
        if self.timer != TimerKind::Wheel {
            return;
        }
        for _ in 0..rng.within(0, 12) {
            let at = Duration::from_millis(rng.below(FAULTS.as_millis() as u64));
            // The clocks of daemons may be wrong: no entry is pushed shortly after a visit of its slot.
            let visited_in = Duration::from_millis(rng.within(1_500, 50_000));
            let rounds = u32::from(self.slots == 60 && rng.percent(30));
            let delay = visited_in + Duration::from_secs(self.slots.into()) * rounds;
            let producer = rng.below(self.producers as u64) as usize;
            self.push_op(at, producer, 0, Verb::WheelPush { delay });
        }
    }

    /// An operator cancels or redrives all tasks of a class.
    pub(super) fn draw_bulk(&mut self, rng: &mut Rng) {
        if !rng.percent(40) {
            return;
        }
        for _ in 0..rng.within(1, 3) {
            let at = Duration::from_millis(rng.below(FAULTS.as_millis() as u64));
            let producer = rng.below(self.producers as u64) as usize;
            let key = rng.below(self.keys.len() as u64) as usize;
            let verb = match rng.percent(50) {
                true => Verb::CancelAll,
                false => Verb::RedriveAll,
            };
            self.push_op(at, producer, key, verb);
        }
    }

    /// Producers create a group of tasks, and tasks that start after all of them.
    pub(super) fn draw_group(&mut self, rng: &mut Rng) {
        if !rng.percent(20) {
            return;
        }
        let last = rng.below(self.keys.len() as u64) as usize;
        // Retention deletes dead tasks, at a time that the judge does not know.
        let policies = match self.prunes {
            true => [IfDead::Ignore; 2],
            false => IfDead::ALL,
        };
        for _ in 0..rng.within(3, 12) {
            let at = Duration::from_millis(rng.below(FAULTS.as_millis() as u64));
            let producer = rng.below(self.producers as u64) as usize;
            let most = *rng.pick(&[100, 5_000, 30_000]);
            let delay = Duration::from_millis(rng.below(most));
            let (key, last) = match rng.percent(30) {
                true => (last, Some(*rng.pick(&policies))),
                false => (rng.below(self.keys.len() as u64) as usize, None),
            };
            self.push_op(at, producer, key, Verb::CreateInGroup { delay, last });
        }
    }

    /// A program that knows only the first six columns creates, deletes and creates a task again, in seconds.
    pub(super) fn draw_old_program(&mut self, rng: &mut Rng) {
        if self.timer != TimerKind::KeyExpiry || !rng.percent(40) {
            return;
        }
        for number in 0..rng.within(1, 3) {
            let method = rng.pick(&["ok", "ok", "flaky", "slow"]);
            let key = self.push_key(&format!("Job@{method}@old{number}"));
            // One program: it does one operation after the other.
            let producer = rng.below(self.producers as u64) as usize;
            let mut at = Duration::from_millis(rng.below(30_000));
            for _ in 0..rng.within(2, 9) {
                let seconds = u32::try_from(rng.within(1, 20)).expect("some seconds");
                let verb = match rng.percent(60) {
                    true => Verb::OldCreate { seconds },
                    false => Verb::OldDelete,
                };
                self.push_op(at, producer, key, verb.clone());
                // No daemon reads the events of what follows in time.
                if verb == Verb::OldDelete && rng.percent(50) {
                    let seconds = seconds.min(5);
                    let length = Duration::from_secs(u64::from(seconds) + rng.within(1, 8));
                    for daemon in 0..self.daemons {
                        self.push_fault(at, FaultKind::Freeze, daemon, length);
                    }
                    self.push_op(
                        at + Duration::from_millis(20),
                        producer,
                        key,
                        Verb::OldCreate { seconds },
                    );
                    at += length;
                }
                at += Duration::from_millis(*rng.pick(&[5, 150, 900, 2_500, 6_000, 15_000]));
                if at >= FAULTS {
                    break;
                }
            }
        }
    }

    pub(super) fn push_key(&mut self, name: &str) -> usize {
        self.keys.push(name.to_owned());
        self.keys.len() - 1
    }

    pub(super) fn push_op(&mut self, at: Duration, producer: usize, key: usize, verb: Verb) {
        let op = Op {
            producer,
            key,
            verb,
        };
        self.push(at, Action::Op(op));
    }

    pub(super) fn push_fault(
        &mut self,
        at: Duration,
        kind: FaultKind,
        process: usize,
        length: Duration,
    ) {
        let fault = Fault {
            kind,
            process,
            length,
            percent: 100,
        };
        self.push(at, Action::Fault(fault));
    }
}
