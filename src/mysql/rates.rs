//! Token buckets in a small table beside the tasks, for daemons without Redis.

use std::borrow::Cow;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::connection::{Conn, statement};
use super::error::error;
use super::error_numbers::is_duplicate;
use super::{MysqlLedger, decode, queries};
use lapsed_core::format::hex;
use lapsed_core::ledger::LedgerError;
use lapsed_core::task::{Grant, Rate};

/// Maximum length of a name in the table, in characters.
const NAME_CHARS_MAX: usize = 255;

/// Number of characters kept of a longer name, before its digest.
const NAME_CHARS_KEPT: usize = 190;

/// Maximum time until the next start: every daemon asks again after that.
const NEXT_MAX: Duration = Duration::from_secs(3_600);

impl MysqlLedger {
    /// Takes up to `wanted` starts from the bucket that all daemons on this table share for a route.
    ///
    /// # If we crash right after
    /// The starts are taken, and the bucket fills again at its rate.
    ///
    /// # Errors
    /// [`LedgerError::Refused`] if the table of rates is missing or this user may not write it. After any other error, the
    /// starts may have been taken.
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
        let (mut matched, mut granted) = conn.execute_returning_id(take()).await?;
        if matched == 0 {
            let new = statement(self.queries.plain(queries::NEW_RATE)).bind(route.to_string());
            match conn.execute(new).await {
                Err(error) if !is_duplicate(&error) => return Err(error),
                _ => (matched, granted) = conn.execute_returning_id(take()).await?,
            }
        }
        // Another session deletes the row as fast as it is written. The next call asks again.
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

/// Returns the interval between starts, and the length of a burst. Rounded up, so that starts never exceed the rate.
fn nanoseconds(rate: Rate) -> (i64, i64) {
    let start_ns = (rate.interval_us() * 1e3).ceil() as i64;
    let start_ns = start_ns.max(1);
    (start_ns, start_ns.saturating_mul(i64::from(rate.burst())))
}

/// Returns the name of a route's bucket. Cuts a long name, since the pattern of a route may have any length.
fn name(route: &str) -> Cow<'_, str> {
    if route.chars().count() <= NAME_CHARS_MAX {
        return Cow::Borrowed(route);
    }
    let kept: String = route.chars().take(NAME_CHARS_KEPT).collect();
    Cow::Owned(kept + &hex(Sha256::digest(route.as_bytes())))
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
