//! Since when the clocks of Redis and of the ledger have run alike.
//!
//! Redis counts the time of a key on its own clock. A row that was written for a key falls due on the ledger's. After a
//! step of one of them, a key may live on although its row has fallen due and run, just like a key that a program has
//! armed again. So the distance of the two clocks is noted in Redis, where a step makes it unknown what a key that is
//! found belongs to.

use std::time::Duration;

use super::KeyInspector;
use crate::{RedisError, Server};
use lapsed_core::task::UnixMs;

/// The clocks run alike if their distance changes by no more than this.
const APART_MAX: Duration = Duration::from_millis(500);

/// Longest round trip of a measurement that counts.
const ROUND_TRIP_MAX: Duration = Duration::from_millis(250);

/// The distance of the clocks, and since when it has been that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Distance {
    /// The ledger's clock minus the server's, in milliseconds.
    ms: i64,
    since: UnixMs,
}

impl Distance {
    fn to_text(self) -> String {
        format!("{} {}", self.ms, self.since.0)
    }

    fn parse(text: &str) -> Option<Self> {
        let (ms, since) = text.split_once(' ')?;
        Some(Self {
            ms: ms.parse().ok()?,
            since: UnixMs(since.parse().ok()?),
        })
    }
}

impl KeyInspector {
    /// Measures the distance of the clocks and notes a change. Returns the server, and since when the distance has been
    /// what it is; `None` if that is unknown.
    ///
    /// # Errors
    /// If Redis does not answer, or refuses the note.
    pub(in crate::timer) async fn check_clocks(
        &self,
    ) -> Result<(Server, Option<UnixMs>), RedisError> {
        let asked = self.clock.now();
        let server = self.keyspace.server().await?;
        let answered = self.clock.now();
        let since = match server.time {
            Some(time) if self.clock.is_known() => {
                self.distance_since(asked, time, answered).await?
            }
            _ => None,
        };
        Ok((server, since))
    }

    async fn distance_since(
        &self,
        asked: UnixMs,
        time: UnixMs,
        answered: UnixMs,
    ) -> Result<Option<UnixMs>, RedisError> {
        let name = self.keyspace.names().clocks(self.ledger.text());
        let Ok(name) = self.keyspace.here(&name) else {
            // A master without slots has no key.
            return Ok(None);
        };
        let noted = self.keyspace.note(&name).await?;
        let noted = noted.and_then(|text| Distance::parse(&text));
        let round_trip = answered.since(asked);
        if round_trip > ROUND_TRIP_MAX {
            return Ok(None);
        }
        let ms = asked.plus(round_trip / 2).0.saturating_sub(time.0);
        let is_alike =
            |noted: &Distance| u128::from(noted.ms.abs_diff(ms)) <= APART_MAX.as_millis();
        if let Some(Distance { since, .. }) = noted.filter(is_alike) {
            return Ok(Some(since));
        }
        let since = answered;
        if let Some(before) = noted {
            tracing::warn!(
                before_ms = before.ms,
                now_ms = ms,
                "the clocks of redis and of the ledger have moved apart: a key that an audit finds over an older row is not adopted"
            );
        }
        let distance = Distance { ms, since };
        self.keyspace.write_note(&name, &distance.to_text()).await?;
        Ok(Some(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_back_and_garbage_is_no_note() {
        let distance = Distance {
            ms: -1_500,
            since: UnixMs(1_795_459_396_881),
        };
        assert_eq!(Distance::parse(&distance.to_text()), Some(distance));
        for garbage in ["", "1", "1 x", "x 1", "1 2 3"] {
            assert_eq!(Distance::parse(garbage), None, "{garbage}");
        }
    }
}
