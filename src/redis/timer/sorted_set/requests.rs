//! Requests of programs that are not acknowledged yet: which were proposed, and when.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;

use lapsed_core::task::{TaskKey, UnixMs, row_due};
use lapsed_core::timer::{Acknowledgement, EntryState};

/// Most requests held. If more wait, the look pauses where it is.
const REQUESTS_MAX: usize = 262_144;

/// Most entries remembered that are no tasks, or that the ledger refuses. Further ones are counted, or proposed, again.
const IGNORED_MAX: usize = 524_288;

/// Delay before a request that got no answer is proposed again.
const PROPOSED_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// How long a request is left to the daemon that owns its task.
const LEFT_TO_OWNER: Duration = Duration::from_secs(3);

/// How long an answer is remembered: within this time, the same score is a new request, because a program that counts
/// in seconds writes the same score again.
const ANSWER_KEPT: Duration = Duration::from_secs(5);

/// How long a request that is not in its set any more is held.
const UNSEEN_KEPT: Duration = Duration::from_secs(60);

/// The place of an entry: index of its set, and its member.
pub(super) type Entry = (usize, Vec<u8>);

/// The requests that were read, one for each entry. Bounded.
#[derive(Debug, Default)]
pub(super) struct Requests {
    by_entry: HashMap<Entry, Request>,
    by_key: HashMap<TaskKey, Entry>,
    /// Hashes of entries and scores that are no tasks, or that the ledger refuses.
    ignored: HashSet<u64>,
    hashes: RandomState,
}

/// A request of a program.
#[derive(Debug, Clone)]
struct Request {
    key: TaskKey,
    score: f64,
    due: UnixMs,
    progress: Progress,
    /// When it was last read.
    seen: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Another daemon owns its task. Since when it is known.
    Left(Instant),
    /// Proposed at this time.
    Proposed(Instant),
    /// It was proposed, and may be about to be replaced: it counts if the next look finds it.
    Unclear,
    /// Acknowledged at this time.
    Answered(Instant),
}

/// What is known about an entry that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// Nothing: pass it to [`Requests::add`].
    New,
    /// It waits for an answer.
    Waits,
    /// It is no task, or the ledger refuses it.
    Ignored,
}

impl Requests {
    /// Compares an entry with what is known. `asked` is when the query was sent that returned it.
    pub(super) fn compare(
        &mut self,
        entry: &Entry,
        score: f64,
        asked: Instant,
        owns: impl Fn(&TaskKey) -> bool,
    ) -> Known {
        if self.ignored.contains(&self.hash(entry, score)) {
            return Known::Ignored;
        }
        let Some(request) = self.by_entry.get_mut(entry) else {
            return Known::New;
        };
        request.seen = Instant::now();
        if request.score != score {
            return Known::New;
        }
        let waits = match request.progress {
            Progress::Left(since) => since.elapsed() < LEFT_TO_OWNER && !owns(&request.key),
            Progress::Proposed(at) => at.elapsed() < PROPOSED_AGAIN_AFTER,
            Progress::Unclear => false,
            // It may have been read before it was acknowledged.
            Progress::Answered(at) => asked <= at,
        };
        match waits {
            true => Known::Waits,
            false => Known::New,
        }
    }

    /// Adds a request, or proposes a known one again. Returns the due time to propose, or `None` if the request is left
    /// to the owner of the task. Returns an error if there is no room.
    pub(super) fn add(
        &mut self,
        entry: Entry,
        key: TaskKey,
        score: f64,
        due: UnixMs,
        owned: bool,
    ) -> Result<Option<UnixMs>, Full> {
        let now = Instant::now();
        let known = self.by_entry.get(&entry);
        if known.is_none() && self.by_entry.len() >= REQUESTS_MAX {
            return Err(Full);
        }
        let known = known.filter(|known| known.score == score);
        let due = match known {
            // Acknowledged once, so this is another request with the same score.
            Some(known) if matches!(known.progress, Progress::Answered(_)) => {
                row_due(UnixMs(known.due.0 + 1)).max(due)
            }
            Some(known) => known.due,
            None => due,
        };
        let was_read =
            |known: &Request| matches!(known.progress, Progress::Left(_) | Progress::Unclear);
        let proposes = owned || known.is_some_and(was_read);
        let progress = match proposes {
            true => Progress::Proposed(now),
            false => Progress::Left(now),
        };
        self.by_key.insert(key.clone(), entry.clone());
        let request = Request {
            key,
            score,
            due,
            progress,
            seen: now,
        };
        self.by_entry.insert(entry, request);
        Ok(proposes.then_some(due))
    }

    /// Ignores an entry that is no task, as long as its score stays. Returns true if it was not ignored before.
    pub(super) fn ignore(&mut self, entry: &Entry, score: f64) -> bool {
        let hash = self.hash(entry, score);
        self.ignored.len() < IGNORED_MAX && self.ignored.insert(hash)
    }

    fn hash(&self, entry: &Entry, score: f64) -> u64 {
        self.hashes.hash_one((entry, score.to_bits()))
    }

    /// Returns the entry and the score that were proposed for a task with this due time.
    pub(super) fn proposed(&self, key: &TaskKey, due: UnixMs) -> Option<(Entry, f64)> {
        let entry = self.by_key.get(key)?;
        let request = self.by_entry.get(entry)?;
        (request.due == due).then(|| (entry.clone(), request.score))
    }

    /// Notes the answer to a request.
    pub(super) fn answered(&mut self, entry: &Entry, score: f64) {
        let request = self.by_entry.get_mut(entry);
        if let Some(request) = request.filter(|request| request.score == score) {
            request.progress = Progress::Answered(Instant::now());
        }
    }

    /// Has a request proposed again by the next look that finds it.
    pub(super) fn unclear(&mut self, entry: &Entry, score: f64) {
        let request = self.by_entry.get_mut(entry);
        if let Some(request) = request.filter(|request| request.score == score) {
            request.progress = Progress::Unclear;
        }
    }

    /// Notes that the ledger refuses a request.
    pub(super) fn refused(&mut self, entry: &Entry, score: f64) {
        self.ignore(entry, score);
        self.forget(entry);
    }

    /// Notes the answer to a request whose entry stays as a program wrote it, whatever the ledger holds: it is not proposed
    /// again, unless the answer is unclear.
    pub(super) fn stays(&mut self, answer: &Acknowledgement) {
        let Some((entry, score)) = self.proposed(&answer.key, answer.requested) else {
            return;
        };
        match answer.state {
            EntryState::Unclear => self.unclear(&entry, score),
            EntryState::Pending(_) | EntryState::Ended | EntryState::Refused => {
                self.refused(&entry, score);
            }
        }
    }

    /// Forgets a request whose entry is gone.
    pub(super) fn forget(&mut self, entry: &Entry) {
        if let Some(Request { key, .. }) = self.by_entry.remove(entry)
            && self.by_key.get(&key) == Some(entry)
        {
            self.by_key.remove(&key);
        }
    }

    /// Forgets answers, and requests that are not in their sets any more.
    pub(super) fn shrink(&mut self) {
        self.by_entry.retain(|_, request| match request.progress {
            Progress::Answered(at) => at.elapsed() < ANSWER_KEPT,
            _ => request.seen.elapsed() < UNSEEN_KEPT,
        });
        let by_entry = &self.by_entry;
        self.by_key.retain(|_, entry| by_entry.contains_key(entry));
    }
}

/// There is no room for another request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> Entry {
        (0, name.as_bytes().to_vec())
    }

    fn key(name: &str) -> TaskKey {
        TaskKey::build("C", "m", [name]).unwrap()
    }

    const DUE: UnixMs = UnixMs(7_001);

    fn add(requests: &mut Requests, name: &str, score: f64, owned: bool) -> Option<UnixMs> {
        let added = requests.add(entry(name), key(name), score, DUE, owned);
        added.unwrap()
    }

    /// Compares the entry `a`, asked for now.
    fn compare(requests: &mut Requests, score: f64, ours: bool) -> Known {
        requests.compare(&entry("a"), score, Instant::now(), |_| ours)
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_proposed_once_until_it_gets_no_answer() {
        let mut requests = Requests::default();
        assert_eq!(compare(&mut requests, 7.0, true), Known::New);
        assert_eq!(add(&mut requests, "a", 7.0, true), Some(DUE));
        assert_eq!(compare(&mut requests, 7.0, true), Known::Waits);
        assert_eq!(compare(&mut requests, 8.0, true), Known::New);
        tokio::time::advance(PROPOSED_AGAIN_AFTER).await;
        assert_eq!(compare(&mut requests, 7.0, true), Known::New);
        assert_eq!(add(&mut requests, "a", 7.0, true), Some(DUE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_left_to_the_owner_for_some_seconds() {
        let mut requests = Requests::default();
        assert_eq!(add(&mut requests, "a", 7.0, false), None);
        assert_eq!(compare(&mut requests, 7.0, false), Known::Waits);
        tokio::time::advance(LEFT_TO_OWNER).await;
        assert_eq!(compare(&mut requests, 7.0, false), Known::New);
        assert_eq!(add(&mut requests, "a", 7.0, false), Some(DUE));
        assert_eq!(compare(&mut requests, 7.0, false), Known::Waits);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unclear_request_is_proposed_by_the_next_look_also_of_a_daemon_that_does_not_own_it()
    {
        let mut requests = Requests::default();
        add(&mut requests, "a", 7.0, true);
        requests.unclear(&entry("a"), 8.0);
        assert_eq!(compare(&mut requests, 7.0, true), Known::Waits);
        requests.unclear(&entry("a"), 7.0);
        assert_eq!(compare(&mut requests, 7.0, false), Known::New);
        assert_eq!(add(&mut requests, "a", 7.0, false), Some(DUE));
        assert_eq!(compare(&mut requests, 7.0, false), Known::Waits);
    }

    #[tokio::test(start_paused = true)]
    async fn an_entry_that_stays_is_proposed_again_only_if_its_answer_is_unclear() {
        let mut requests = Requests::default();
        let answer = |state| Acknowledgement {
            key: key("a"),
            requested: DUE,
            state,
        };
        for state in [
            EntryState::Unclear,
            EntryState::Pending(DUE),
            EntryState::Ended,
            EntryState::Refused,
        ] {
            let known = match state {
                EntryState::Unclear => Known::New,
                _ => Known::Ignored,
            };
            add(&mut requests, "a", 7.0, true);
            requests.stays(&answer(state));
            assert_eq!(compare(&mut requests, 7.0, true), known, "{state:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_score_after_an_answer_is_a_new_request() {
        let mut requests = Requests::default();
        add(&mut requests, "a", 7.0, true);
        let (at, score) = requests.proposed(&key("a"), DUE).unwrap();
        let asked_before = Instant::now();
        requests.answered(&at, score);
        let compared = requests.compare(&entry("a"), 7.0, asked_before, |_| true);
        assert_eq!(compared, Known::Waits);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(compare(&mut requests, 7.0, true), Known::New);
        let again = UnixMs(DUE.0 + 1);
        assert_eq!(add(&mut requests, "a", 7.0, true), Some(again));
        assert_eq!(requests.proposed(&key("a"), DUE), None);
        assert!(requests.proposed(&key("a"), again).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_request_waits_until_its_score_changes() {
        let mut requests = Requests::default();
        add(&mut requests, "a", 7.0, true);
        requests.refused(&entry("a"), 7.0);
        tokio::time::advance(PROPOSED_AGAIN_AFTER).await;
        assert_eq!(compare(&mut requests, 7.0, true), Known::Ignored);
        assert_eq!(compare(&mut requests, 8.0, true), Known::New);
        assert!(requests.ignore(&entry("no task"), 1.0));
        assert!(!requests.ignore(&entry("no task"), 1.0));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_are_gone_are_forgotten() {
        let mut requests = Requests::default();
        add(&mut requests, "answered", 7.0, true);
        requests.answered(&entry("answered"), 7.0);
        add(&mut requests, "gone", 7.0, true);
        tokio::time::advance(UNSEEN_KEPT / 2).await;
        add(&mut requests, "there", 7.0, true);
        tokio::time::advance(UNSEEN_KEPT / 2).await;
        requests.shrink();
        assert_eq!((requests.by_entry.len(), requests.by_key.len()), (1, 1));
        assert!(requests.proposed(&key("there"), DUE).is_some());
        requests.forget(&entry("there"));
        assert_eq!((requests.by_entry.len(), requests.by_key.len()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_bounded() {
        let mut requests = Requests::default();
        for number in 0..IGNORED_MAX + 1 {
            requests.ignore(&entry(&number.to_string()), 1.0);
        }
        assert_eq!(requests.ignored.len(), IGNORED_MAX);
        for number in 0..REQUESTS_MAX {
            add(&mut requests, &number.to_string(), 2.0, true);
        }
        let full = requests.add(entry("more"), key("more"), 1.0, DUE, true);
        assert_eq!(full, Err(Full));
    }
}
