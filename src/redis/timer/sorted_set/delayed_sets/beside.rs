//! A timer, and the delayed sets beside it: each gets what belongs to its tasks.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::reader::{Reader, find_removed};
use super::sets::DelayedSets;
use crate::{Commands, Endpoint, RedisError};
use lapsed_core::clock::LedgerClock;
use lapsed_core::config::Config;
use lapsed_core::task::{Countdown, TaskKey, UnixMs};
use lapsed_core::telemetry::Metrics;
use lapsed_core::timer::{
    Acknowledgement, Alarm, AlarmStore, ArmMode, Armed, ArmedPage, EngineSink, Entries, Hearing,
    Listening, Remaining, Taking, Timer, TimerError,
};

/// Set in the cursors of registers.
const OF_REGISTER: u64 = 1 << 63;

/// A timer that also has the delayed queues of frameworks.
pub struct WithDelayedSets {
    timer: Arc<dyn Timer>,
    entries: Option<Arc<dyn Entries>>,
    listening: Option<Arc<dyn Listening>>,
    sets: Arc<DelayedSets>,
}

impl WithDelayedSets {
    /// Adds delayed sets to a timer; without any, the timer stays as it is. Does no I/O.
    ///
    /// # Errors
    /// If the URL of Redis cannot be parsed.
    pub fn around(
        timer: Arc<dyn Timer>,
        config: &Config,
        clock: &LedgerClock,
        metrics: &Arc<Metrics>,
    ) -> Result<Arc<dyn Timer>, RedisError> {
        let sets = config.delayed_sets();
        if sets.is_empty() {
            return Ok(timer);
        }
        let commands = Commands::new(Endpoint::new(&config.redis)?);
        let (clock, metrics) = (clock.clone(), Arc::clone(metrics));
        Ok(Arc::new(Self {
            entries: Arc::clone(&timer).entries(),
            listening: Arc::clone(&timer).listening(),
            timer,
            sets: Arc::new(DelayedSets::new(commands, sets, clock, metrics)),
        }))
    }

    /// Divides items by their keys: those of the timer, and those of the sets.
    fn divide<T: Clone>(&self, items: &[T], key: impl Fn(&T) -> &TaskKey) -> (Vec<T>, Vec<T>) {
        let items = items.iter().cloned();
        items.partition(|item| !self.sets.has(key(item)))
    }

    /// Puts answers of both into the order of the keys.
    fn merge<T>(
        &self,
        keys: impl Iterator<Item = TaskKey>,
        of_timer: Vec<T>,
        of_sets: Vec<T>,
    ) -> Vec<T> {
        let (mut of_timer, mut of_sets) = (of_timer.into_iter(), of_sets.into_iter());
        let merged = keys.filter_map(|key| match self.sets.has(&key) {
            true => of_sets.next(),
            false => of_timer.next(),
        });
        merged.collect()
    }
}

#[async_trait]
impl AlarmStore for WithDelayedSets {
    async fn arm(&self, alarms: &[Alarm], mode: ArmMode) -> Result<Armed, TimerError> {
        let (of_timer, of_sets) = self.divide(alarms, |alarm| &alarm.key);
        let mut armed = Armed::default();
        if !of_sets.is_empty() {
            armed = self.sets.arm(&of_sets, mode).await.map_err(failed)?;
        }
        if !of_timer.is_empty() {
            let Armed {
                written,
                present,
                missing,
            } = self.timer.arm(&of_timer, mode).await?;
            armed.written += written;
            armed.present += present;
            armed.missing += missing;
        }
        Ok(armed)
    }

    fn horizon(&self) -> Option<Duration> {
        self.timer.horizon()
    }

    async fn disarm(&self, keys: &[TaskKey]) -> Result<(), TimerError> {
        let (of_timer, of_sets) = self.divide(keys, |key| key);
        let removed = match of_sets.is_empty() {
            true => Ok(()),
            false => self.sets.disarm(&of_sets).await.map_err(failed),
        };
        if !of_timer.is_empty() {
            self.timer.disarm(&of_timer).await?;
        }
        removed
    }

    async fn remaining(&self, keys: &[TaskKey]) -> Result<Vec<Remaining>, TimerError> {
        let (of_timer, of_sets) = self.divide(keys, |key| key);
        let (mut timer, mut sets) = (Vec::new(), Vec::new());
        if !of_timer.is_empty() {
            timer = self.timer.remaining(&of_timer).await?;
        }
        if !of_sets.is_empty() {
            sets = self.sets.remaining(&of_sets).await.map_err(failed)?;
        }
        Ok(self.merge(keys.iter().cloned(), timer, sets))
    }
}

#[async_trait]
impl Timer for WithDelayedSets {
    async fn run(&self, sink: Arc<dyn EngineSink>, stop: CancellationToken) {
        let sets = run(&self.sets, Arc::clone(&sink), stop.clone());
        tokio::join!(self.timer.run(sink, stop), sets);
    }

    fn expect(&self, alarms: Vec<Alarm>) {
        let (of_sets, of_timer): (Vec<Alarm>, Vec<Alarm>) = alarms
            .into_iter()
            .partition(|alarm| self.sets.has(&alarm.key));
        if !of_sets.is_empty() {
            self.sets.signals.expect(of_sets);
        }
        self.timer.expect(of_timer);
    }

    fn scope(&self) -> String {
        let sets = self.sets.sets.iter();
        let names: Vec<&str> = sets.map(|set| set.config.set()).collect();
        format!("{}+{}", self.timer.scope(), names.join("+"))
    }

    fn entries(self: Arc<Self>) -> Option<Arc<dyn Entries>> {
        Some(self)
    }

    fn listening(self: Arc<Self>) -> Option<Arc<dyn Listening>> {
        Some(self)
    }
}

#[async_trait]
impl Entries for WithDelayedSets {
    fn counts_absence(&self, key: Option<&TaskKey>) -> bool {
        let entries = self.entries.as_ref();
        key.is_some_and(|key| self.sets.has(key))
            || entries.is_some_and(|entries| entries.counts_absence(key))
    }

    fn has(&self, key: Option<&TaskKey>) -> bool {
        // A timer without a server has no keys either.
        self.entries.is_some()
            || self.listening.is_none()
            || key.is_some_and(|key| self.sets.has(key))
    }

    /// A job is taken when it is moved, after its task was claimed.
    async fn take(&self, alarms: &[Alarm]) -> Result<Vec<Taking>, TimerError> {
        let (of_timer, of_sets) = self.divide(alarms, |alarm| &alarm.key);
        let taken = match &self.entries {
            Some(entries) if !of_timer.is_empty() => entries.take(&of_timer).await?,
            _ => vec![Taking::Unknown; of_timer.len()],
        };
        let keys = alarms.iter().map(|alarm| alarm.key.clone());
        Ok(self.merge(keys, taken, vec![Taking::Unknown; of_sets.len()]))
    }

    async fn retake(&self, entries: &[(Option<UnixMs>, Alarm)]) -> Result<(), TimerError> {
        let (of_timer, _) = self.divide(entries, |(_, alarm)| &alarm.key);
        match &self.entries {
            Some(entries) if !of_timer.is_empty() => entries.retake(&of_timer).await,
            _ => Ok(()),
        }
    }

    async fn restore(&self, lost: &[Alarm]) -> Result<(), TimerError> {
        let (of_timer, _) = self.divide(lost, |alarm| &alarm.key);
        match &self.entries {
            Some(entries) if !of_timer.is_empty() => entries.restore(&of_timer).await,
            _ => Ok(()),
        }
    }

    async fn acknowledge(&self, answers: &[Acknowledgement]) -> Result<(), TimerError> {
        let (of_timer, of_sets) = self.divide(answers, |answer| &answer.key);
        self.sets.acknowledge(&of_sets);
        match &self.entries {
            Some(entries) if !of_timer.is_empty() => entries.acknowledge(&of_timer).await,
            _ => Ok(()),
        }
    }

    async fn settle(&self, ended: &[Alarm]) -> Result<(), TimerError> {
        let (of_timer, of_sets) = self.divide(ended, |alarm| &alarm.key);
        let settled = match of_sets.is_empty() {
            true => Ok(()),
            false => self.sets.settle(&of_sets).await.map_err(failed),
        };
        if let Some(entries) = self.entries.as_ref().filter(|_| !of_timer.is_empty()) {
            entries.settle(&of_timer).await?;
        }
        settled
    }

    async fn audited(&self, began: UnixMs) {
        if let Some(entries) = &self.entries {
            entries.audited(began).await;
        }
    }
}

#[async_trait]
impl Listening for WithDelayedSets {
    fn is_listening(&self) -> bool {
        let listening = self.listening.as_ref();
        listening.is_none_or(|listening| listening.is_listening())
    }

    async fn scan_foreign(
        &self,
        cursor: Option<u64>,
        wants: &(dyn for<'a> Fn(&'a TaskKey) -> bool + Send + Sync),
    ) -> Result<ArmedPage, TimerError> {
        match (cursor, &self.listening) {
            (Some(cursor), _) if cursor & OF_REGISTER != 0 => {
                let page = self.sets.scan(cursor & !OF_REGISTER).await;
                let mut page = page.map_err(failed)?;
                page.next = page.next.map(|next| next | OF_REGISTER);
                Ok(page)
            }
            (_, Some(listening)) => {
                let mut page = listening.scan_foreign(cursor, wants).await?;
                page.next = Some(page.next.unwrap_or(OF_REGISTER));
                Ok(page)
            }
            (_, None) => Ok(ArmedPage {
                next: Some(OF_REGISTER),
                ..ArmedPage::default()
            }),
        }
    }

    async fn inspect(
        &self,
        keys: &[TaskKey],
        since: UnixMs,
    ) -> Result<Vec<Option<Countdown>>, TimerError> {
        match &self.listening {
            Some(listening) => listening.inspect(keys, since).await,
            None => Err(TimerError::new("this timer has no keys", "no key to inspect").lasting()),
        }
    }

    fn hearing(&self) -> Hearing {
        let listening = self.listening.as_ref();
        listening.map_or_else(Hearing::default, |listening| listening.hearing())
    }

    fn replay_events(&self) {
        if let Some(listening) = &self.listening {
            listening.replay_events();
        }
    }
}

/// Raises signals and reads the sets, until `stop`.
async fn run(sets: &Arc<DelayedSets>, sink: Arc<dyn EngineSink>, stop: CancellationToken) {
    *sets.held_sink() = Some(Arc::clone(&sink));
    // Separate tasks, so that signals do not wait for Redis. All end with the set.
    let mut parts = JoinSet::new();
    let (this, to) = (Arc::clone(sets), Arc::clone(&sink));
    let alarm_clock = super::super::super::alarm_clock(&sets.commands);
    parts.spawn(async move { match this.signals.raise(to.as_ref(), alarm_clock).await {} });
    let (this, to) = (Arc::clone(sets), Arc::clone(&sink));
    parts.spawn(async move { Reader::new(this).run(to.as_ref()).await });
    let this = Arc::clone(sets);
    parts.spawn(async move { find_removed(&this, sink.as_ref()).await });
    if let Some(Some(Err(ended))) = stop.run_until_cancelled(parts.join_next()).await
        && let Ok(panic) = ended.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
    parts.shutdown().await;
    *sets.held_sink() = None;
}

/// The error of a command.
fn failed(error: RedisError) -> TimerError {
    let passes = error.is_transient();
    let error = TimerError::new("cannot change a delayed set".to_owned(), error);
    if passes { error } else { error.lasting() }
}
