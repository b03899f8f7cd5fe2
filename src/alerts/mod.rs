//! Alerts: messages to a webhook when something is wrong, and when it is right again.
//!
//! ```text
//! figures ── condition: what is wrong? ── hysteresis: is it to be reported? ── message ── delivery
//! ```
//!
//! Reads the figures that the engine keeps anyway; the engine never waits for alerts. A restart forgets what was reported.

mod condition;
mod delivery;
mod hysteresis;
mod message;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};

use self::condition::{Condition, Figures};
use self::hysteresis::{Alert, Change, Pace};
use self::message::Message;
use crate::clock;
use crate::config::AlertsConfig;
use crate::engine::Handle;
use crate::handler::Poster;
use crate::telemetry::Metrics;
use crate::telemetry::history::Totals;

/// Number of observations in a window.
const OBSERVATIONS: u32 = 20;

/// Shortest and longest time between two observations.
const EVERY_MIN: Duration = Duration::from_millis(100);
const EVERY_MAX: Duration = Duration::from_secs(15);

/// Watches an engine, and reports what is wrong.
pub struct Alerts {
    config: AlertsConfig,
    engine: Handle,
    metrics: Arc<Metrics>,
    /// The totals of the last window, oldest first, with the keys armed again and the tasks cancelled at once.
    totals: VecDeque<(Instant, Totals, u64, u64)>,
    alerts: [Alert; Condition::ALL.len()],
    /// What was found last, by condition.
    summaries: [String; Condition::ALL.len()],
}

impl Alerts {
    /// Watches an engine by `config`.
    pub fn new(config: &AlertsConfig, engine: Handle, metrics: Arc<Metrics>) -> Self {
        Self {
            config: config.clone(),
            engine,
            metrics,
            totals: VecDeque::from([(Instant::now(), Totals::default(), 0, 0)]),
            alerts: Default::default(),
            summaries: Default::default(),
        }
    }

    /// Reports until it is dropped. Returns at once if alerts are off.
    ///
    /// # Errors
    /// A text that says why messages cannot be posted.
    ///
    /// # Cancel safety
    /// Messages that wait are lost.
    pub async fn run(mut self) -> Result<(), String> {
        let Some(webhook) = self.config.webhook.clone() else {
            return Ok(());
        };
        let poster = Poster::new(webhook, delivery::ATTEMPT_MAX)?;
        let (sender, messages) = mpsc::channel(delivery::WAITING_MAX);
        let delivering = delivery::deliver(poster, self.config.format, messages);
        let watching = async move {
            let every = (self.config.window / OBSERVATIONS).clamp(EVERY_MIN, EVERY_MAX);
            let mut ticks = interval(every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                for message in self.observe(Instant::now()) {
                    tracing::debug!(alert = message.alert, state = message.state, "alert");
                    if sender.try_send(message).is_err() {
                        tracing::error!(
                            "a message about an alert is dropped: too many wait for the webhook"
                        );
                    }
                }
            }
        };
        tokio::select! {
            () = delivering => {}
            () = watching => {}
        }
        Ok(())
    }

    fn observe(&mut self, now: Instant) -> Vec<Message> {
        let figures = self.figures(now);
        // A daemon that is about to end is not ready, and that is no outage.
        if self.engine.is_stopping() {
            return Vec::new();
        }
        let mut messages = Vec::new();
        for (index, condition) in Condition::ALL.into_iter().enumerate() {
            if !condition.is_known(&figures) {
                continue;
            }
            let finding = condition.finding(&self.config, &figures);
            let pace = Pace {
                patience: condition.patience(&self.config),
                clear_after: self.config.clear_after,
                repeat: self.config.repeat,
            };
            let since = self.alerts[index].since().unwrap_or(now);
            let change = self.alerts[index].observe(finding.is_some(), now, pace);
            if let Some(finding) = finding {
                self.summaries[index] = finding;
            }
            messages.extend(change.map(|change| self.message(condition, change, index, since)));
        }
        messages
    }

    fn message(
        &self,
        condition: Condition,
        change: Change,
        index: usize,
        since: Instant,
    ) -> Message {
        let at = clock::wall();
        let (summary, daemon) = (self.summaries[index].clone(), self.engine.daemon());
        Message::new(
            condition,
            change,
            summary,
            daemon,
            at.minus(since.elapsed()),
            at,
        )
    }

    fn figures(&mut self, now: Instant) -> Figures {
        let history = self.metrics.history();
        let totals = history.read();
        let (rearmed, withdrawn) = (self.metrics.keys_rearmed(), self.metrics.many_withdrawn());
        let window = self.config.window;
        // The oldest of them is the last one before the window.
        while self
            .totals
            .get(1)
            .is_some_and(|(at, ..)| now.duration_since(*at) >= window)
        {
            self.totals.pop_front();
        }
        let (did, keys_lost, lately_withdrawn) = match self.totals.front() {
            Some((_, before, rearmed_before, withdrawn_before)) => (
                totals.since(before),
                rearmed - rearmed_before,
                withdrawn - withdrawn_before,
            ),
            None => Default::default(),
        };
        self.totals.push_back((now, totals, rearmed, withdrawn));
        let ledger_answers = self.engine.ledger_answers();
        // What concerns all daemons is reported by one of them.
        let is_first = self.engine.is_first();
        Figures {
            did,
            keys_lost,
            withdrawn: lately_withdrawn,
            overdue: is_first.then(|| self.metrics.overdue_unpaused()),
            gone: match is_first {
                true => self.engine.gone(window),
                false => Vec::new(),
            },
            listens: self.engine.is_listening() != Some(false),
            ledger_trouble: (!ledger_answers).then(|| {
                let trouble = self.engine.ledger_trouble();
                trouble.unwrap_or_else(|| "the ledger does not answer".to_owned())
            }),
            sentinel_silent: self.metrics.is_sentinel_silent(),
            retention_behind: self.metrics.is_prune_behind(),
        }
    }
}
