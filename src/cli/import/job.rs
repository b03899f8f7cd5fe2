//! A job of another system, as it was read there.

use std::sync::Arc;

use lapsed::config::JobPart;
use lapsed::task::{Contents, TaskKey, UnixMs, quoted};

/// A job that becomes a task.
#[derive(Debug, Clone)]
pub struct Job {
    pub id: Vec<u8>,
    /// Queue, or name of the sorted set.
    pub queue: Arc<str>,
    pub name: String,
    pub class: String,
    pub method: String,
    /// The task key, if the job has one already.
    pub key: Option<TaskKey>,
    pub due: UnixMs,
    /// The due time was computed from a remaining time, and differs a little each time.
    pub due_is_estimated: bool,
    /// Payload, tag and limit of the task.
    pub contents: Contents,
    /// The payload has the id, as far as the key may not have it.
    pub payload_has_id: bool,
    /// Runs that have failed.
    pub attempts: u16,
    /// What the task does not keep of the job, as in "3 jobs ..".
    pub missing: Option<&'static str>,
    pub place: Place,
}

/// Where a job is at the source, and what it was when it was read. Taking it removes it if it still is that.
#[derive(Debug, Clone, Default)]
pub struct Place {
    /// Set or list; empty: there is only one.
    pub container: Arc<str>,
    pub member: Vec<u8>,
    /// Score of a sorted set, or what a row was.
    pub version: String,
    /// Contents of the job's hash that were read.
    pub content: Vec<u8>,
}

/// What was found at a place.
#[derive(Debug)]
pub enum Found {
    Job(Box<Job>),
    /// A job that does not wait: it is not imported.
    Settled,
    /// Not importable, with its id for people.
    Refused {
        id: String,
        why: String,
    },
}

impl Job {
    /// A job with an id and a due time, and nothing else.
    pub fn new(id: impl Into<Vec<u8>>, due: UnixMs, place: Place) -> Self {
        Self {
            id: id.into(),
            queue: Arc::from(""),
            name: String::new(),
            class: String::new(),
            method: String::new(),
            key: None,
            due,
            due_is_estimated: false,
            contents: Contents::default(),
            payload_has_id: false,
            attempts: 0,
            missing: None,
            place,
        }
    }

    pub fn part(&self, part: JobPart) -> &[u8] {
        match part {
            JobPart::Id => &self.id,
            JobPart::Queue => self.queue.as_bytes(),
            JobPart::Name => self.name.as_bytes(),
            JobPart::Class => self.class.as_bytes(),
            JobPart::Method => self.method.as_bytes(),
        }
    }

    /// The id as people read it.
    pub fn shown(&self) -> String {
        shown(&self.id)
    }
}

impl Found {
    pub fn refused(id: &[u8], why: impl Into<String>) -> Self {
        Self::Refused {
            id: shown(id),
            why: why.into(),
        }
    }
}

impl From<Job> for Found {
    fn from(job: Job) -> Self {
        Self::Job(Box::new(job))
    }
}

/// An id for people: without control characters, and not longer than a line.
pub fn shown(id: &[u8]) -> String {
    quoted(&String::from_utf8_lossy(id))
}

/// What a task carries of a job. Without `max_attempts`, the source does not say.
pub fn contents(payload: Option<String>, max_attempts: Option<u16>) -> Contents {
    Contents {
        payload,
        max_attempts,
        ..Contents::default()
    }
}

/// A number of runs. More than the ledger counts is the most that it counts.
pub fn runs(count: impl TryInto<u16>) -> u16 {
    count.try_into().unwrap_or(u16::MAX)
}

/// Scores below are seconds, from here milliseconds.
const SECONDS_BELOW: f64 = 1e11;

/// Scores from here are microseconds, which only lapsed writes; no due time in milliseconds is as late.
pub const MILLISECONDS_BELOW: f64 = 1e14;

/// True for a score that lapsed's own timer has written: the entry is a task already.
pub fn is_own(score: f64) -> bool {
    score.is_finite() && score >= MILLISECONDS_BELOW
}

/// A score as a due time, in seconds or milliseconds by its size.
pub fn due_by_size(score: f64) -> Result<UnixMs, String> {
    match score {
        score if score < SECONDS_BELOW => due_of_seconds(score),
        score if score < MILLISECONDS_BELOW => Ok(UnixMs(score.floor() as i64)),
        score => Err(format!("the score {score} is no time")),
    }
}

/// Seconds with a fraction as a due time. Less than a millisecond is cut off.
pub fn due_of_seconds(seconds: f64) -> Result<UnixMs, String> {
    // A double holds the seconds of our time to about a quarter of a microsecond: .123 is .12299991 or .12300014.
    let us = (seconds * 1e6).round();
    if us.is_finite() && (0.0..MILLISECONDS_BELOW * 1e3).contains(&us) {
        return Ok(UnixMs((us as i64).div_euclid(1000)));
    }
    Err(format!("the score {seconds} is no time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_millisecond_survives_the_float_seconds_of_its_score() {
        for ms in (1_795_371_600_000..1_795_371_601_000).chain(4_102_444_800_000..4_102_444_801_000)
        {
            let score: f64 = format!("{}.{:03}", ms / 1000, ms % 1000).parse().unwrap();
            assert_eq!(due_of_seconds(score), Ok(UnixMs(ms)));
        }
        assert_eq!(due_of_seconds(1795371600.1239), Ok(UnixMs(1795371600123)));
    }

    #[test]
    fn the_unit_of_a_score_shows_in_its_size() {
        assert_eq!(due_by_size(1603620459.0), Ok(UnixMs(1603620459000)));
        assert_eq!(due_by_size(1603620459250.0), Ok(UnixMs(1603620459250)));
        assert!(is_own(1603620459250000.0) && !is_own(1603620459250.0) && !is_own(f64::INFINITY));
        for not_a_time in [
            1603620459250000.0,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            -1.0,
        ] {
            assert!(due_by_size(not_a_time).is_err(), "{not_a_time}");
        }
    }

    #[test]
    fn an_id_is_shown_on_one_short_line() {
        assert_eq!(shown(b"a\nb\xff"), "a\\nb\u{fffd}");
        assert_eq!(shown(&[b'x'; 10_000]).chars().count(), 121);
    }
}
