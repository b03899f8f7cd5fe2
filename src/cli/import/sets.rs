//! Several sorted sets, read one after the other.

use std::sync::Arc;

use super::job::Job;
use super::store::{Cursor, Entry, Store};

/// Sorted sets, each with the name of its queue.
pub struct Sets {
    sets: Vec<(Arc<str>, Arc<str>)>,
    /// The set that is read now.
    at: usize,
    cursor: Cursor,
}

/// Some entries of a set.
pub struct Page {
    pub set: Arc<str>,
    pub queue: Arc<str>,
    pub entries: Vec<Entry>,
}

impl Sets {
    pub fn new(sets: Vec<(Arc<str>, Arc<str>)>) -> Self {
        Self {
            sets,
            at: 0,
            cursor: Cursor::default(),
        }
    }

    /// The number of entries of all sets.
    pub async fn count(&self, store: &Store) -> anyhow::Result<u64> {
        let mut count = 0;
        for (set, _) in &self.sets {
            count += store.count(set).await?;
        }
        Ok(count)
    }

    /// The next entries; `None` after the last set.
    pub async fn page(&mut self, store: &Store) -> anyhow::Result<Option<Page>> {
        while let Some((set, queue)) = self.sets.get(self.at) {
            let entries = store.range(set, &mut self.cursor).await?;
            if !entries.is_empty() {
                return Ok(Some(Page {
                    set: Arc::clone(set),
                    queue: Arc::clone(queue),
                    entries,
                }));
            }
            self.at += 1;
            self.cursor = Cursor::default();
        }
        Ok(None)
    }
}

/// Jobs by the set or list that they are in. Those of one are next to each other.
pub fn groups(jobs: &[Job]) -> impl Iterator<Item = (&str, &[Job])> {
    jobs.chunk_by(|a, b| a.place.container == b.place.container)
        .map(|jobs| (&*jobs[0].place.container, jobs))
}
