//! Alerts: messages to a webhook when something is wrong, and when it is right again.
//!
//! ```text
//! facts ── diagnosis: what is wrong? ── hysteresis: is it to be reported? ── message ── delivery
//! ```
//!
//! Reads what the engine keeps anyway; the engine never waits for alerts. A restart forgets what was reported.

mod delivery;
mod hysteresis;
mod message;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};

use self::hysteresis::{Alert, Pace};
use self::message::Message;
use lapsed::clock;
use lapsed::config::AlertsConfig;
use lapsed::diagnosis::{CONDITIONS, Condition, Facts, Patience, Thresholds};
use lapsed::engine::Handle;
use lapsed::handler::Poster;
use lapsed_core::telemetry::Metrics;
use lapsed_core::telemetry::history::{Minute, Totals};

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
    thresholds: Thresholds,
    watched: Vec<Watched>,
}

/// A condition that is reported, and what was found of it last.
struct Watched {
    condition: &'static Condition,
    patience: Duration,
    alert: Alert,
    summary: String,
    remedy: String,
}

impl Watched {
    fn all(config: &AlertsConfig) -> Vec<Self> {
        let watched = CONDITIONS.iter().filter_map(|condition| {
            Some(Self {
                condition,
                patience: match condition.reported? {
                    Patience::None => Duration::ZERO,
                    Patience::DownFor => config.down_for,
                    Patience::Window => config.window,
                },
                alert: Alert::default(),
                summary: String::new(),
                remedy: String::new(),
            })
        });
        watched.collect()
    }
}

impl Alerts {
    /// Watches an engine by `config`.
    pub fn new(config: &AlertsConfig, engine: Handle, metrics: Arc<Metrics>) -> Self {
        Self {
            config: config.clone(),
            engine,
            metrics,
            totals: VecDeque::from([(Instant::now(), Totals::default(), 0, 0)]),
            thresholds: Thresholds::from(config),
            watched: Watched::all(config),
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
        let facts = self.facts(now);
        // A daemon that is about to end is not ready, and that is no outage.
        if self.engine.is_stopping() {
            return Vec::new();
        }
        let mut messages = Vec::new();
        for watched in &mut self.watched {
            if !watched.condition.is_known(&facts) {
                continue;
            }
            let found = watched.condition.found(&facts, &self.thresholds);
            let pace = Pace {
                patience: watched.patience,
                clear_after: self.config.clear_after,
                repeat: self.config.repeat,
            };
            let since = watched.alert.since().unwrap_or(now);
            let change = watched.alert.observe(!found.is_empty(), now, pace);
            if let Some(found) = found.first() {
                (watched.summary, watched.remedy) = (found.summary(), found.advice());
            }
            let Some(change) = change else { continue };
            let at = clock::wall();
            messages.push(Message::new(
                watched.condition.id,
                change,
                (watched.summary.clone(), watched.remedy.clone()),
                self.engine.daemon(),
                at.minus(since.elapsed()),
                at,
            ));
        }
        messages
    }

    /// What was counted in the window, and how the daemon is now.
    fn facts(&mut self, now: Instant) -> Facts {
        let totals = self.metrics.history().read();
        let (rearmed, cancelled_by_key) = (
            self.metrics.keys_rearmed(),
            self.metrics.many_cancelled_by_key(),
        );
        let window = self.config.window;
        // The oldest of them is the last one before the window.
        while self
            .totals
            .get(1)
            .is_some_and(|(at, ..)| now.duration_since(*at) >= window)
        {
            self.totals.pop_front();
        }
        let (did, keys_lost, cancelled_by_key_lately): (Minute, u64, u64) =
            match self.totals.front() {
                Some((_, before, rearmed_before, cancelled_by_key_before)) => (
                    totals.since(before),
                    rearmed - rearmed_before,
                    cancelled_by_key - cancelled_by_key_before,
                ),
                None => Default::default(),
            };
        self.totals
            .push_back((now, totals, rearmed, cancelled_by_key));
        let engine = &self.engine;
        // What concerns all daemons is reported by one of them.
        let is_first = engine.is_first();
        Facts {
            window,
            late: did.lateness.percentiles().map(|late| (late, window)),
            started: did.started,
            died: did.dead,
            keys_lost,
            cancelled_by_key: cancelled_by_key_lately,
            overdue: is_first.then(|| self.metrics.overdue_unpaused()),
            lost_daemons: match is_first {
                true => engine.gone(window),
                false => Vec::new(),
            },
            sentinel: Some(self.metrics.sentinel()),
            retention_behind: self.metrics.is_prune_behind(),
            ..engine.facts()
        }
    }
}
