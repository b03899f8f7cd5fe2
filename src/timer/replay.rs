//! What was heard lately and left to other daemons: it is judged again when one of them falls silent.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::key_watch::Change;
use crate::task::TaskKey;

/// How long it is kept: a daemon that dies is believed to live for 3 s, and its silence is seen a second or two later.
const KEPT: Duration = Duration::from_secs(6);

/// Most events that are kept.
const EVENTS_MAX: usize = 262_144;

/// What an event said of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// It has expired.
    Expired,
    /// It was armed or disarmed.
    Changed(Change),
}

/// Events that others were to act on, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Replay {
    events: VecDeque<(Instant, Said, TaskKey)>,
    /// When the latest of those was heard for which there was no room.
    lost: Option<Instant>,
}

impl Replay {
    /// Keeps an event that was heard then.
    pub(super) fn keep(&mut self, at: Instant, said: Said, key: TaskKey) {
        while let Some((oldest, _, _)) = self.events.front()
            && (oldest.elapsed() >= KEPT || self.events.len() >= EVENTS_MAX)
        {
            let dropped = self.events.pop_front();
            let dropped = dropped.map(|(at, _, _)| at);
            self.lost = dropped.filter(|at| at.elapsed() < KEPT).or(self.lost);
        }
        self.events.push_back((at, said, key));
    }

    /// Takes out what is kept. Also answers whether something as young was lost.
    pub(super) fn take(&mut self) -> (VecDeque<(Instant, Said, TaskKey)>, bool) {
        let mut events = std::mem::take(&mut self.events);
        events.retain(|(at, _, _)| at.elapsed() < KEPT);
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

    #[tokio::test(start_paused = true)]
    async fn events_are_kept_in_order_for_some_seconds() {
        let mut replay = Replay::default();
        for (n, said) in [(1, Said::Changed(Change::Armed)), (2, Said::Expired)] {
            replay.keep(Instant::now(), said, key(n));
            tokio::time::advance(KEPT / 2).await;
        }
        replay.keep(Instant::now(), Said::Changed(Change::Disarmed), key(3));
        let (events, lost) = replay.take();
        let kept: Vec<TaskKey> = events.into_iter().map(|(_, _, key)| key).collect();
        assert_eq!((kept, lost), (vec![key(2), key(3)], false));
        assert!(replay.take().0.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_said_when_there_was_no_room() {
        let mut replay = Replay::default();
        for n in 0..=EVENTS_MAX {
            replay.keep(Instant::now(), Said::Expired, key(n));
        }
        let (events, lost) = replay.take();
        assert_eq!((events.len(), lost), (EVENTS_MAX, true));
        assert_eq!(events.front().unwrap().2, key(1));
        assert!(!replay.take().1);
    }
}
