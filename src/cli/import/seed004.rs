//! Seed 004: a wheel of lists, by default `task_0` to `task_3599`. The list of a slot is read when the ticks since 1970 modulo
//! the number of slots are its number. An entry runs at that visit if its `cycle_num` is 0, else that number of rounds later.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Context;
use async_trait::async_trait;
use lapsed::config::WheelConfig;
use lapsed::task::UnixMs;
use lapsed_core::format::hex;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::job::{Found, Job, Place, contents};
use super::source::{Source, Taken};
use super::store::{Element, Store};

/// What the seed's consumer puts in the place of an entry before it removes it.
const TOMBSTONE: &[u8] = b"delete";

pub struct Seed004 {
    store: Store,
    prefix: String,
    wheel: WheelConfig,
    /// The wheel has stopped since: the next visits are counted from here.
    stopped_at: UnixMs,
    slot: i64,
    /// Elements of the slot that were read and are still there.
    offset: usize,
    /// How many equal entries of this slot are still to be read, the next one included.
    left: HashMap<[u8; 16], u32>,
}

#[derive(Deserialize)]
struct Entry<'a> {
    method: String,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    cycle_num: u32,
}

impl Seed004 {
    pub fn open(store: Store, prefix: &str, wheel: WheelConfig, stopped_at: UnixMs) -> Self {
        Self {
            store,
            prefix: prefix.to_owned(),
            wheel,
            stopped_at,
            slot: 0,
            offset: 0,
            left: HashMap::new(),
        }
    }

    fn list(&self) -> String {
        format!("{}{}", self.prefix, self.slot)
    }

    fn job(&mut self, element: &Element, list: &Arc<str>) -> Result<Found, String> {
        let Some((due, entry)) = self.read(element)? else {
            return Ok(Found::Settled);
        };
        let params = entry.params.map(RawValue::get);
        let id = self.id(due, digest(due, &entry.method, params.unwrap_or_default()));
        let place = Place {
            container: Arc::clone(list),
            member: element.value.clone(),
            ..Place::default()
        };
        Ok(Job {
            name: entry.method.clone(),
            class: self.wheel.class.clone(),
            method: entry.method,
            contents: contents(params.map(str::to_owned), None),
            ..Job::new(id, due, place)
        }
        .into())
    }

    /// The task of an element: its due time, and its fields.
    fn read<'a>(&self, element: &'a Element) -> Result<Option<(UnixMs, Entry<'a>)>, String> {
        if let Some(length) = element.oversize() {
            return Err(format!("it has {length} bytes"));
        }
        if element.value == TOMBSTONE {
            return Ok(None);
        }
        let text = std::str::from_utf8(&element.value).map_err(|_| "it is not UTF-8")?;
        let entry: Entry = serde_json::from_str(text)
            .map_err(|error| format!("expected `method`, `params` and `cycle_num`: {error}"))?;
        let WheelConfig { slots, tick, .. } = self.wheel;
        let (slots, tick_ms) = (i64::from(slots), tick.as_millis() as i64);
        let visit = visit(self.slot, self.stopped_at, slots, tick_ms);
        let due = UnixMs((visit + i64::from(entry.cycle_num) * slots) * tick_ms);
        Ok(Some((due, entry)))
    }

    /// Counts the equal entries of a list, which is read in several pages if it is long.
    async fn count_equal(&mut self, list: &str, first: &[Element]) -> anyhow::Result<()> {
        let length: usize = redis::cmd("LLEN")
            .arg(list)
            .query_async(&mut self.store.connection())
            .await
            .with_context(|| format!("count the elements of `{list}`"))?;
        self.count_page(first);
        let mut read = first.len();
        while read < length {
            let page = self.store.elements(list, read).await?;
            if page.is_empty() {
                break;
            }
            self.count_page(&page);
            read += page.len();
        }
        Ok(())
    }

    fn count_page(&mut self, page: &[Element]) {
        for element in page {
            if let Ok(Some((due, entry))) = self.read(element) {
                let params = entry.params.map(RawValue::get).unwrap_or_default();
                *self
                    .left
                    .entry(digest(due, &entry.method, params))
                    .or_default() += 1;
            }
        }
    }

    /// An id that an entry has as long as it is in the list. Entries have none of their own: the due time, a digest of what
    /// is to be done, and a number for equal ones. They are numbered from the end, because those at the front are removed
    /// first: what is left after an interruption has the numbers that it had before.
    fn id(&mut self, due: UnixMs, digest: [u8; 16]) -> String {
        let left = self.left.entry(digest).or_insert(1);
        let number = *left;
        *left = left.saturating_sub(1).max(1);
        let digest = hex(&digest[..8]);
        match number {
            1 => format!("{}-{digest}", due.0),
            number => format!("{}-{digest}-{number}", due.0),
        }
    }
}

/// A digest of what is to be done, and when.
fn digest(due: UnixMs, method: &str, params: &str) -> [u8; 16] {
    let digest = Sha256::new()
        .chain_update(due.0.to_be_bytes())
        .chain_update(method)
        .chain_update([0])
        .chain_update(params)
        .finalize();
    let mut short = [0; 16];
    short.copy_from_slice(&digest[..16]);
    short
}

#[async_trait]
impl Source for Seed004 {
    async fn count(&mut self) -> anyhow::Result<Option<u64>> {
        let mut lengths = redis::pipe();
        for slot in 0..self.wheel.slots {
            lengths.cmd("LLEN").arg(format!("{}{slot}", self.prefix));
        }
        let lengths: Vec<u64> = lengths
            .query_async(&mut self.store.connection())
            .await
            .context("count the entries of the wheel")?;
        Ok(Some(lengths.iter().sum()))
    }

    async fn page(&mut self) -> anyhow::Result<Option<Vec<Found>>> {
        while self.slot < i64::from(self.wheel.slots) {
            let list: Arc<str> = Arc::from(self.list());
            let elements = self.store.elements(&list, self.offset).await?;
            if elements.is_empty() {
                self.slot += 1;
                self.offset = 0;
                self.left.clear();
                continue;
            }
            if self.offset == 0 && self.left.is_empty() {
                self.count_equal(&list, &elements).await?;
            }
            self.offset += elements.len();
            let mut found = Vec::with_capacity(elements.len());
            for element in &elements {
                let job = self.job(element, &list);
                found.push(job.unwrap_or_else(|why| {
                    Found::refused(&[list.as_bytes(), b": ", &element.value].concat(), why)
                }));
            }
            return Ok(Some(found));
        }
        Ok(None)
    }

    async fn take(&mut self, jobs: &[Job]) -> anyhow::Result<Taken> {
        let places: Vec<_> = jobs.iter().map(|job| &job.place).collect();
        let list = self.list();
        let taken = self.store.take_elements(&list, &places).await?;
        self.offset = self.offset.saturating_sub(usize::try_from(taken)?);
        Ok(Taken::count(taken))
    }
}

/// The tick of the first visit of a slot after the tick during which a time lies: the consumer may have visited that one.
fn visit(slot: i64, after: UnixMs, slots: i64, tick_ms: i64) -> i64 {
    let next = after.0.div_euclid(tick_ms) + 1;
    next + (slot - next).rem_euclid(slots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_visited_once_in_each_round() {
        let hour = 3_600 * 498_714;
        let second = |slot, ms| visit(slot, UnixMs(ms), 3_600, 1_000);
        assert_eq!(second(0, hour * 1000 - 1), hour);
        // The slot of the second in which the consumer was stopped may have been visited.
        assert_eq!(second(0, hour * 1000), hour + 3_600);
        assert_eq!(second(0, hour * 1000 + 999), hour + 3_600);
        assert_eq!(second(20, (hour + 1) * 1000), hour + 20);
        assert_eq!(second(20, (hour + 20) * 1000), hour + 3_620);
        assert_eq!(second(3_599, (hour + 3_599) * 1000 - 1), hour + 3_599);
        assert_eq!(visit(3, UnixMs(1_000), 5, 200), 8);
        assert_eq!(visit(0, UnixMs(1_001), 5, 200), 10);
    }
}
