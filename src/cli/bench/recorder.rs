//! Recorder of a measured daemon: first start and number of runs of each task, in five bytes per task.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use anyhow::{Context, ensure};

/// Bytes before the tasks in a saved record.
const HEADER: usize = 16;

/// Recorder that concurrent runs write without a lock.
pub struct Recorder {
    /// First task number.
    first: u32,
    /// Microseconds since 1970; starts are kept relative to it.
    base_us: u64,
    /// Microseconds since `base_us` + 1; 0 = never started.
    starts: Vec<AtomicU32>,
    runs: Vec<AtomicU8>,
    /// Runs of unexpected numbers.
    strays: AtomicU64,
    started: AtomicU64,
    /// Size of the backlog, which are the first tasks.
    backlog: usize,
    backlog_started: AtomicU64,
}

impl Recorder {
    /// Creates a recorder for `count` tasks from number `first`; the first `backlog` of them are a backlog.
    pub fn new(first: u32, count: u32, backlog: u32, base_us: u64) -> Self {
        Self {
            first,
            base_us,
            backlog: backlog as usize,
            backlog_started: AtomicU64::new(0),
            starts: (0..count).map(|_| AtomicU32::new(0)).collect(),
            runs: (0..count).map(|_| AtomicU8::new(0)).collect(),
            strays: AtomicU64::new(0),
            started: AtomicU64::new(0),
        }
    }

    /// Records the start of a task.
    pub fn start(&self, number: u32, now_us: u64) {
        let slot = number
            .checked_sub(self.first)
            .and_then(|slot| usize::try_from(slot).ok())
            .filter(|slot| *slot < self.runs.len());
        let Some(slot) = slot else {
            self.strays.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if self.runs[slot].fetch_add(1, Ordering::Relaxed) == 0 {
            let since = u32::try_from(now_us.saturating_sub(self.base_us)).unwrap_or(u32::MAX - 1);
            self.started.fetch_add(1, Ordering::Relaxed);
            if slot < self.backlog {
                self.backlog_started.fetch_add(1, Ordering::Relaxed);
            }
            self.starts[slot].store(since.saturating_add(1), Ordering::Relaxed);
        }
    }

    /// Expected tasks that have started.
    pub fn started(&self) -> u64 {
        self.started.load(Ordering::Relaxed)
    }

    /// Tasks of the backlog that have started.
    pub fn backlog_started(&self) -> u64 {
        self.backlog_started.load(Ordering::Relaxed)
    }

    /// The record so far.
    pub fn record(&self) -> Record {
        let start = |start: &AtomicU32| {
            let since = start.load(Ordering::Relaxed).checked_sub(1)?;
            Some(self.base_us + u64::from(since))
        };
        let runs = self.runs.iter();
        Record {
            starts_us: self.starts.iter().map(start).collect(),
            runs: runs
                .map(|runs| u32::from(runs.load(Ordering::Relaxed)))
                .collect(),
            strays: self.strays.load(Ordering::Relaxed),
        }
    }

    /// Writes the record to a file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, file: &Path) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(HEADER + self.starts.len() * 5);
        for word in [self.base_us, self.strays.load(Ordering::Relaxed)] {
            bytes.extend(word.to_le_bytes());
        }
        for start in &self.starts {
            bytes.extend(start.load(Ordering::Relaxed).to_le_bytes());
        }
        bytes.extend(self.runs.iter().map(|runs| runs.load(Ordering::Relaxed)));
        std::fs::write(file, bytes)
    }
}

/// Record of one or several daemons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// First start of each task in microseconds since 1970, in the order of their numbers.
    pub starts_us: Vec<Option<u64>>,
    /// Number of runs of each.
    pub runs: Vec<u32>,
    /// Runs of unexpected tasks.
    pub strays: u64,
}

impl Record {
    /// A record without runs.
    pub fn empty(count: usize) -> Self {
        Self {
            starts_us: vec![None; count],
            runs: vec![0; count],
            strays: 0,
        }
    }

    /// Reads what [`Recorder::save`] wrote for `count` tasks.
    pub fn read(file: &Path, count: usize) -> anyhow::Result<Self> {
        let bytes = std::fs::read(file).context("read the record of a daemon")?;
        ensure!(
            bytes.len() == HEADER + count * 5,
            "the record of a daemon has {} bytes, expected {}",
            bytes.len(),
            HEADER + count * 5
        );
        let (words, rest) = bytes.split_at(HEADER);
        let (starts, runs) = rest.split_at(count * 4);
        let word = |at: usize| {
            let eight = words[at * 8..][..8].try_into();
            u64::from_le_bytes(eight.expect("eight bytes"))
        };
        let base_us = word(0);
        let start = |four: &[u8]| {
            let since = u32::from_le_bytes(four.try_into().expect("four bytes"));
            Some(base_us + u64::from(since.checked_sub(1)?))
        };
        Ok(Self {
            starts_us: starts.chunks_exact(4).map(start).collect(),
            runs: runs.iter().map(|runs| u32::from(*runs)).collect(),
            strays: word(1),
        })
    }

    /// Merges the record of another daemon for the same tasks.
    pub fn merge(&mut self, other: Self) {
        for (start, theirs) in self.starts_us.iter_mut().zip(other.starts_us) {
            *start = match (*start, theirs) {
                (Some(ours), Some(theirs)) => Some(ours.min(theirs)),
                (ours, theirs) => ours.or(theirs),
            };
        }
        for (runs, theirs) in self.runs.iter_mut().zip(other.runs) {
            *runs += theirs;
        }
        self.strays += other.strays;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_read_back() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let recorder = Recorder::new(100, 3, 1, 5_000_000);
        recorder.start(100, 5_000_000);
        recorder.start(102, 5_000_700);
        recorder.start(102, 5_009_999);
        recorder.start(103, 5_000_000);
        recorder.start(99, 5_000_000);
        recorder.save(file.path()).unwrap();
        let record = Record::read(file.path(), 3).unwrap();
        let expected = Record {
            starts_us: vec![Some(5_000_000), None, Some(5_000_700)],
            runs: vec![1, 0, 2],
            strays: 2,
        };
        assert_eq!(record, expected);
        assert_eq!(recorder.record(), expected);
        assert_eq!((recorder.started(), recorder.backlog_started()), (2, 1));
    }

    #[test]
    fn the_first_start_on_any_daemon_counts_and_runs_add_up() {
        let record = |starts_us: &[Option<u64>], runs: &[u32]| Record {
            starts_us: starts_us.to_vec(),
            runs: runs.to_vec(),
            strays: 1,
        };
        let mut one = record(&[Some(5), None, Some(3)], &[1, 0, 1]);
        one.merge(record(&[Some(4), Some(9), None], &[2, 1, 0]));
        assert_eq!(one.starts_us, [Some(4), Some(9), Some(3)]);
        assert_eq!(one.runs, [3, 1, 1]);
        assert_eq!(one.strays, 2);
    }
}
