//! The sentinels: "#SILCK`1", "#SILCK`2", ..., keys that expire one interval apart.
//!
//! Each expiry asks for a sweep and an audit. When one past the half expires, or some vanish, all are
//! written anew. Daemons share them: whoever notices first writes, a second writing does no harm.

use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::{Cause, SignalSink};
use crate::config::SentinelConfig;
use crate::redis::{Keyspace, Put, RedisError, Ttl};
use crate::telemetry::Metrics;
use crate::telemetry::log::RateLimit;

/// They are looked after this often at least.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(30);

/// And at most this often, whatever is found.
const PAUSE: Duration = Duration::from_millis(50);

/// A key can go one millisecond after it is due; one more for a clock that runs ahead.
const AFTER_DUE: Duration = Duration::from_millis(2);

/// Keeps the sentinels.
#[derive(Debug)]
pub(super) struct Sentinels {
    config: SentinelConfig,
    keyspace: Keyspace,
    names: Vec<String>,
    known: Mutex<Known>,
    warnings: RateLimit,
}

/// What was last seen of them.
#[derive(Debug)]
struct Known {
    /// For each, before when it cannot have expired; `None` if it is not there. `None` for all: they
    /// have not been looked at yet.
    due: Option<Vec<Option<Instant>>>,
    /// When one was last written or heard.
    fresh: Instant,
}

/// What a look at them says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Fine,
    /// Too few are left.
    Short,
    /// Some went before their time: Redis lost data, or somebody deleted it.
    Vanished,
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
            known: Mutex::new(Known {
                due: None,
                fresh: Instant::now(),
            }),
            warnings: RateLimit::every(Duration::from_secs(60)),
        }
    }

    /// An event named the sentinel with this number.
    pub(super) fn heard(&self, number: u16) {
        let mut known = self.known();
        known.fresh = Instant::now();
        let place = usize::from(number).wrapping_sub(1);
        if let Some(due) = known.due.as_mut().and_then(|due| due.get_mut(place)) {
            *due = None;
        }
    }

    /// The server is another one: what was seen of the old one's says nothing.
    pub(super) fn forget(&self) {
        self.known().due = None;
    }

    /// How long ago one was written or heard.
    pub(super) fn age(&self) -> Duration {
        self.known().fresh.elapsed()
    }

    /// Looks after them for as long as it is polled: when one falls due, and every now and then, in case
    /// some vanished. The look is a touch: Redis would drop an untouched key hours late.
    pub(super) async fn keep(&self, sink: &dyn SignalSink, metrics: &Metrics) -> Infallible {
        loop {
            match self.look().await {
                Ok(Verdict::Fine) => {}
                Ok(Verdict::Short) => self.write_anew().await,
                Ok(Verdict::Vanished) => {
                    tracing::warn!("sentinels vanished before their time, redis lost keys");
                    sink.audit(Cause::RedisChanged);
                    self.write_anew().await;
                }
                Err(error) => self.warn("cannot look after the sentinels", &error),
            }
            metrics.sentinel_age(self.age());
            sleep(PAUSE).await;
            sleep_until(self.next_look()).await;
        }
    }

    async fn look(&self) -> Result<Verdict, RedisError> {
        let asked = Instant::now();
        let found = self.keyspace.touch(&self.names).await?;
        let due: Vec<Option<Instant>> = found
            .into_iter()
            .map(|ttl| match ttl {
                Ttl::Ms(left) => Some(asked + Duration::from_millis(left)),
                Ttl::Missing | Ttl::Forever => None,
            })
            .collect();
        let mut known = self.known();
        let verdict = judge(known.due.as_deref(), &due, Instant::now());
        known.due = Some(due);
        Ok(verdict)
    }

    async fn write_anew(&self) {
        let numbered = (1..).zip(&self.names);
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
                let mut known = self.known();
                if written == total {
                    known.due = Some(
                        expiring
                            .iter()
                            .map(|(_, expiry)| asked.checked_add(*expiry))
                            .collect(),
                    );
                    known.fresh = asked;
                }
            }
            Err(error) => self.warn("cannot write sentinels", &error),
        }
    }

    fn next_look(&self) -> Instant {
        let regular = Instant::now() + (self.config.interval / 2).min(LOOK_EVERY_MAX);
        let known = self.known();
        let due = known.due.iter().flatten().flatten().min();
        due.map_or(regular, |due| regular.min(*due + AFTER_DUE))
    }

    fn warn(&self, what: &'static str, error: &RedisError) {
        if let Some(held_back) = self.warnings.admit(error.reason()) {
            tracing::warn!(error = error as &dyn std::error::Error, held_back, "{what}");
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known
            .lock()
            .expect("nothing panics while holding what is known")
    }
}

/// `before` is what the last look said, if there was one.
fn judge(before: Option<&[Option<Instant>]>, found: &[Option<Instant>], now: Instant) -> Verdict {
    let half = found.len() / 2;
    let Some(before) = before else {
        let present = found.iter().flatten().count();
        return if present > half && past_half_present(found) {
            Verdict::Fine
        } else {
            Verdict::Short
        };
    };
    let went_early = |(before, found): (&Option<Instant>, &Option<Instant>)| {
        found.is_none() && before.is_some_and(|due| due > now)
    };
    if before.iter().zip(found).any(went_early) {
        Verdict::Vanished
    } else if past_half_present(found) {
        Verdict::Fine
    } else {
        Verdict::Short
    }
}

fn past_half_present(found: &[Option<Instant>]) -> bool {
    found[found.len() / 2..].iter().all(Option::is_some)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `+` is there, `-` is not.
    fn seen(marks: &str, due: Instant) -> Vec<Option<Instant>> {
        marks
            .chars()
            .map(|mark| (mark == '+').then_some(due))
            .collect()
    }

    fn first(marks: &str) -> Verdict {
        let now = Instant::now();
        judge(None, &seen(marks, now + Duration::from_secs(9)), now)
    }

    #[test]
    fn at_the_first_look_more_than_half_must_be_there() {
        assert_eq!(first("++++++++++"), Verdict::Fine);
        assert_eq!(first("----++++++"), Verdict::Fine);
        assert_eq!(first("-----+++++"), Verdict::Short);
        assert_eq!(
            first("++++++++++".replace('+', "-").as_str()),
            Verdict::Short
        );
        assert_eq!(first("+++++++++-"), Verdict::Short);
        assert_eq!((first("+"), first("-")), (Verdict::Fine, Verdict::Short));
    }

    #[test]
    fn the_first_half_may_expire_in_its_time() {
        let now = Instant::now();
        let (past, ahead) = (now - Duration::from_millis(1), now + Duration::from_secs(9));
        let before: Vec<_> = [seen("+++++", past), seen("+++++", ahead)].concat();
        assert_eq!(
            judge(Some(&before), &seen("-----+++++", ahead), now),
            Verdict::Fine
        );
        let before: Vec<_> = [seen("-----+", past), seen("++++", ahead)].concat();
        assert_eq!(
            judge(Some(&before), &seen("------++++", ahead), now),
            Verdict::Short
        );
    }

    #[test]
    fn one_that_goes_before_its_time_has_vanished() {
        let now = Instant::now();
        let ahead = now + Duration::from_secs(9);
        let verdict = judge(Some(&seen("++++", ahead)), &seen("-+++", ahead), now);
        assert_eq!(verdict, Verdict::Vanished);
        let verdict = judge(Some(&seen("-+++", ahead)), &seen("-+++", ahead), now);
        assert_eq!(verdict, Verdict::Fine, "its event was heard");
    }
}
