//! The inbox: requests of programs that are not acknowledged yet, proposed for adoption.

use std::sync::Arc;

use tokio::time::Instant;

use super::quiet::Quiet;
use super::requests::{Entry, Full, Known};
use super::state::State;
use crate::alarms::{OWN_FROM, Score};
use crate::{RedisError, ScoreChange};
use lapsed_core::task::{DELAY_MAX, Foreign, TaskKey, UnixMs};
use lapsed_core::telemetry::DropReason;
use lapsed_core::timer::{AdoptionCandidate, AdoptionSink, Seen};

/// Entries of one query, and queries of one look.
pub(super) const PAGE: usize = 1000;
pub(super) const PAGES_MAX: usize = 10;

/// Reads the requests in the sets, in order of their scores, one set after the other.
pub(super) struct Inbox {
    state: Arc<State>,
    position: Position,
    /// What can be left out, for each set.
    quiet: Vec<Quiet>,
}

/// Where the next page begins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Position {
    /// Index of the set.
    pub(super) set: usize,
    /// The lowest score of the page.
    pub(super) from: f64,
    /// How many entries with this score were read already.
    pub(super) skip: usize,
}

impl Position {
    pub(super) fn start_of(set: usize) -> Self {
        Self {
            set,
            from: f64::NEG_INFINITY,
            skip: 0,
        }
    }

    /// Returns where the page after these entries begins; `None` if they are the last of the set.
    pub(super) fn after(self, entries: &[(Vec<u8>, f64)]) -> Option<Self> {
        if entries.len() < PAGE {
            return None;
        }
        let (_, last) = entries.last()?;
        let same = entries.iter().rev().take_while(|(_, score)| score == last);
        let same = same.count();
        let skip = match *last == self.from {
            true => self.skip + same,
            false => same,
        };
        Some(Self {
            from: *last,
            skip,
            ..self
        })
    }
}

/// The result of a look.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Look {
    /// Entries read.
    pub(super) read: usize,
    /// Entries read that are none of this daemon.
    pub(super) quiet: usize,
    /// Requests that were new.
    pub(super) new: usize,
    /// True if the look ended before the end of the last set.
    pub(super) unfinished: bool,
}

impl Inbox {
    pub(super) fn new(state: Arc<State>) -> Self {
        let sets = state.entries.sets().iter();
        Self {
            quiet: sets.map(|_| Quiet::default()).collect(),
            state,
            position: Position::start_of(0),
        }
    }

    /// Reads a bounded number of requests and proposes new ones. The next look continues where this one ended.
    ///
    /// # Errors
    /// If Redis does not answer. The next look reads the set from its beginning.
    pub(super) async fn look(&mut self, sink: &dyn AdoptionSink) -> Result<Look, RedisError> {
        let looked = self.look_on(sink).await;
        if looked.is_err() {
            self.position = Position::start_of(self.position.set);
        }
        looked
    }

    async fn look_on(&mut self, sink: &dyn AdoptionSink) -> Result<Look, RedisError> {
        let mut look = Look::default();
        while look.read < PAGE * PAGES_MAX {
            let Position { set, from, skip } = self.position;
            let state = Arc::clone(&self.state);
            let name = &state.entries.sets()[set];
            if self.position == Position::start_of(set) {
                self.begin(set).await?;
            }
            let (from, below) = match skip {
                0 => self.quiet[set].gap(from, OWN_FROM),
                _ => (from, self.quiet[set].gap(from, OWN_FROM).1),
            };
            self.position.from = from;
            let asked = Instant::now();
            let page = state.entries.scored();
            let page = match page.range(name, from, below, skip, PAGE).await {
                // The other sets can be read.
                Err(error) if error.is_wrong_type() => {
                    state.warn(WRONG_TYPE, &error);
                    Vec::new()
                }
                page => page?,
            };
            let next = match self.position.after(&page) {
                // Behind a quiet range.
                None if below < OWN_FROM => Some(Position {
                    from: below,
                    skip: 0,
                    set,
                }),
                next => next,
            };
            // A page costs a query, however little is in it.
            look.read += page.len().max(1);
            let (new, quiet, is_full) = self.propose_page(set, page, asked, sink).await?;
            look.new += new;
            look.quiet += quiet;
            if is_full {
                // Answers make room. Until then, the other sets and pages are not held up.
                look.unfinished = true;
            }
            let Some(next) = next else {
                self.quiet[set].end();
                let following = (set + 1) % state.entries.sets().len();
                self.position = Position::start_of(following);
                if following == 0 {
                    return Ok(look);
                }
                continue;
            };
            self.position = next;
        }
        look.unfinished = true;
        Ok(look)
    }

    /// Begins to read a set: leaves out the ranges in which nothing has changed.
    async fn begin(&mut self, set: usize) -> Result<(), RedisError> {
        let state = &self.state;
        let ranges = self.quiet[set].ranges().iter();
        let ranges: Vec<(f64, f64)> = ranges.map(|range| (range.from, range.to)).collect();
        let counts = match ranges.is_empty() {
            true => Vec::new(),
            false => {
                let scored = state.entries.scored();
                match scored.counts(&state.entries.sets()[set], &ranges).await {
                    Err(error) if error.is_wrong_type() => Vec::new(),
                    counts => counts?,
                }
            }
        };
        self.quiet[set].begin(&counts);
        Ok(())
    }

    /// Proposes the new requests of a page. Returns how many were new, how many are none of this daemon, and whether
    /// there was no room for more.
    async fn propose_page(
        &mut self,
        set: usize,
        page: Vec<(Vec<u8>, f64)>,
        asked: Instant,
        sink: &dyn AdoptionSink,
    ) -> Result<(usize, usize, bool), RedisError> {
        let state = Arc::clone(&self.state);
        let state = &*state;
        let wants = |key: &TaskKey| sink.wants(key);
        let owns = |key: &TaskKey| sink.owns(key);
        let reader = Reader::new(state, &wants, &owns, asked);
        let (mut new, mut quiet, mut is_full, mut dated) = (0, 0, false, Vec::new());
        for (member, score) in page {
            let entry: Entry = (set, member);
            let request = reader.read(&entry, score);
            self.quiet[set].note(score, matches!(request, Request::Ignored));
            match request {
                Request::Known => continue,
                Request::Ignored => {
                    quiet += 1;
                    continue;
                }
                Request::New(candidate) => sink.propose(candidate),
                Request::Left => {}
                Request::Now(key) => dated.push(reader.date(key, entry, score)),
                Request::NoRoom => {
                    is_full = true;
                    continue;
                }
            }
            new += 1;
        }
        if !dated.is_empty() {
            // The next look proposes them.
            state.entries.change(&dated).await?;
            state.changed.notify_one();
        }
        Ok((new, quiet, is_full))
    }
}

/// What an entry of a program means.
pub(super) enum Request {
    /// Nothing new.
    Known,
    /// Not wanted, or no task.
    Ignored,
    /// To be proposed.
    New(AdoptionCandidate),
    /// Left to the daemon that owns its task.
    Left,
    /// It has no due time yet: see [`Reader::date`].
    Now(TaskKey),
    /// Too many requests wait for an answer.
    NoRoom,
}

/// Reads entries of programs.
pub(super) struct Reader<'a> {
    state: &'a State,
    wants: &'a (dyn for<'k> Fn(&'k TaskKey) -> bool + Send + Sync),
    owns: &'a (dyn for<'k> Fn(&'k TaskKey) -> bool + Send + Sync),
    heard: UnixMs,
    asked: Instant,
}

const WRONG_TYPE: &str =
    "a key of `sorted_set.keys` is not a sorted set: its tasks run from the ledger alone";

impl<'a> Reader<'a> {
    /// Reads entries that a query returned which was sent at `asked`.
    pub(super) fn new(
        state: &'a State,
        wants: &'a (dyn for<'k> Fn(&'k TaskKey) -> bool + Send + Sync),
        owns: &'a (dyn for<'k> Fn(&'k TaskKey) -> bool + Send + Sync),
        asked: Instant,
    ) -> Self {
        Self {
            state,
            wants,
            owns,
            heard: state.clock.now(),
            asked,
        }
    }

    /// Reads an entry.
    pub(super) fn read(&self, entry: &Entry, score: f64) -> Request {
        let Self {
            state,
            heard,
            asked,
            ..
        } = *self;
        let known = state.requests().compare(entry, score, asked, self.owns);
        match known {
            Known::New => {}
            Known::Waits => return Request::Known,
            Known::Ignored => return Request::Ignored,
        }
        let key = match state.entries.key_of(entry.0, &entry.1) {
            Ok(key) => key,
            Err(why) => {
                ignore(state, entry, score, why);
                return Request::Ignored;
            }
        };
        if !(self.wants)(&key) {
            return Request::Ignored;
        }
        let owned = (self.owns)(&key);
        let due = match state.entries.read_score(score) {
            Score::Request(due) if due <= heard.plus(DELAY_MAX) => due,
            Score::RequestNow if owned => return Request::Now(key),
            // Its owner dates it.
            Score::RequestNow => return Request::Known,
            Score::Request(_) | Score::Never | Score::Own(_) => {
                ignore(state, entry, score, Foreign::NotInGrammar);
                return Request::Ignored;
            }
        };
        let added = state
            .requests()
            .add(entry.clone(), key.clone(), score, due, owned);
        match added {
            Ok(Some(due)) => {
                let seen = Seen::Requested { due, heard };
                let payload = state.entries.payload_of(entry.0, &entry.1).map(Arc::from);
                Request::New(AdoptionCandidate { key, seen, payload })
            }
            Ok(None) => Request::Left,
            Err(Full) => Request::NoRoom,
        }
    }

    /// Gives a request for a run at once its due time: that of the first look. Without one, each look would propose
    /// another due time.
    pub(super) fn date(&self, key: TaskKey, entry: Entry, score: f64) -> ScoreChange {
        let (set, member) = entry;
        ScoreChange {
            set,
            member,
            from: score,
            to: Some(self.state.entries.request_score(self.heard)),
            key: key.as_str().to_owned(),
            due_ms: self.heard.0,
            keeps_member: false,
        }
    }
}

/// Counts and logs an entry that is no task, once.
fn ignore(state: &State, entry: &Entry, score: f64, why: Foreign) {
    if !state.requests().ignore(entry, score) {
        return;
    }
    let reason = match why {
        Foreign::NotInGrammar => DropReason::Foreign,
        Foreign::TooLong => DropReason::TooLong,
        Foreign::NotUtf8 => DropReason::NotUtf8,
    };
    state.metrics.dropped(reason, 1);
    if let Some(held_back) = state.warnings.admit(reason.as_str()) {
        tracing::warn!(
            %reason,
            redis.key = state.entries.sets()[entry.0],
            held_back,
            "members that are no tasks, or have no due time, stay in the set; `sorted_set.member` can map members to tasks"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_ends_within_entries_of_the_same_score() {
        let entries = |scores: &[f64]| -> Vec<(Vec<u8>, f64)> {
            scores.iter().map(|score| (Vec::new(), *score)).collect()
        };
        let start = Position::start_of(1);
        assert_eq!(start.after(&entries(&[1.0; PAGE - 1])), None);
        let at = |from, skip| Some(Position { set: 1, from, skip });
        let mut scores = [1.0; PAGE];
        scores[PAGE - 2..].fill(2.0);
        assert_eq!(start.after(&entries(&scores)), at(2.0, 2));
        let second = at(2.0, 2).unwrap();
        assert_eq!(second.after(&entries(&[2.0; PAGE])), at(2.0, 2 + PAGE));
    }
}
