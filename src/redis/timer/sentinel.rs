//! Sentinels: keys "#SILCK`1", "#SILCK`2", ... that expire one interval apart.
//!
//! Each expiry requests a sweep and an audit. When a sentinel of the second half expires, or some vanish, all are
//! written again. Daemons share them; writing them twice is harmless.

use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::{Cause, SignalSink};
use crate::{Keyspace, Put, RedisError, Ttl};
use lapsed_core::config::SentinelConfig;
use lapsed_core::telemetry::Metrics;
use lapsed_core::telemetry::log::LogLimiter;

/// Longest time between two checks.
const CHECK_EVERY_MAX: Duration = Duration::from_secs(30);

/// Shortest time between two checks.
const PAUSE: Duration = Duration::from_millis(50);

/// Redis deletes a key one millisecond after its expiry at the earliest; one more for a fast clock.
const AFTER_DUE: Duration = Duration::from_millis(2);

/// Writes and checks the sentinels.
#[derive(Debug)]
pub(super) struct Sentinels {
    config: SentinelConfig,
    keyspace: Keyspace,
    names: Vec<String>,
    last: Mutex<LastCheck>,
    warnings: LogLimiter,
}

/// The result of the last check.
#[derive(Debug)]
struct LastCheck {
    /// For each sentinel, the time before which it cannot have expired; `None` if it is missing. `None` for all before
    /// the first check.
    due: Option<Vec<Option<Instant>>>,
    /// Their names.
    names: Vec<String>,
    /// When one was last written, or an event of one was received.
    fresh: Instant,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Fine,
    /// Too few are left; write them again.
    Short,
    /// Some are missing before their time: Redis lost data, or a client deleted them.
    Lost,
}

impl Sentinels {
    pub(super) fn new(config: SentinelConfig, keyspace: Keyspace) -> Self {
        let names = (1..=config.count)
            .map(|number| keyspace.names().sentinel(number))
            .collect();
        Self {
            config,
            keyspace,
            names,
            last: Mutex::new(LastCheck {
                due: None,
                names: Vec::new(),
                fresh: Instant::now(),
            }),
            warnings: LogLimiter::every(Duration::from_secs(60)),
        }
    }

    /// Notes an event of the sentinel with this number.
    pub(super) fn heard(&self, number: u16) {
        let mut last = self.last();
        last.fresh = Instant::now();
        let place = usize::from(number).wrapping_sub(1);
        if let Some(due) = last.due.as_mut().and_then(|due| due.get_mut(place)) {
            *due = None;
        }
    }

    /// Discards the last check: the server was replaced.
    pub(super) fn forget(&self) {
        self.last().due = None;
    }

    /// Time since one was written, or an event of one was received.
    pub(super) fn age(&self) -> Duration {
        self.last().fresh.elapsed()
    }

    /// Checks the sentinels forever: when one expires, and at regular intervals in case some vanished. A check touches
    /// them, because Redis may delete an untouched key hours late.
    pub(super) async fn keep(&self, sink: &dyn SignalSink, metrics: &Metrics) -> Infallible {
        loop {
            match self.check().await {
                Ok(Health::Fine) => {}
                Ok(Health::Short) => self.rewrite().await,
                Ok(Health::Lost) => {
                    tracing::warn!("sentinels are missing before their time, redis lost keys");
                    sink.audit(Cause::RedisChanged);
                    self.rewrite().await;
                }
                // A master of a cluster without slots has no key.
                Err(RedisError::NoMaster(None)) => {}
                Err(error) => self.warn("cannot check the sentinels", &error),
            }
            metrics.sentinel_age(self.age(), self.config.interval);
            sleep(PAUSE).await;
            sleep_until(self.next_check()).await;
        }
    }

    async fn check(&self) -> Result<Health, RedisError> {
        let names = self.names()?;
        let asked = Instant::now();
        let found = self.keyspace.touch(&names).await?;
        let due: Vec<Option<Instant>> = found
            .into_iter()
            .map(|ttl| match ttl {
                Ttl::Ms(left) => Some(asked + Duration::from_millis(left)),
                Ttl::Missing | Ttl::Forever => None,
            })
            .collect();
        let mut last = self.last();
        // Their slot has moved: those of the other names are on another node.
        if last.names != names {
            last.due = None;
        }
        let health = judge(last.due.as_deref(), &due, Instant::now());
        (last.due, last.names) = (Some(due), names);
        Ok(health)
    }

    fn names(&self) -> Result<Vec<String>, RedisError> {
        let names = self.names.iter();
        names.map(|name| self.keyspace.here(name)).collect()
    }

    async fn rewrite(&self) {
        let Ok(names) = self.names() else {
            return;
        };
        let numbered = (1..).zip(&names);
        let expiring: Vec<(String, Duration)> = numbered
            .map(|(number, name)| (name.clone(), self.config.interval.saturating_mul(number)))
            .collect();
        let asked = Instant::now();
        match self.keyspace.put(&expiring).await {
            Ok(Put { written, error }) => {
                let total = expiring.len();
                tracing::info!(
                    total,
                    success = written,
                    error = total - written,
                    "sentinels written"
                );
                if let Some(error) = error {
                    self.warn("cannot write sentinels", &error);
                }
                let mut last = self.last();
                if written == total {
                    last.due = Some(
                        expiring
                            .iter()
                            .map(|(_, expiry)| asked.checked_add(*expiry))
                            .collect(),
                    );
                    last.fresh = asked;
                }
            }
            Err(error) => self.warn("cannot write sentinels", &error),
        }
    }

    fn next_check(&self) -> Instant {
        let regular = Instant::now() + (self.config.interval / 2).min(CHECK_EVERY_MAX);
        let last = self.last();
        let due = last.due.iter().flatten().flatten().min();
        due.map_or(regular, |due| regular.min(*due + AFTER_DUE))
    }

    fn warn(&self, what: &'static str, error: &RedisError) {
        if let Some(held_back) = self.warnings.admit(error.reason()) {
            tracing::warn!(error = error as &dyn std::error::Error, held_back, "{what}");
        }
    }

    fn last(&self) -> MutexGuard<'_, LastCheck> {
        self.last
            .lock()
            .expect("nothing panics while holding the last check")
    }
}

/// Compares a check with the previous one, `before`.
fn judge(before: Option<&[Option<Instant>]>, found: &[Option<Instant>], now: Instant) -> Health {
    let half = found.len() / 2;
    let Some(before) = before else {
        let present = found.iter().flatten().count();
        return if present > half && past_half_present(found) {
            Health::Fine
        } else {
            Health::Short
        };
    };
    let went_early = |(before, found): (&Option<Instant>, &Option<Instant>)| {
        found.is_none() && before.is_some_and(|due| due > now)
    };
    if before.iter().zip(found).any(went_early) {
        Health::Lost
    } else if past_half_present(found) {
        Health::Fine
    } else {
        Health::Short
    }
}

fn past_half_present(found: &[Option<Instant>]) -> bool {
    found[found.len() / 2..].iter().all(Option::is_some)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `+` exists, `-` is missing.
    fn seen(marks: &str, due: Instant) -> Vec<Option<Instant>> {
        marks
            .chars()
            .map(|mark| (mark == '+').then_some(due))
            .collect()
    }

    fn first(marks: &str) -> Health {
        let now = Instant::now();
        judge(None, &seen(marks, now + Duration::from_secs(9)), now)
    }

    #[test]
    fn at_the_first_check_more_than_half_must_exist() {
        assert_eq!(first("++++++++++"), Health::Fine);
        assert_eq!(first("----++++++"), Health::Fine);
        assert_eq!(first("-----+++++"), Health::Short);
        assert_eq!(
            first("++++++++++".replace('+', "-").as_str()),
            Health::Short
        );
        assert_eq!(first("+++++++++-"), Health::Short);
        assert_eq!((first("+"), first("-")), (Health::Fine, Health::Short));
    }

    #[test]
    fn the_first_half_may_expire_on_time() {
        let now = Instant::now();
        let (past, ahead) = (now - Duration::from_millis(1), now + Duration::from_secs(9));
        let before: Vec<_> = [seen("+++++", past), seen("+++++", ahead)].concat();
        assert_eq!(
            judge(Some(&before), &seen("-----+++++", ahead), now),
            Health::Fine
        );
        let before: Vec<_> = [seen("-----+", past), seen("++++", ahead)].concat();
        assert_eq!(
            judge(Some(&before), &seen("------++++", ahead), now),
            Health::Short
        );
    }

    #[test]
    fn a_sentinel_missing_before_its_time_has_vanished() {
        let now = Instant::now();
        let ahead = now + Duration::from_secs(9);
        let health = judge(Some(&seen("++++", ahead)), &seen("-+++", ahead), now);
        assert_eq!(health, Health::Lost);
        let health = judge(Some(&seen("-+++", ahead)), &seen("-+++", ahead), now);
        assert_eq!(health, Health::Fine, "its event was heard");
    }
}
