//! Recent events that were left to other daemons. They are replayed when one of those falls silent.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::key_watch::{Change, Receipt};
use lapsed_core::task::TaskKey;

/// How long events are kept. A dead daemon counts as alive for 3 s, and its silence is noticed a second or two later.
const KEPT: Duration = Duration::from_secs(6);

/// Most events kept.
const EVENTS_MAX: usize = 262_144;

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyEvent {
    /// It has expired.
    Expired,
    /// It was armed or disarmed.
    Changed(Change),
}

/// Events that other daemons handle, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Replay {
    events: VecDeque<(Receipt, KeyEvent, TaskKey)>,
    /// When the latest event that did not fit was received.
    lost: Option<Instant>,
}

impl Replay {
    /// Keeps an event.
    pub(super) fn keep(&mut self, receipt: Receipt, event: KeyEvent, key: TaskKey) {
        while let Some((oldest, _, _)) = self.events.front()
            && (oldest.at.elapsed() >= KEPT || self.events.len() >= EVENTS_MAX)
        {
            let dropped = self.events.pop_front();
            let dropped = dropped.map(|(receipt, _, _)| receipt.at);
            self.lost = dropped.filter(|at| at.elapsed() < KEPT).or(self.lost);
        }
        self.events.push_back((receipt, event, key));
    }

    /// Takes all events of the last `KEPT`. Also returns true if some of them were lost.
    pub(super) fn take(&mut self) -> (VecDeque<(Receipt, KeyEvent, TaskKey)>, bool) {
        let mut events = std::mem::take(&mut self.events);
        events.retain(|(receipt, _, _)| receipt.at.elapsed() < KEPT);
        let lost = self.lost.take().is_some_and(|at| at.elapsed() < KEPT);
        (events, lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> TaskKey {
        TaskKey::build("C", "m", [n.to_string()]).unwrap()
    }

    fn now() -> Receipt {
        Receipt {
            at: Instant::now(),
            late_since: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn events_are_kept_in_order_for_some_seconds() {
        let mut replay = Replay::default();
        for (n, event) in [
            (1, KeyEvent::Changed(Change::Armed)),
            (2, KeyEvent::Expired),
        ] {
            replay.keep(now(), event, key(n));
            tokio::time::advance(KEPT / 2).await;
        }
        replay.keep(now(), KeyEvent::Changed(Change::Disarmed), key(3));
        let (events, lost) = replay.take();
        let kept: Vec<TaskKey> = events.into_iter().map(|(_, _, key)| key).collect();
        assert_eq!((kept, lost), (vec![key(2), key(3)], false));
        assert!(replay.take().0.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_event_is_reported() {
        let mut replay = Replay::default();
        for n in 0..=EVENTS_MAX {
            replay.keep(now(), KeyEvent::Expired, key(n));
        }
        let (events, lost) = replay.take();
        assert_eq!((events.len(), lost), (EVENTS_MAX, true));
        assert_eq!(events.front().unwrap().2, key(1));
        assert!(!replay.take().1);
    }
}
