//! The look-ahead: keeps in memory what falls due in the next seconds, so that the timer can be exact about it.
//!
//! Rows are read once, when the horizon reaches them. What is near is looked at again each time, because rows
//! are created and moved in place; but of a row that is known, only its index entry is read.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Shared;
use crate::fleet::Division;
use crate::ledger::{DuePage, DueScan, LedgerError, Upcoming, Window};
use crate::task::UnixMs;
use crate::timer::Alarm;

/// How far it reads anew each time, at least until it comes again.
const NEAR: Duration = Duration::from_secs(2);

/// Most rows that are known at once: with more in sight, it looks less far. The timer holds a few more, for what it
/// learns by itself.
const KNOWN_MAX: usize = 150_000;

/// Rows of one page: whole ones, and of index entries.
const PAGE: u32 = 1_000;
const GLANCE_PAGE: u32 = 10_000;

/// What was read, ours and others', and how far that goes.
#[derive(Debug, Default)]
struct Ahead {
    /// When each row falls due.
    known: HashMap<u64, UnixMs>,
    /// The last row that was read, in the order of due times.
    edge: Option<(UnixMs, u64)>,
    /// Among whom the rows were divided.
    division: Division,
    /// By which routes they were judged.
    reloads: u64,
}

impl Shared {
    /// Looks ahead every `sweep.interval`, until the engine stops. Beside the sweep and not behind it: a backlog must not
    /// make what falls due now late.
    pub(super) async fn look_ahead_until_stopped(self: Arc<Self>) {
        let work = async {
            let mut ahead = Ahead::default();
            loop {
                let began = Instant::now();
                if let Err(error) = self.look_ahead(&mut ahead).await {
                    self.ledger_failed("look ahead", &error);
                }
                let again = tokio::time::sleep_until(began + self.jittered(self.sweep.interval));
                tokio::select! {
                    () = again => {}
                    () = self.shares_changed.notified() => {}
                }
            }
        };
        self.stopping.run_until_cancelled(work).await;
    }

    async fn look_ahead(&self, ahead: &mut Ahead) -> Result<(), LedgerError> {
        let horizon = self.nudge.horizon;
        if self.nudge.enabled {
            let (division, reloads) = (self.share.division(), self.parts.router.reloads());
            if division != ahead.division || reloads != ahead.reloads {
                // What has become ours, or can be run now, may be among what was passed over.
                *ahead = Ahead {
                    division,
                    reloads,
                    ..Ahead::default()
                };
            }
            let now = self.parts.ledger.clock().now();
            ahead.known.retain(|_, due| *due > now);
            let near = NEAR.max(self.sweep.interval.saturating_mul(2)).min(horizon);
            self.read_news(ahead, near).await?;
            ahead.shrink();
            self.read_on(ahead, now.plus(near), horizon).await?;
        }
        self.revive_deleted(horizon).await?;
        Ok(())
    }

    /// What is new within `span`.
    async fn read_news(&self, ahead: &mut Ahead, span: Duration) -> Result<(), LedgerError> {
        let mut after = None;
        loop {
            let scan = DueScan {
                window: Window::Ahead(span),
                after,
                limit: GLANCE_PAGE,
            };
            let known = |row: u64, due: UnixMs| ahead.known.get(&row) == Some(&due);
            let page = self.parts.ledger.scan_news(scan, &known).await?;
            after = page.next;
            self.expect_page(ahead, page);
            if after.is_none() || ahead.known.len() > KNOWN_MAX {
                return Ok(());
            }
        }
    }

    /// What the horizon has reached since the last time, as far as there is room for it.
    async fn read_on(
        &self,
        ahead: &mut Ahead,
        near_end: UnixMs,
        horizon: Duration,
    ) -> Result<(), LedgerError> {
        let mut after = ahead.edge.max(Some((near_end, 0)));
        while ahead.known.len() < KNOWN_MAX {
            let end = self.parts.ledger.clock().now().plus(horizon);
            let scan = DueScan {
                window: Window::Ahead(horizon),
                after,
                limit: PAGE,
            };
            let page = self.parts.ledger.scan(scan).await?;
            after = page.next;
            self.expect_page(ahead, page);
            ahead.edge = Some(after.unwrap_or((end, 0)));
            if after.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn expect_page(&self, ahead: &mut Ahead, page: DuePage) {
        let rows = page.rows.into_iter();
        let rows = rows.inspect(|row| {
            ahead.known.insert(row.arming.row, row.due_at);
        });
        let runnable = rows.filter(|row| self.parts.router.find(&row.key).is_some());
        let runnable = runnable.filter(|row| self.share.owns(&row.key));
        let alarms: Vec<Alarm> = runnable.map(alarm).collect();
        if !alarms.is_empty() {
            self.parts.timer.expect(alarms);
        }
    }
}

impl Ahead {
    /// Forgets what lies furthest ahead, if more is known than may be: it is read again when it is near.
    fn shrink(&mut self) {
        if self.known.len() <= KNOWN_MAX {
            return;
        }
        let mut places: Vec<(UnixMs, u64)> =
            self.known.iter().map(|(row, due)| (*due, *row)).collect();
        let (_, edge, _) = places.select_nth_unstable(KNOWN_MAX - 1);
        let edge = *edge;
        self.known.retain(|row, due| (*due, *row) <= edge);
        self.edge = Some(edge);
    }
}

/// What the timer has to know of a row.
pub(super) fn alarm(row: Upcoming) -> Alarm {
    let Upcoming {
        key,
        arming,
        due_at,
    } = row;
    Alarm {
        key,
        due: due_at,
        arming: Some(arming),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_too_much_is_in_sight_the_furthest_is_forgotten() {
        let mut ahead = Ahead::default();
        let due = |row: u64| UnixMs(i64::try_from(row / 2).unwrap());
        ahead.known = (0..KNOWN_MAX as u64 + 3)
            .map(|row| (row, due(row)))
            .collect();
        ahead.shrink();
        let last = KNOWN_MAX as u64 - 1;
        assert_eq!(ahead.known.len(), KNOWN_MAX);
        assert_eq!(ahead.edge, Some((due(last), last)));
        ahead.shrink();
        assert_eq!(ahead.known.len(), KNOWN_MAX);
    }
}
