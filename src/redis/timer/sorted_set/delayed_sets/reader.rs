//! Reads the sets: new jobs are proposed for adoption, and those that another program has removed for cancellation.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::super::inbox::{PAGE, PAGES_MAX, Position};
use super::super::quiet::Quiet;
use super::super::requests::{Entry, Known, Requests};
use super::sets::{DelayedSets, due_of, seconds};
use crate::{RedisError, SeenJob};
use lapsed_core::config::job_payload;
use lapsed_core::task::{DELAY_MAX, Foreign, Removal, TaskKey, UnixMs};
use lapsed_core::telemetry::DropReason;
use lapsed_core::timer::{AdoptionCandidate, AdoptionSink, Alarm, Seen};

/// Pause between two looks, and after an error.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_secs(1);

/// Pause per job that was read.
const PAUSE_PER_JOB: Duration = Duration::from_micros(20);

/// Pause between two pages of a register.
const PAGE_EVERY: Duration = Duration::from_secs(1);

/// A job that is gone this long before its due time was not moved by a poller whose clock is a little ahead.
const AHEAD_S: f64 = 2.0;

/// After this many jobs all are compared with the ledger again: the memory of those that are known is bounded.
const KNOWN_MAX: usize = 400_000;

/// Reads the sets, in order of the scores.
pub(super) struct Reader {
    sets: Arc<DelayedSets>,
    /// What can be left out of each set, and where the next look goes on.
    places: Vec<(Quiet, Position)>,
    /// Jobs that became known.
    known: usize,
}

/// A job that is new to this daemon.
struct NewJob {
    entry: Entry,
    key: TaskKey,
    score: f64,
    due: UnixMs,
}

impl Reader {
    pub(super) fn new(sets: Arc<DelayedSets>) -> Self {
        let count = sets.sets.len();
        let place = |set| (Quiet::default(), Position::start_of(set));
        Self {
            places: (0..count).map(place).collect(),
            sets,
            known: 0,
        }
    }

    /// Looks at the sets, forever.
    pub(super) async fn run(mut self, sink: &dyn AdoptionSink) -> Infallible {
        loop {
            let began = Instant::now();
            let mut read = 0;
            for set in 0..self.places.len() {
                match self.look(set, sink).await {
                    Ok(jobs) => read += jobs,
                    Err(error) => {
                        self.sets.warn(
                            "cannot read a delayed set: its tasks run from the ledger alone meanwhile",
                            &error,
                        );
                        // Redis may be back with older data.
                        self.forget();
                        sleep(PAUSE).await;
                    }
                }
            }
            self.sets.requests().shrink();
            if self.known >= KNOWN_MAX {
                self.forget();
            }
            let pause = PAUSE_PER_JOB.saturating_mul(u32::try_from(read).unwrap_or(u32::MAX));
            sleep_until(began + LOOK_EVERY.max(pause)).await;
        }
    }

    /// Forgets which jobs are known.
    fn forget(&mut self) {
        *self.sets.requests() = Requests::default();
        self.known = 0;
        for (set, place) in self.places.iter_mut().enumerate() {
            *place = (Quiet::default(), Position::start_of(set));
        }
    }

    /// Reads a bounded number of jobs of a set. Returns how many.
    async fn look(&mut self, set: usize, sink: &dyn AdoptionSink) -> Result<usize, RedisError> {
        let sets = Arc::clone(&self.sets);
        let name = sets.sets[set].config.set();
        let mut read = 0;
        for _ in 0..PAGES_MAX {
            let (quiet, position) = &mut self.places[set];
            if *position == Position::start_of(set) {
                let ranges = quiet.ranges().iter();
                let ranges: Vec<(f64, f64)> = ranges.map(|range| (range.from, range.to)).collect();
                quiet.begin(&sets.scored.counts(name, &ranges).await?);
            }
            let (start, below) = quiet.gap(position.from, f64::INFINITY);
            if position.skip == 0 {
                position.from = start;
            }
            let Position { from, skip, .. } = *position;
            let asked = Instant::now();
            let page = sets.scored.range(name, from, below, skip, PAGE).await?;
            let next = match position.after(&page) {
                // Behind a quiet range.
                None if below < f64::INFINITY => Some(Position {
                    from: below,
                    skip: 0,
                    set,
                }),
                next => next,
            };
            read += page.len();
            self.propose(set, page, asked, sink).await?;
            let (quiet, position) = &mut self.places[set];
            match next {
                Some(next) => *position = next,
                None => {
                    quiet.end();
                    *position = Position::start_of(set);
                    break;
                }
            }
        }
        Ok(read)
    }

    /// Proposes the new jobs of a page, after they were noted in the register.
    async fn propose(
        &mut self,
        set: usize,
        page: Vec<(Vec<u8>, f64)>,
        asked: Instant,
        sink: &dyn AdoptionSink,
    ) -> Result<(), RedisError> {
        let sets = Arc::clone(&self.sets);
        let heard = sets.clock.now();
        let mut jobs = Vec::new();
        for (member, score) in page {
            let entry: Entry = (set, member);
            let known = sets
                .requests()
                .compare(&entry, score, asked, |key| sink.owns(key));
            let job = match known {
                Known::New => self.read(entry, score, heard, sink),
                Known::Ignored => Err(true),
                Known::Waits => Err(false),
            };
            let is_quiet = matches!(job, Err(true));
            self.places[set].0.note(score, is_quiet);
            jobs.extend(job.ok());
        }
        let seen = jobs.iter().map(|job| SeenJob {
            key: job.key.as_str().to_owned(),
            member: job.entry.1.clone(),
            score: job.score,
        });
        let seen = sets.sets[set].jobs.see(&seen.collect::<Vec<_>>()).await?;
        self.known += jobs.len();
        for (job, is_there) in jobs.into_iter().zip(seen) {
            match is_there {
                true => sink.propose(AdoptionCandidate {
                    payload: Some(Arc::from(job_payload(&job.entry.1))),
                    key: job.key,
                    seen: Seen::Requested {
                        due: job.due,
                        heard,
                    },
                }),
                false => sets.requests().forget(&job.entry),
            }
        }
        Ok(())
    }

    /// Reads a job. `Err` says whether it is to be left out.
    fn read(
        &mut self,
        entry: Entry,
        score: f64,
        heard: UnixMs,
        sink: &dyn AdoptionSink,
    ) -> Result<NewJob, bool> {
        let sets = &self.sets;
        let key = sets.sets[entry.0].config.key_of(&entry.1);
        let due = due_of(score).filter(|due| *due <= heard.plus(DELAY_MAX));
        let (key, due) = match (key, due.ok_or(Foreign::NotInGrammar)) {
            (Ok(key), Ok(due)) => (key, due),
            (Err(why), _) | (_, Err(why)) => {
                self.leave_out(&entry, score, why);
                return Err(true);
            }
        };
        if !sink.wants(&key) {
            return Err(true);
        }
        let owned = sink.owns(&key);
        let mut requests = sets.requests();
        match requests.add(entry.clone(), key.clone(), score, due, owned) {
            Ok(Some(due)) => Ok(NewJob {
                entry,
                key,
                score,
                due,
            }),
            // Its owner proposes it, or there is no room.
            Ok(None) | Err(_) => Err(false),
        }
    }

    /// Counts and logs a member that is no job of the framework, once.
    fn leave_out(&mut self, entry: &Entry, score: f64, why: Foreign) {
        let sets = &self.sets;
        if !sets.requests().ignore(entry, score) {
            return;
        }
        self.known += 1;
        let reason = match why {
            Foreign::NotInGrammar => DropReason::Foreign,
            Foreign::TooLong => DropReason::TooLong,
            Foreign::NotUtf8 => DropReason::NotUtf8,
        };
        sets.metrics.dropped(reason, 1);
        if let Some(held_back) = sets.warnings.admit(reason.as_str()) {
            let set = sets.sets[entry.0].config.set();
            tracing::warn!(
                %reason,
                redis.key = set,
                held_back,
                "a member of a delayed set is no job of its framework, or does not fit a task: it is left to the framework"
            );
        }
    }
}

/// Reads the registers, page by page, forever. Tasks of jobs that another program has removed are proposed for
/// cancellation.
pub(super) async fn find_removed(sets: &DelayedSets, sink: &dyn AdoptionSink) -> Infallible {
    let mut cursors = vec![0; sets.sets.len()];
    loop {
        sleep(PAGE_EVERY).await;
        for (set, cursor) in sets.sets.iter().zip(&mut cursors) {
            let heard = sets.clock.now();
            let after = seconds(heard) + AHEAD_S;
            match set.jobs.missing(*cursor, after, f64::NEG_INFINITY).await {
                Ok(page) => {
                    *cursor = page.cursor;
                    let keys = page
                        .missing
                        .iter()
                        .filter_map(|key| TaskKey::parse(key).ok());
                    let keys = keys.filter(|key| sink.wants(key) && sink.owns(key));
                    let alarm = |key| Alarm {
                        key,
                        due: UnixMs::default(),
                        arming: None,
                    };
                    let _ =
                        sets.absences
                            .report(keys.map(alarm).collect(), Removal::at(heard), sink);
                }
                Err(error) => sets.warn("cannot look for removed jobs", &error),
            }
        }
    }
}
