//! How often tasks may start, counted in a small table beside the tasks': for daemons that have no Redis to count in.

use std::borrow::Cow;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::connection::{Conn, statement};
use super::error::error;
use super::error_numbers::is_duplicate;
use super::{MysqlLedger, decode, queries};
use crate::ledger::LedgerError;
use crate::task::{Grant, Rate};

/// Longest name in the table, in characters.
const NAME_CHARS_MAX: usize = 255;

/// Of a longer one so much is kept, before its digest.
const NAME_CHARS_KEPT: usize = 190;

/// The next start is at most so far away: nobody waits longer before asking again.
const NEXT_MAX: Duration = Duration::from_secs(3_600);

impl MysqlLedger {
    /// Takes at most so many starts of the bucket that all daemons of this table share for a route.
    ///
    /// # If we crash right after
    /// They are taken, and the bucket fills again at its rate.
    ///
    /// # Errors
    /// [`LedgerError::Refused`] where the table of rates is missing, or this user may not write it. The starts may be
    /// taken after any other error.
    pub async fn take_starts(
        &self,
        route: &str,
        rate: Rate,
        wanted: u32,
    ) -> Result<Grant, LedgerError> {
        let mut conn = self.pools.acquire().await?;
        let taken = self.take_starts_on(&mut conn, route, rate, wanted).await;
        taken.map_err(error)
    }

    async fn take_starts_on(
        &self,
        conn: &mut Conn,
        route: &str,
        rate: Rate,
        wanted: u32,
    ) -> sqlx::Result<Grant> {
        let route = name(route);
        let (start_ns, burst_ns) = nanoseconds(rate);
        let take = || {
            statement(self.queries.plain(queries::TAKE_STARTS))
                .bind(burst_ns)
                .bind(wanted)
                .bind(burst_ns)
                .bind(burst_ns)
                .bind(start_ns)
                .bind(start_ns)
                .bind(route.to_string())
        };
        let (mut matched, mut granted) = conn.execute_telling(take()).await?;
        if matched == 0 {
            let new = statement(self.queries.plain(queries::NEW_RATE)).bind(route.to_string());
            match conn.execute(new).await {
                Err(error) if !is_duplicate(&error) => return Err(error),
                _ => (matched, granted) = conn.execute_telling(take()).await?,
            }
        }
        // Somebody deletes the row as fast as it is written: there is another time to ask.
        let granted = if matched == 0 { 0 } else { granted };
        let granted = u32::try_from(granted).unwrap_or(0).min(wanted);
        let next_in = match granted == wanted {
            true => Duration::ZERO,
            false => self.next_start(conn, &route, start_ns, burst_ns).await?,
        };
        Ok(Grant { granted, next_in })
    }

    async fn next_start(
        &self,
        conn: &mut Conn,
        route: &str,
        start_ns: i64,
        burst_ns: i64,
    ) -> sqlx::Result<Duration> {
        let question = statement(self.queries.plain(queries::NEXT_START))
            .bind(start_ns)
            .bind(burst_ns)
            .bind(route.to_owned());
        let found = conn.fetch(question).await?;
        let next_ns = decode::first_i64(&found)?;
        let next = Duration::from_nanos(u64::try_from(next_ns).unwrap_or(0));
        Ok(next.min(NEXT_MAX))
    }
}

/// From one start to the next, and of a whole burst. Rounded up: never more than the rate.
fn nanoseconds(rate: Rate) -> (i64, i64) {
    let start_ns = (rate.interval_us() * 1e3).ceil() as i64;
    let start_ns = start_ns.max(1);
    (start_ns, start_ns.saturating_mul(i64::from(rate.burst())))
}

/// What the bucket of a route is called: a regular expression may be of any length.
fn name(route: &str) -> Cow<'_, str> {
    if route.chars().count() <= NAME_CHARS_MAX {
        return Cow::Borrowed(route);
    }
    let kept: String = route.chars().take(NAME_CHARS_KEPT).collect();
    let digest = Sha256::digest(route.as_bytes());
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Cow::Owned(kept + &digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_fit_and_are_told_apart() {
        let (one, two) = ("é".repeat(300), "é".repeat(301));
        assert_eq!(name(&one).chars().count(), NAME_CHARS_KEPT + 64);
        assert_ne!(name(&one), name(&two));
        assert_eq!(name("^Mail@"), "^Mail@");
    }

    #[test]
    fn a_start_is_never_shorter_than_its_rate_says() {
        assert_eq!(
            nanoseconds("100/s".parse().unwrap()),
            (10_000_000, 1_000_000_000)
        );
        assert_eq!(nanoseconds("7/s".parse().unwrap()).0, 142_857_143);
        // An hour for each of a million fits, too.
        let slow: Rate = "1/h".parse().unwrap();
        assert_eq!(
            nanoseconds(slow.with_burst(1_000_000).unwrap()).1,
            3_600_000_000_000_000_000
        );
    }
}
