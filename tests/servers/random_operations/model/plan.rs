//! What is done in a seed, and when. Drawn against the model, so that each operation has an outcome that is promised.

use super::disturbances::{Disturbance, Disturbances, Event};
use super::task::{Op, Row, Task};

/// For how long operations begin, in milliseconds.
pub const LENGTH: i64 = 14_000;

const KEYS: u64 = 30;

/// Tries to find an operation that is possible at a moment.
const TRIES: usize = 6;

/// SplitMix64: the same numbers for a seed, for ever.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn from(&mut self, range: std::ops::Range<i64>) -> i64 {
        let width = (range.end - range.start).cast_unsigned();
        range.start + (self.next() % width).cast_signed()
    }

    fn of<T: Copy>(&mut self, among: &[T]) -> T {
        among[(self.next() % among.len() as u64) as usize]
    }
}

/// Of one key: its name, and what is done to it, when.
#[derive(Debug)]
pub struct Script {
    pub name: String,
    pub steps: Vec<(i64, Op)>,
}

#[derive(Debug)]
pub struct Plan {
    /// Daemons at the beginning.
    pub daemons: usize,
    pub disturbances: Disturbances,
    pub scripts: Vec<Script>,
}

/// Each seed has two of these, one after the other; the first go through all of them.
const EVENTS: [Event; 7] = [
    Event::KillAll,
    Event::RedisKilled,
    Event::Flush,
    Event::Join,
    Event::StopAll,
    Event::KillOne,
    Event::Pause,
];

impl Plan {
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let first = EVENTS[(seed % EVENTS.len() as u64) as usize];
        let others = EVENTS.map(|event| if event == first { Event::Join } else { event });
        let second = dice.of(&others);
        let mut all = Vec::new();
        for (event, from) in [
            (first, dice.from(3_000..4_500)),
            (second, dice.from(9_000..10_000)),
        ] {
            let lasts = match event {
                Event::Flush => 0,
                Event::Join | Event::KillOne => 2_000,
                Event::KillAll | Event::RedisKilled => dice.from(1_500..3_000),
                Event::StopAll => 4_000,
                Event::Pause => 5_500,
            };
            all.push(Disturbance {
                event,
                from,
                to: from + lasts,
                begun: true,
                over: true,
            });
        }
        let disturbances = Disturbances {
            all,
            keeps_keys: dice.of(&[true, false]),
        };
        let needs_two = [first, second].contains(&Event::KillOne);
        let daemons = match needs_two {
            true => 2,
            false => dice.of(&[1, 1, 2]),
        };
        let scripts = (0..KEYS)
            .map(|number| Script::drawn(number, &mut dice, &disturbances))
            .collect();
        Self {
            daemons,
            disturbances,
            scripts,
        }
    }
}

impl Script {
    fn drawn(number: u64, dice: &mut Dice, disturbances: &Disturbances) -> Self {
        let method = match number % 4 {
            0 => "pausable",
            _ => "record",
        };
        let mut task = Task::new();
        let mut steps = Vec::new();
        let mut at = dice.from(200..2_500);
        while at < LENGTH {
            if let Row::Pending { due, .. } = task.row
                && disturbances.lets_run(due, at)
            {
                task.row = Row::Done;
            }
            for _ in 0..TRIES {
                let op = op(dice, task.armings.is_empty());
                if let Some(effect) = task.effect(op, at, disturbances) {
                    task.apply(effect, op, at, at, None);
                    steps.push((at, op));
                    break;
                }
            }
            at += dice.from(700..2_200);
        }
        Self {
            name: format!("Model@{method}@{number}"),
            steps,
        }
    }
}

fn op(dice: &mut Dice, is_first: bool) -> Op {
    let in_ms = dice.from(3_100..8_000);
    let kind = match is_first {
        true => dice.from(0..7),
        false => dice.from(0..20),
    };
    match kind {
        0 | 1 => Op::Create(in_ms),
        2 => Op::Create(60_000 + in_ms),
        3..=6 => Op::Arm(in_ms),
        7..=9 => Op::Cancel,
        10 | 11 => Op::Reschedule(in_ms),
        12 => Op::RunNow,
        13..=15 => Op::Expire(in_ms),
        16 => Op::Persist,
        17 | 18 => Op::Delete,
        _ => Op::Set,
    }
}
