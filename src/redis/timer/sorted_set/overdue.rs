//! The pages that an audit reads: entries that are long overdue, and, where no daemon runs, requests of programs.

use std::time::Duration;

use tokio::time::Instant;

use super::inbox::{Reader, Request};
use super::state::State;
use crate::RedisError;
use crate::alarms::{OWN_FROM, Score};
use lapsed_core::task::{TaskKey, UnixMs};
use lapsed_core::timer::{Alarm, ArmedPage};

/// Entries of one page.
const PAGE: usize = 500;

/// Entries overdue by less are left to the daemons that run and settle their tasks.
const OVERDUE: Duration = Duration::from_secs(60);

/// Where the next page begins. As a number: the step in the highest bits, then the index of the set, then the position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cursor {
    /// Requests of a set (its index), after this number of them that stay.
    Requests(usize, u64),
    /// Overdue entries of a set, from this due time on.
    Overdue(usize, UnixMs),
    /// Entries that were taken, from this cursor of Redis on.
    Taken(u64),
}

impl Cursor {
    const POSITION_BITS: u32 = 50;
    const SET_BITS: u32 = 7;

    fn read(number: u64) -> Self {
        let position = number & ((1 << Self::POSITION_BITS) - 1);
        let set = (number >> Self::POSITION_BITS) & ((1 << Self::SET_BITS) - 1);
        let set = usize::try_from(set).expect("it has seven bits");
        match number >> (Self::POSITION_BITS + Self::SET_BITS) {
            0 => Self::Requests(set, position),
            1 => Self::Overdue(set, UnixMs(position as i64)),
            // A cursor of Redis has as many bits as the table of the hash needs: few.
            _ => Self::Taken(number & ((1 << (Self::POSITION_BITS + Self::SET_BITS)) - 1)),
        }
    }

    fn number(self) -> u64 {
        let (step, set, position) = match self {
            Self::Requests(set, position) => (0, set, position),
            Self::Overdue(set, due) => (1, set, u64::try_from(due.0).unwrap_or(0)),
            Self::Taken(cursor) => {
                return (2 << (Self::POSITION_BITS + Self::SET_BITS)) | cursor;
            }
        };
        let position = position & ((1 << Self::POSITION_BITS) - 1);
        (step << (Self::POSITION_BITS + Self::SET_BITS))
            | ((set as u64) << Self::POSITION_BITS)
            | position
    }
}

/// Reads the pages of an audit.
pub(super) struct Pages<'a>(pub(super) &'a State);

impl Pages<'_> {
    /// Reads a page.
    pub(super) async fn read(
        &self,
        cursor: Option<u64>,
        wants: &(dyn for<'a> Fn(&'a TaskKey) -> bool + Send + Sync),
    ) -> Result<ArmedPage, RedisError> {
        let first = match self.0.sink() {
            // A running daemon proposes requests itself.
            Some(_) => Cursor::Overdue(0, UnixMs(0)),
            None => Cursor::Requests(0, 0),
        };
        let (page, next) = match cursor.map_or(first, Cursor::read) {
            Cursor::Requests(set, skip) => self.scan_requests(set, skip, wants).await?,
            Cursor::Overdue(set, from) => self.scan_overdue(set, from).await?,
            Cursor::Taken(cursor) => self.scan_taken(cursor).await?,
        };
        Ok(ArmedPage {
            next: next.map(Cursor::number),
            ..page
        })
    }

    /// Reads a page of requests. Those that it returns leave the band when they are acknowledged; the next page begins
    /// after those that stay.
    async fn scan_requests(
        &self,
        set: usize,
        skip: u64,
        wants: &(dyn for<'a> Fn(&'a TaskKey) -> bool + Send + Sync),
    ) -> Result<(ArmedPage, Option<Cursor>), RedisError> {
        let sets = self.0.entries.sets();
        let offset = usize::try_from(skip).unwrap_or(usize::MAX);
        let asked = Instant::now();
        let entries = self.0.entries.scored();
        let entries = entries
            .range(&sets[set], f64::NEG_INFINITY, OWN_FROM, offset, PAGE)
            .await?;
        let is_last = entries.len() < PAGE;
        let reader = Reader::new(self.0, wants, &|_| true, asked);
        let (mut page, mut stay, mut dated) = (ArmedPage::default(), 0, Vec::new());
        for (member, score) in entries {
            let entry = (set, member);
            match reader.read(&entry, score) {
                Request::New(candidate) => page.foreign.push(candidate),
                Request::Now(key) => dated.push(reader.date(key, entry, score)),
                Request::Known | Request::Ignored | Request::Left | Request::NoRoom => stay += 1,
            }
        }
        let is_dated = !dated.is_empty();
        self.0.entries.change(&dated).await?;
        let next = match is_last && !is_dated {
            false => Cursor::Requests(set, skip + stay),
            true if set + 1 < sets.len() => Cursor::Requests(set + 1, 0),
            true => Cursor::Overdue(0, UnixMs(0)),
        };
        Ok((page, Some(next)))
    }

    /// Reads a page of lapsed's own entries that are long overdue.
    async fn scan_overdue(
        &self,
        set: usize,
        from: UnixMs,
    ) -> Result<(ArmedPage, Option<Cursor>), RedisError> {
        let sets = self.0.entries.sets();
        let until = UnixMs(self.0.clock.now().0 - OVERDUE.as_millis() as i64);
        let (from, until) = (Score::own(from), Score::own(until));
        let entries = self.0.entries.scored();
        let entries = entries.range(&sets[set], from, until, 0, PAGE).await?;
        let is_last = entries.len() < PAGE;
        let overdue = entries.into_iter().filter_map(|(member, score)| {
            let Score::Own(due) = self.0.entries.read_score(score) else {
                return None;
            };
            let key = self.0.entries.key_of(set, &member).ok()?;
            Some(Alarm {
                key,
                due,
                arming: None,
            })
        });
        let overdue: Vec<Alarm> = overdue.collect();
        // Of more entries with the same due time, the next audit reads the others.
        let last = overdue.last().map(|alarm| UnixMs(alarm.due.0 + 1));
        let next = match last.filter(|_| !is_last) {
            Some(from) => Some(Cursor::Overdue(set, from)),
            None if set + 1 < sets.len() => Some(Cursor::Overdue(set + 1, UnixMs(0))),
            None => Some(Cursor::Taken(0)),
        };
        let page = ArmedPage {
            overdue,
            ..ArmedPage::default()
        };
        Ok((page, next))
    }

    /// Reads a page of long overdue tasks whose entries were taken.
    async fn scan_taken(&self, cursor: u64) -> Result<(ArmedPage, Option<Cursor>), RedisError> {
        let until = self.0.clock.now().0 - OVERDUE.as_millis() as i64;
        let (taken, next) = match self.0.entries.scored().taken(cursor).await {
            // Without a right to the register nothing was taken.
            Err(error) if error.is_refusal() => Default::default(),
            taken => taken?,
        };
        let taken = taken.into_iter().filter(|(_, due_ms)| *due_ms < until);
        let taken = taken.filter_map(|(key, due_ms)| {
            Some(Alarm {
                key: TaskKey::parse(&key).ok()?,
                due: UnixMs(due_ms),
                arming: None,
            })
        });
        let page = ArmedPage {
            taken: taken.collect(),
            ..ArmedPage::default()
        };
        Ok((page, Some(next).filter(|next| *next > 0).map(Cursor::Taken)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back() {
        for cursor in [
            Cursor::Requests(0, 0),
            Cursor::Requests(63, 1_000_000),
            Cursor::Overdue(0, UnixMs(0)),
            Cursor::Overdue(63, UnixMs(8_000_000_000_000)),
            Cursor::Taken(0),
            Cursor::Taken((1 << 40) + 3),
        ] {
            assert_eq!(Cursor::read(cursor.number()), cursor);
        }
    }
}
