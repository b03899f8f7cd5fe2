//! The inbox: requests of programs that are not acknowledged yet, proposed for adoption.

use std::sync::Arc;

use tokio::time::Instant;

use super::requests::{Entry, Full, Known};
use super::score::{OWN_FROM, Score};
use super::state::State;
use crate::redis::{RedisError, ScoreChange};
use crate::task::{DELAY_MAX, Foreign, TaskKey, UnixMs};
use crate::telemetry::DropReason;
use crate::timer::{AdoptionCandidate, Seen, SignalSink};

/// Entries of one query, and queries of one look.
const PAGE: usize = 1000;
const PAGES_MAX: usize = 10;

/// Reads the requests in the sets, in order of their scores, one set after the other.
pub(super) struct Inbox {
    state: Arc<State>,
    position: Position,
}

/// Where the next page begins.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Position {
    /// Index of the set.
    set: usize,
    /// The lowest score of the page.
    from: f64,
    /// How many entries with this score were read already.
    skip: usize,
}

impl Position {
    fn start_of(set: usize) -> Self {
        Self {
            set,
            from: f64::NEG_INFINITY,
            skip: 0,
        }
    }

    /// Returns where the page after these entries begins; `None` if they are the last of the set.
    fn after(self, entries: &[(Vec<u8>, f64)]) -> Option<Self> {
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
    /// Requests that were new.
    pub(super) new: usize,
    /// True if the look ended before the end of the last set.
    pub(super) unfinished: bool,
}

impl Inbox {
    pub(super) fn new(state: Arc<State>) -> Self {
        Self {
            state,
            position: Position::start_of(0),
        }
    }

    /// Reads a bounded number of requests and proposes new ones. The next look continues where this one ended.
    ///
    /// # Errors
    /// If Redis does not answer. The next look repeats the page.
    pub(super) async fn look(&mut self, sink: &dyn SignalSink) -> Result<Look, RedisError> {
        let mut look = Look::default();
        for _ in 0..PAGES_MAX {
            let Position { set, from, skip } = self.position;
            let state = &self.state;
            let name = &state.entries.sets()[set];
            let asked = Instant::now();
            let page = state.entries.scored();
            let page = match page.range(name, from, OWN_FROM, skip, PAGE).await {
                // The other sets can be read.
                Err(error) if error.is_wrong_type() => {
                    state.warn(WRONG_TYPE, &error);
                    Vec::new()
                }
                page => page?,
            };
            let next = self.position.after(&page);
            look.read += page.len();
            let (new, is_full) = self.propose_page(set, page, asked, sink).await?;
            look.new += new;
            if is_full {
                look.unfinished = true;
                return Ok(look);
            }
            self.position = match next {
                Some(next) => next,
                None if set + 1 < state.entries.sets().len() => Position::start_of(set + 1),
                None => {
                    self.position = Position::start_of(0);
                    return Ok(look);
                }
            };
        }
        look.unfinished = true;
        Ok(look)
    }

    /// Proposes the new requests of a page. Returns how many were new, and whether there was no room for more.
    async fn propose_page(
        &self,
        set: usize,
        page: Vec<(Vec<u8>, f64)>,
        asked: Instant,
        sink: &dyn SignalSink,
    ) -> Result<(usize, bool), RedisError> {
        let state = &self.state;
        let wants = |key: &TaskKey| sink.wants(key);
        let owns = |key: &TaskKey| sink.owns(key);
        let reader = Reader::new(state, &wants, &owns, asked);
        let (mut new, mut is_full, mut dated) = (0, false, Vec::new());
        for (member, score) in page {
            let entry: Entry = (set, member);
            match reader.read(&entry, score) {
                Request::Known => continue,
                Request::New(candidate) => sink.propose(candidate),
                Request::Left => {}
                Request::Now => dated.push(reader.date(entry, score)),
                Request::NoRoom => {
                    is_full = true;
                    break;
                }
            }
            new += 1;
        }
        if !dated.is_empty() {
            // The next look proposes them.
            state.entries.change(&dated).await?;
            state.changed.notify_one();
        }
        Ok((new, is_full))
    }
}

/// What an entry of a program means.
pub(super) enum Request {
    /// Nothing new: it is known, not wanted, or no task.
    Known,
    /// To be proposed.
    New(AdoptionCandidate),
    /// Left to the daemon that owns its task.
    Left,
    /// It has no due time yet: see [`Reader::date`].
    Now,
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
        if state.requests().compare(entry, score, asked, self.owns) == Known::Waits {
            return Request::Known;
        }
        let key = match state.entries.key_of(&entry.1) {
            Ok(key) => key,
            Err(why) => {
                ignore(state, entry, score, why);
                return Request::Known;
            }
        };
        if !(self.wants)(&key) {
            return Request::Known;
        }
        let owned = (self.owns)(&key);
        let due = match state.entries.read_score(score) {
            Score::Request(due) if due <= heard.plus(DELAY_MAX) => due,
            Score::RequestNow if owned => return Request::Now,
            // Its owner dates it.
            Score::RequestNow => return Request::Known,
            Score::Request(_) | Score::Never | Score::Own(_) => {
                ignore(state, entry, score, Foreign::NotInGrammar);
                return Request::Known;
            }
        };
        let added = state
            .requests()
            .add(entry.clone(), key.clone(), score, due, owned);
        match added {
            Ok(Some(due)) => {
                let seen = Seen::Requested { due, heard };
                Request::New(AdoptionCandidate::of_key(key, seen))
            }
            Ok(None) => Request::Left,
            Err(Full) => Request::NoRoom,
        }
    }

    /// Gives a request for a run at once its due time: that of the first look. Without one, each look would propose
    /// another due time.
    pub(super) fn date(&self, entry: Entry, score: f64) -> ScoreChange {
        let (set, member) = entry;
        ScoreChange {
            set,
            member,
            from: score,
            to: Some(self.state.entries.request_score(self.heard)),
        }
    }
}

/// Counts and logs an entry that is no task, once.
fn ignore(state: &State, entry: &Entry, score: f64, why: Foreign) {
    if !state.requests().ignore(entry.clone(), score) {
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
