//! The near entries: lapsed's own, due in the next second, read from the sets. They cover tasks that the look-ahead does
//! not know yet, and a daemon without look-ahead.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::state::State;
use crate::RedisError;
use crate::alarms::Score;
use lapsed_core::task::{TaskKey, UnixMs};
use lapsed_core::timer::{Alarm, SignalSink};

/// How far ahead entries are read: longer than the longest pause between two looks.
const AHEAD: Duration = Duration::from_millis(1_500);

/// How far back: an entry may be written after its due time.
const BEHIND_MS: i64 = 200;

/// How far back after a pause: the sweep has found older entries by then.
const BEHIND_MAX_MS: i64 = 60_000;

/// Entries of one query, and queries of one pass. A burst that is larger is read in several passes.
const PAGE: usize = 1000;
const PAGES_MAX: usize = 5;

/// Most entries remembered as read.
const READ_MAX: usize = 200_000;

/// Reads near entries.
pub(super) struct Near {
    state: Arc<State>,
    /// The entries that were read, so that none is raised again.
    read: BTreeSet<(UnixMs, TaskKey)>,
    /// When the last reading of all near entries began: those due since may be unread if this process or Redis was frozen.
    read_at: UnixMs,
    /// When the current one began.
    began: UnixMs,
    /// Where the next pass continues it: set, score and entries to skip.
    position: Option<(usize, f64, usize)>,
}

impl Near {
    pub(super) fn new(state: Arc<State>) -> Self {
        Self {
            read: BTreeSet::new(),
            read_at: state.clock.now(),
            began: state.clock.now(),
            position: None,
            state,
        }
    }

    /// Reads near entries, and has the signals of unknown ones raised when they are due. Returns how many were read.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub(super) async fn pass(&mut self, sink: &dyn SignalSink) -> Result<usize, RedisError> {
        let now = self.state.clock.now();
        if self.position.is_none() {
            self.began = now;
        }
        let oldest = (self.read_at.0.min(now.0) - BEHIND_MS).max(now.0 - BEHIND_MAX_MS);
        let oldest = UnixMs(oldest);
        self.forget_before(oldest);
        let (from, below) = (Score::own(oldest), Score::own(now.plus(AHEAD)));
        let mut read = 0;
        for _ in 0..PAGES_MAX {
            let (set, start, skip) = self.position.unwrap_or((0, from, 0));
            let (start, skip) = match start < from {
                true => (from, 0),
                false => (start, skip),
            };
            let state = &self.state;
            let Some(name) = state.entries.sets().get(set) else {
                self.position = None;
                self.read_at = self.began;
                break;
            };
            let page = state.entries.scored();
            let page = match page.range(name, start, below, skip, PAGE).await {
                Err(error) if error.is_wrong_type() => Vec::new(),
                page => page?,
            };
            self.position = match page.last() {
                Some((_, last)) if page.len() == PAGE => {
                    let same = page.iter().filter(|(_, score)| score == last).count();
                    let skip = if *last == start { skip + same } else { same };
                    Some((set, *last, skip))
                }
                _ => Some((set + 1, from, 0)),
            };
            read += page.len();
            self.expect(set, page, sink);
        }
        Ok(read)
    }

    fn forget_before(&mut self, oldest: UnixMs) {
        while self.read.first().is_some_and(|(due, _)| *due < oldest) {
            self.read.pop_first();
        }
    }

    fn expect(&mut self, set: usize, page: Vec<(Vec<u8>, f64)>, sink: &dyn SignalSink) {
        let state = &self.state;
        let mut alarms = Vec::new();
        for (member, score) in page {
            let Score::Own(due) = state.entries.read_score(score) else {
                continue;
            };
            let Ok(key) = state.entries.key_of(set, &member) else {
                continue;
            };
            if self.read.len() >= READ_MAX || !sink.wants(&key) || !sink.owns(&key) {
                continue;
            }
            if self.read.insert((due, key.clone())) {
                alarms.push(Alarm {
                    key,
                    due,
                    arming: None,
                });
            }
        }
        if !alarms.is_empty() {
            state.expect(alarms);
        }
    }
}
