//! Quiet ranges: parts of a set in which every request was read and is none of this daemon. A range is left out as long
//! as it has as many entries as when it was read, so that members that are no tasks do not hold up others.

use std::time::Duration;

use tokio::time::Instant;

/// Fewer entries than this are read each time.
const ENTRIES_MIN: u64 = 200;

/// A range of more entries is divided, so that a change has little read again.
const ENTRIES_MAX: u64 = 5_000;

/// Most ranges of a set. Each costs a count in each pass.
const RANGES_MAX: usize = 2_000;

/// A range is read again after this, one in each pass: an entry may have taken the place of another, and routes may have
/// changed.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// A range of scores, both ends included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Range {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) count: u64,
    read_at: Instant,
}

/// The quiet ranges of a set, in order, and the one that is being read.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    ranges: Vec<Range>,
    found: Vec<Range>,
    run: Run,
}

/// Entries that are none of this daemon, one after the other.
#[derive(Debug, Default)]
struct Run {
    from: Option<f64>,
    /// The highest score of which every entry was read, and the entries up to it.
    to: f64,
    count: u64,
    /// The score that is being read, and its entries.
    last: Option<(f64, u64)>,
    /// The latest score that has another entry.
    busy: Option<f64>,
}

impl Quiet {
    /// The ranges, as scores from and to.
    pub(super) fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// Begins a pass. `counts` are the present numbers of entries of the ranges.
    pub(super) fn begin(&mut self, counts: &[u64]) {
        let mut counts = counts.iter();
        let mut again = false;
        self.ranges.retain(|range| {
            let is_same = counts.next() == Some(&range.count);
            let is_old = !again && range.read_at.elapsed() >= READ_AGAIN_AFTER;
            again |= is_old;
            is_same && !is_old
        });
        self.found.clear();
        self.run = Run::default();
    }

    /// Returns where to read from `from` on, and up to where: the next range begins there.
    pub(super) fn gap(&mut self, mut from: f64, end: f64) -> (f64, f64) {
        let first = self.ranges.partition_point(|range| range.to < from);
        for range in &self.ranges[first..] {
            if range.from > from {
                return (from, range.from.min(end));
            }
            from = range.to.next_up();
            // What is behind the range is no part of a run before it.
            self.found.extend(self.run.end());
        }
        (from, end)
    }

    /// Notes an entry that was read, in order of the scores.
    pub(super) fn note(&mut self, score: f64, is_quiet: bool) {
        let run = &mut self.run;
        if !is_quiet {
            if run.last.is_some_and(|(last, _)| last == score) {
                run.last = None;
            }
            self.found.extend(run.end());
            self.run.busy = Some(score);
            return;
        }
        match &mut run.last {
            _ if run.busy == Some(score) => {}
            Some((last, count)) if *last == score => *count += 1,
            _ => {
                run.commit();
                if run.count >= ENTRIES_MAX {
                    let behind = run.to.next_up();
                    self.found.extend(run.end());
                    self.run.from = Some(behind);
                }
                let run = &mut self.run;
                run.from.get_or_insert(score);
                run.last = Some((score, 1));
            }
        }
    }

    /// Ends a pass: the set was read to its end.
    pub(super) fn end(&mut self) {
        self.found.extend(self.run.end());
        self.ranges.append(&mut self.found);
        self.ranges
            .sort_by(|one, other| one.from.total_cmp(&other.from));
        self.ranges.truncate(RANGES_MAX);
    }
}

impl Run {
    /// Every entry of the last score was read.
    fn commit(&mut self) {
        if let Some((score, count)) = self.last.take() {
            self.to = score;
            self.count += count;
        }
    }

    /// Ends the run. Returns its range, if it is worth it.
    fn end(&mut self) -> Option<Range> {
        self.commit();
        let Self {
            from, to, count, ..
        } = std::mem::take(self);
        let from = from.filter(|_| count >= ENTRIES_MIN)?;
        Some(Range {
            from,
            to,
            count,
            read_at: Instant::now(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads entries in order; `true` are none of this daemon.
    fn read(quiet: &mut Quiet, entries: impl IntoIterator<Item = (f64, bool)>) {
        let counts: Vec<u64> = quiet.ranges().iter().map(|range| range.count).collect();
        quiet.begin(&counts);
        for (score, is_quiet) in entries {
            quiet.note(score, is_quiet);
        }
        quiet.end();
    }

    fn ends(quiet: &Quiet) -> Vec<(f64, f64, u64)> {
        let ranges = quiet.ranges().iter();
        ranges
            .map(|range| (range.from, range.to, range.count))
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_range_ends_before_a_score_with_another_entry() {
        let mut quiet = Quiet::default();
        let junk = (0..600).map(|number| (f64::from(number / 2), true));
        read(&mut quiet, junk.chain([(299.0, false), (300.0, true)]));
        assert_eq!(ends(&quiet), [(0.0, 298.0, 598)]);
        assert_eq!(quiet.gap(f64::NEG_INFINITY, 1e14), (f64::NEG_INFINITY, 0.0));
        assert_eq!(quiet.gap(0.0, 1e14), (298.0f64.next_up(), 1e14));
        assert_eq!(quiet.gap(298.5, 1e14), (298.5, 1e14));
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_run_is_several_ranges_without_gaps() {
        let mut quiet = Quiet::default();
        read(
            &mut quiet,
            (0..12_000).map(|score| (f64::from(score), true)),
        );
        let found = ends(&quiet);
        assert_eq!(found.iter().map(|(.., count)| count).sum::<u64>(), 12_000);
        assert_eq!(found.len(), 3);
        assert_eq!(quiet.gap(0.0, 1e14), (11_999.0f64.next_up(), 1e14));
    }

    #[tokio::test(start_paused = true)]
    async fn a_range_is_read_again_if_its_count_changes_or_after_some_time() {
        let mut quiet = Quiet::default();
        read(&mut quiet, (0..300).map(|score| (f64::from(score), true)));
        quiet.begin(&[300]);
        quiet.end();
        assert_eq!(ends(&quiet).len(), 1);
        quiet.begin(&[301]);
        quiet.end();
        assert_eq!(ends(&quiet), []);
        read(&mut quiet, (0..300).map(|score| (f64::from(score), true)));
        tokio::time::advance(READ_AGAIN_AFTER).await;
        quiet.begin(&[300]);
        assert_eq!(ends(&quiet), []);
    }

    #[tokio::test(start_paused = true)]
    async fn few_entries_are_no_range() {
        let mut quiet = Quiet::default();
        read(&mut quiet, (0..100).map(|score| (f64::from(score), true)));
        assert_eq!(ends(&quiet), []);
    }
}
