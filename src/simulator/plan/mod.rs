//! The plan of a run: everything that will be done and that will go wrong, drawn from the seed before the run begins.
//!
//! A plan is a list of steps, so that a failing one can be made smaller by leaving steps out.

mod fault;
mod given;
mod limits;
mod moves;
mod scenes;
mod series;

use std::fmt;
use std::time::Duration;

use lapsed_core::task::{IfDead, Rate, UnixMs};

pub use self::fault::{Fault, FaultKind};
pub use self::given::{Given, TimerKind};
pub use self::limits::RATED;
pub use self::moves::AT_DESTINATION;
pub use self::series::{Rule, Series};
use crate::random::Rng;

/// When the ledger's clock starts.
pub const START: UnixMs = UnixMs(1_800_000_000_000);

/// Length of the first phase, in which faults happen.
pub const FAULTS: Duration = Duration::from_secs(90);

/// How many tasks are created after the faults, to see that all is well.
pub const PROBES: usize = 4;

/// What a producer or an operator does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verb {
    Create {
        delay: Duration,
        absolute: bool,
        policy: Policy,
    },
    CreateMany {
        keys: Vec<usize>,
        delay: Duration,
    },
    /// A task of the group is created, or one that starts after them: as this says, if one of them is dead.
    CreateInGroup {
        delay: Duration,
        last: Option<IfDead>,
    },
    Cancel,
    /// All tasks of the class of the key are cancelled, over HTTP.
    CancelAll,
    Reschedule {
        delay: Duration,
    },
    RunNow,
    Redrive,
    /// All dead tasks of the class of the key are redriven, over HTTP.
    RedriveAll,
    Discard,
    /// The class of the key is paused, for this long or until it is resumed.
    Pause {
        lasts: Option<Duration>,
    },
    Resume,
    /// An old program sets `sts = 1`.
    SqlCancel,
    /// A program writes the row in a transaction of its own.
    SqlCreate {
        delay: Duration,
    },
    /// A program that knows only the first six columns writes the row, then the key. It counts in seconds.
    OldCreate {
        seconds: u32,
    },
    /// Such a program sets `sts = 1`, then deletes the key.
    OldDelete,
    /// A program arms the key: `PSETEX`.
    KeySet {
        delay: Duration,
    },
    /// `PEXPIRE`.
    KeyExpire {
        delay: Duration,
    },
    /// `DEL`.
    KeyDelete,
    /// `PERSIST`.
    KeyPersist,
    /// A program pushes an entry into a list of the wheel: `RPUSH`.
    WheelPush {
        delay: Duration,
    },
    /// A Redis client sends `SET .. PX` to the RESP server.
    RespSet {
        delay: Duration,
    },
    /// `PEXPIRE` there.
    RespExpire {
        delay: Duration,
    },
    /// `DEL` there.
    RespDelete,
    /// `GET` there.
    RespGet,
}

/// What to do if the task is pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    Move,
    Keep,
    Refuse,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    pub producer: usize,
    pub key: usize,
    pub verb: Verb,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Op(Op),
    Fault(Fault),
    /// The configuration of a series changes, and every daemon reads it again.
    Configure {
        series: usize,
        rule: Rule,
    },
    /// The tasks move in the other direction from now on.
    Turn,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub at: Duration,
    pub action: Action,
}

#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    /// Tasks move between two ledgers, each with a daemon. Workers are movers.
    pub is_move: bool,
    pub daemons: usize,
    pub producers: usize,
    pub workers: usize,
    pub lease: Duration,
    pub concurrency: usize,
    pub timer: TimerKind,
    /// Redis stays down when the faults end.
    pub redis_stays_down: bool,
    /// Names of the tasks.
    pub keys: Vec<String>,
    /// The recurring tasks of the configuration, at the start.
    pub series: Vec<Series>,
    /// How often the tasks of [`RATED`] may start.
    pub rate: Option<Rate>,
    /// Finished tasks are deleted after a minute.
    pub prunes: bool,
    /// They are moved to the archive.
    pub archives: bool,
    /// Lists of the wheel: the seconds of a round.
    pub slots: u32,
    /// How often daemons without Redis look for tasks that are due now.
    pub probe: Duration,
    /// The daemon that is healed for good.
    pub core: usize,
    /// Whether the others stay as they are when the faults end.
    pub others_stay_down: bool,
    pub steps: Vec<Step>,
}

/// How often each timer is drawn.
const TIMERS: [TimerKind; 5] = [
    TimerKind::LedgerPoll,
    TimerKind::KeyExpiry,
    TimerKind::KeyExpiry,
    TimerKind::SortedSet,
    TimerKind::Wheel,
];

/// How many seeds of a hundred move tasks between two ledgers.
const MOVES_PERCENT: u64 = 8;

/// Daemons run the tasks of the first two, workers those of the last.
pub const CLASSES: [&str; 3] = ["Job", "Mail", PULLED];

/// The class whose tasks wait in a pull queue.
pub const PULLED: &str = "Pull";

/// The class of the tasks of entries in the lists of a wheel.
pub const WHEEL: &str = "Wheel";

/// The queue from which workers take.
pub const QUEUE: &str = "work";

/// The tag of the tasks of a group.
pub const GROUP: &str = "group";

/// What the programs of each method do.
pub const METHODS: [&str; 6] = ["ok", "flaky", "slow", "hopeless", "snooze", "fatal"];

impl Plan {
    /// Draws all but what is given.
    pub fn draw(seed: u64, given: Given) -> Self {
        let mut rng = Rng::new(seed, "plan");
        let daemons = *rng.pick(&[1, 2, 2, 3, 3, 4]);
        // Without faults and with more keys, every promise is demanded all the time.
        let is_calm = rng.percent(20);
        let count = if is_calm { 24 } else { rng.within(3, 9) };
        let workers = rng.within(1, 3) as usize;
        let keys = (0..count).map(|n| {
            let method = rng.pick(&METHODS);
            let class = rng.pick(&["Job", "Job", "Mail", PULLED]);
            format!("{class}@{method}@{n}")
        });
        let mut intervals = Rng::new(seed, "intervals");
        let mut plan = Self {
            seed,
            is_move: false,
            daemons,
            producers: 3,
            workers,
            keys: keys.collect(),
            series: Vec::new(),
            rate: None,
            prunes: Rng::new(seed, "retention").percent(20),
            archives: Rng::new(seed, "archive").percent(50),
            slots: *intervals.pick(&[60, 60, 60, 3_600]),
            probe: Duration::from_millis(*intervals.pick(&[10, 50, 100, 200])),
            lease: Duration::from_secs(*rng.pick(&[3, 6, 10])),
            concurrency: *rng.pick(&[1, 2, 4, 16, 64]),
            core: usize::try_from(rng.below(daemons as u64)).expect("an index"),
            others_stay_down: rng.percent(50),
            timer: given.timer.unwrap_or(*rng.pick(&TIMERS)),
            redis_stays_down: rng.percent(40),
            steps: Vec::new(),
        };
        plan.draw_ops(&mut Rng::new(seed, "operations"));
        if !is_calm {
            plan.draw_faults(&mut Rng::new(seed, "faults"));
        }
        plan.draw_rate(&mut Rng::new(seed, "rate"));
        plan.draw_pushes(&mut Rng::new(seed, "pushes"));
        plan.draw_bulk(&mut Rng::new(seed, "bulk"));
        plan.draw_group(&mut Rng::new(seed, "group"));
        plan.draw_again(&mut Rng::new(seed, "again"));
        plan.draw_old_program(&mut Rng::new(seed, "old program"));
        if !is_calm {
            plan.draw_restore(&mut Rng::new(seed, "restore"));
            plan.draw_cancelled_run(&mut Rng::new(seed, "cancelled run"));
            plan.draw_leftover(&mut Rng::new(seed, "leftover"));
            plan.draw_lost_set(&mut Rng::new(seed, "lost set"));
            plan.draw_worker_fault(&mut Rng::new(seed, "workers"));
        }
        // Their keys have numbers behind those of the others.
        plan.draw_series(&mut Rng::new(seed, "series"));
        let mut moves = Rng::new(seed, "move");
        if given.timer.is_none() && (moves.percent(MOVES_PERCENT) || given.moves) {
            plan.draw_move(&mut moves);
        }
        plan.steps.sort_by_key(|step| step.at);
        plan
    }

    /// The names of all tasks: of the plan, of those that are created after the faults, of series.
    pub fn names(&self) -> Vec<String> {
        let probes = (0..PROBES).map(|number| format!("Job@ok@probe{number}"));
        let series = self.series.iter().map(|series| series.key.clone());
        self.keys
            .iter()
            .cloned()
            .chain(probes)
            .chain(series)
            .collect()
    }

    fn draw_ops(&mut self, rng: &mut Rng) {
        let count = rng.within(10, 70);
        for _ in 0..count {
            let at = Duration::from_millis(rng.below(FAULTS.as_millis() as u64));
            let key = rng.below(self.keys.len() as u64) as usize;
            let producer = rng.below(self.producers as u64) as usize;
            let verb = self.draw_verb(rng);
            let op = Op {
                producer,
                key,
                verb,
            };
            self.push(at, Action::Op(op));
            // What meets in the same moment is where races are.
            if rng.percent(30) {
                let verb = self.draw_verb(rng);
                let producer = rng.below(self.producers as u64) as usize;
                let after = Duration::from_millis(*rng.pick(&[0, 1, 2, 5, 40, 300]));
                let op = Op {
                    producer,
                    key,
                    verb,
                };
                self.push(at + after, Action::Op(op));
            }
        }
    }

    fn draw_verb(&self, rng: &mut Rng) -> Verb {
        let delay = |rng: &mut Rng| {
            let most = *rng.pick(&[0, 50, 900, 3_000, 20_000, 60_000]);
            Duration::from_millis(rng.below(most + 1))
        };
        let verbs = if self.timer.has_programs() { 40 } else { 28 };
        match rng.below(verbs) {
            0..=8 => Verb::Create {
                delay: delay(rng),
                absolute: rng.percent(50),
                policy: *rng.pick(&[Policy::Move, Policy::Move, Policy::Keep, Policy::Refuse]),
            },
            9 => Verb::CreateMany {
                keys: (0..self.keys.len()).filter(|_| rng.percent(60)).collect(),
                delay: delay(rng),
            },
            10 | 11 => Verb::Cancel,
            12 | 13 => Verb::Reschedule { delay: delay(rng) },
            14 => Verb::RunNow,
            15 => Verb::Redrive,
            16 => Verb::Discard,
            17 => Verb::Pause {
                lasts: rng
                    .percent(50)
                    .then(|| delay(rng).max(Duration::from_millis(1))),
            },
            18 => Verb::Resume,
            20..=23 => Verb::RespSet { delay: delay(rng) },
            24 => Verb::RespExpire { delay: delay(rng) },
            25 | 26 => Verb::RespDelete,
            27 => Verb::RespGet,
            28..=34 => Verb::KeySet { delay: delay(rng) },
            35 | 36 => Verb::KeyExpire { delay: delay(rng) },
            37 | 38 => Verb::KeyDelete,
            39 => Verb::KeyPersist,
            _ if rng.percent(50) => Verb::SqlCancel,
            _ => Verb::SqlCreate { delay: delay(rng) },
        }
    }

    fn draw_faults(&mut self, rng: &mut Rng) {
        let chance = rng.within(10, 60);
        let mut kinds: Vec<FaultKind> = FaultKind::ALL
            .into_iter()
            .filter(|kind| !kind.is_drawn_apart())
            .filter(|kind| !kind.is_of_redis() || self.timer.has_redis())
            .filter(|_| rng.percent(chance))
            .collect();
        for _ in 0..rng.within(1, 14) {
            if kinds.is_empty() {
                break;
            }
            let at = Duration::from_millis(rng.below(FAULTS.as_millis() as u64));
            let kind = *rng.pick(&kinds);
            // Two at a time would set the clock further than the judge allows for.
            if kind == FaultKind::RedisClockSteps {
                kinds.retain(|other| *other != kind);
            }
            let (first, processes) = match kind {
                kind if kind.is_of_workers() => (self.daemons + self.producers, self.workers),
                kind if kind.is_of_connections() => (0, self.daemons + self.producers),
                _ => (0, self.daemons),
            };
            let fault = Fault {
                kind,
                process: first + rng.below(processes as u64) as usize,
                length: Duration::from_millis(
                    *rng.pick(&[200, 1_000, 2_800, 7_000, 15_000, 31_000]),
                ),
                percent: *rng.pick(&[10, 50, 90, 100]),
            };
            self.push(at, Action::Fault(fault));
        }
    }

    fn push(&mut self, at: Duration, action: Action) {
        self.steps.push(Step { at, action });
    }

    /// Returns the plan without some of its steps.
    pub fn without(&self, left_out: &[usize]) -> Self {
        let steps = self.steps.iter().enumerate();
        let steps = steps.filter(|(place, _)| !left_out.contains(place));
        Self {
            steps: steps.map(|(_, step)| step.clone()).collect(),
            ..self.clone()
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} daemons on {:?} (core {}, others {}), {} workers, {} slots, lease {:?}, Redis {}, {}, {}",
            self.daemons,
            self.timer,
            self.core,
            if self.others_stay_down {
                "stay as they are"
            } else {
                "are healed"
            },
            self.workers,
            self.concurrency,
            self.lease,
            if self.redis_stays_down {
                "stays down"
            } else {
                "is healed"
            },
            self.rate.map_or("no rate".into(), |rate| format!(
                "{rate} in bursts of {}",
                rate.burst()
            )),
            match (self.prunes, self.archives) {
                (true, true) => "archives",
                (true, false) => "prunes",
                (false, _) => "keeps all",
            },
        )?;
        for (number, key) in self.keys.iter().enumerate() {
            writeln!(f, "key {number}: {key}")?;
        }
        let first = self.keys.len() + PROBES;
        for (number, series) in self.series.iter().enumerate() {
            writeln!(f, "key {}: {series}", first + number)?;
        }
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>7} ms  ", self.at.as_millis())?;
        match &self.action {
            Action::Op(Op {
                producer,
                key,
                verb,
            }) => write!(f, "producer {producer}: key {key}: {verb:?}"),
            Action::Configure { series, rule } => write!(f, "series {series}: {rule:?}"),
            Action::Turn => f.write_str("the move is turned round"),
            Action::Fault(fault) => write!(
                f,
                "process {}: {} for {} ms, {} %",
                fault.process,
                fault.kind.name(),
                fault.length.as_millis(),
                fault.percent
            ),
        }
    }
}
