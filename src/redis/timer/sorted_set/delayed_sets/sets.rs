//! The sets, and the commands on the jobs of tasks.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::super::absence::Absences;
use super::super::requests::Requests;
use crate::alarms::{OWN_FROM, Score};
use crate::{Commands, DelayedSet, RedisError, RegisterPage, ScoredSets};
use lapsed_core::clock::LedgerClock;
use lapsed_core::config::{DelayedSetConfig, ScoreUnit};
use lapsed_core::task::{TaskKey, UnixMs, row_due};
use lapsed_core::telemetry::Metrics;
use lapsed_core::telemetry::log::LogLimiter;
use lapsed_core::timer::due_signals::DueSignals;
use lapsed_core::timer::{
    Acknowledgement, Alarm, ArmMode, Armed, ArmedPage, EngineSink, Remaining,
};

/// Tasks due within this are expected at once: the look-ahead may find them too late.
const SOON: Duration = Duration::from_secs(2);

/// A note of a job that left its set is kept for this long.
const KEPT: Duration = Duration::from_secs(60);

/// What the parts of this timer share.
pub(super) struct DelayedSets {
    pub(super) sets: Vec<Queue>,
    pub(super) scored: ScoredSets,
    pub(super) commands: Commands,
    pub(super) clock: LedgerClock,
    pub(super) metrics: Arc<Metrics>,
    pub(super) signals: DueSignals,
    requests: Mutex<Requests>,
    pub(super) absences: Absences,
    /// The engine, while the timer runs.
    sink: Mutex<Option<Arc<dyn EngineSink>>>,
    pub(super) warnings: LogLimiter,
}

/// The delayed queue of a framework.
pub(super) struct Queue {
    pub(super) config: DelayedSetConfig,
    pub(super) jobs: DelayedSet,
}

impl DelayedSets {
    pub(super) fn new(
        commands: Commands,
        sets: Vec<DelayedSetConfig>,
        clock: LedgerClock,
        metrics: Arc<Metrics>,
    ) -> Self {
        let queue = |config: DelayedSetConfig| Queue {
            jobs: DelayedSet::new(commands.clone(), config.set(), config.register()),
            config,
        };
        Self {
            sets: sets.into_iter().map(queue).collect(),
            scored: ScoredSets::new(commands.clone(), OWN_FROM, None),
            commands,
            signals: DueSignals::new(clock.clone()),
            clock,
            metrics,
            requests: Mutex::default(),
            absences: Absences::default(),
            sink: Mutex::default(),
            warnings: LogLimiter::every(Duration::from_secs(30)),
        }
    }

    /// True if this is the task of a job.
    pub(super) fn has(&self, key: &TaskKey) -> bool {
        self.sets.iter().any(|set| set.config.holds(key))
    }

    pub(super) async fn arm(&self, alarms: &[Alarm], mode: ArmMode) -> Result<Armed, RedisError> {
        let mut armed = Armed {
            present: alarms.len(),
            ..Armed::default()
        };
        if mode == ArmMode::Replace {
            for set in &self.sets {
                let of_set = alarms.iter().filter(|alarm| set.config.holds(&alarm.key));
                let score = |due: UnixMs| Score::request(row_due(due), ScoreUnit::Seconds);
                let jobs = of_set.map(|alarm| (alarm.key.as_str(), score(alarm.due)));
                let jobs: Vec<(&str, f64)> = jobs.collect();
                armed.written += set.jobs.score(&jobs).await?;
            }
            armed.present -= armed.written;
            self.expect_soon(alarms);
        }
        Ok(armed)
    }

    /// Has the signals of tasks that this process moves and runs raised when they are due, however short their delay.
    fn expect_soon(&self, alarms: &[Alarm]) {
        let Some(sink) = self.held_sink().clone() else {
            return;
        };
        let soon = self.clock.now().plus(SOON);
        let ours =
            |alarm: &&Alarm| alarm.due <= soon && sink.wants(&alarm.key) && sink.owns(&alarm.key);
        let ours: Vec<Alarm> = alarms.iter().filter(ours).cloned().collect();
        self.signals.expect(ours);
    }

    pub(super) async fn disarm(&self, keys: &[TaskKey]) -> Result<(), RedisError> {
        self.signals.forget(keys);
        for set in &self.sets {
            set.jobs.remove(&set.names_of(keys.iter())).await?;
        }
        Ok(())
    }

    pub(super) async fn remaining(&self, keys: &[TaskKey]) -> Result<Vec<Remaining>, RedisError> {
        let now = self.clock.now();
        let mut remaining = vec![Remaining::Missing; keys.len()];
        for set in &self.sets {
            let scores = set.jobs.find(&set.names_of(keys.iter())).await?;
            let mut scores = scores.into_iter();
            for (remaining, key) in remaining.iter_mut().zip(keys) {
                if set.config.holds(key)
                    && let Some(score) = scores.next().flatten()
                    && let Some(due) = due_of(score)
                {
                    *remaining = Remaining::Ms(due.since(now).as_millis() as u64);
                }
            }
        }
        Ok(remaining)
    }

    /// The ledger holds these jobs, or cannot. They stay as they are.
    pub(super) fn acknowledge(&self, answers: &[Acknowledgement]) {
        let mut requests = self.requests();
        for answer in answers {
            requests.stays(answer);
        }
    }

    pub(super) async fn settle(&self, ended: &[Alarm]) -> Result<(), RedisError> {
        for set in &self.sets {
            let of_set = ended.iter().filter(|alarm| set.config.holds(&alarm.key));
            let jobs = of_set.map(|alarm| (alarm.key.as_str(), alarm.due.0));
            set.jobs.settle(&jobs.collect::<Vec<_>>()).await?;
        }
        Ok(())
    }

    /// Reads a page of the registers: jobs that left their sets some time ago.
    pub(super) async fn scan(&self, cursor: u64) -> Result<ArmedPage, RedisError> {
        const CURSOR_BITS: u32 = 50;
        let index = usize::try_from(cursor >> CURSOR_BITS).unwrap_or(usize::MAX);
        let Some(set) = self.sets.get(index) else {
            return Ok(ArmedPage::default());
        };
        let now = self.clock.now();
        let before = seconds(now) - KEPT.as_secs_f64();
        let cursor = cursor & ((1 << CURSOR_BITS) - 1);
        let page = set.jobs.missing(cursor, f64::INFINITY, before).await?;
        let RegisterPage { cursor, old, .. } = page;
        let next = match cursor {
            0 => (index + 1 < self.sets.len()).then(|| (index as u64 + 1) << CURSOR_BITS),
            cursor => Some((index as u64) << CURSOR_BITS | cursor),
        };
        let taken = old.iter().filter_map(|key| {
            Some(Alarm {
                key: TaskKey::parse(key).ok()?,
                due: now,
                arming: None,
            })
        });
        Ok(ArmedPage {
            taken: taken.collect(),
            next,
            ..ArmedPage::default()
        })
    }

    /// The jobs that were read.
    pub(super) fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests
            .lock()
            .expect("nothing panics while holding the jobs")
    }

    pub(super) fn held_sink(&self) -> MutexGuard<'_, Option<Arc<dyn EngineSink>>> {
        self.sink
            .lock()
            .expect("nothing panics while holding the sink")
    }

    /// Logs an error, at most twice a minute for each reason.
    pub(super) fn warn(&self, what: &'static str, error: &RedisError) {
        if let Some(held_back) = self.warnings.admit(error.reason()) {
            let remedy = error.remedy();
            let node = self.commands.endpoint().node();
            let error = error as &dyn std::error::Error;
            tracing::warn!(redis.node = node, error, remedy, held_back, "{what}");
        }
    }
}

impl Queue {
    /// Those of these keys whose tasks are jobs of this set.
    fn names_of<'a>(&self, keys: impl Iterator<Item = &'a TaskKey>) -> Vec<&'a str> {
        let keys = keys.filter(|key| self.config.holds(key));
        keys.map(TaskKey::as_str).collect()
    }
}

/// The due time of a score; `None`: it has none.
pub(super) fn due_of(score: f64) -> Option<UnixMs> {
    match Score::read(score, ScoreUnit::Seconds) {
        Score::Request(due) => Some(due),
        Score::RequestNow | Score::Own(_) | Score::Never => None,
    }
}

pub(super) fn seconds(time: UnixMs) -> f64 {
    time.0 as f64 / 1e3
}
