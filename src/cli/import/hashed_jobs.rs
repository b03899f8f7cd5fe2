//! Jobs in hashes, whose ids are in sorted sets.

use async_trait::async_trait;

use super::job::{Found, Job};
use super::sets::{Page, Sets, groups};
use super::source::{Source, Taken};
use super::store::{Entry, Field, Store, Taker};

/// Jobs of queues. The hash of a job is `<before><queue><after><id>`.
pub struct HashedJobs {
    pub store: Store,
    pub sets: Sets,
    pub taker: Taker,
    pub before: String,
    pub after: &'static str,
    /// Fields of a hash that are read.
    pub fields: &'static [&'static str],
    /// What is said of its queues.
    pub remarks: Vec<String>,
    /// Reads a job; an error says why it cannot be imported.
    pub job: fn(&Entry, &[Field], &Page) -> Result<Found, String>,
}

/// Leaves out queues that are paused there, because their tasks would run here. One that is named is imported all the same.
/// Returns the names of the others, and what is said of those that are paused.
pub async fn unless_paused(
    store: &Store,
    queues: Vec<String>,
    is_named: bool,
    paused: impl AsyncFn(&Store, &str) -> anyhow::Result<bool>,
) -> anyhow::Result<(Vec<String>, Vec<String>)> {
    let (mut read, mut remarks) = (Vec::new(), Vec::new());
    for queue in queues {
        let shown = super::job::shown(queue.as_bytes());
        match (paused(store, &queue).await?, is_named) {
            (true, true) => {
                remarks.push(format!(
                    "the queue `{shown}` is paused there; its tasks run here"
                ));
            }
            (true, false) => {
                remarks.push(format!(
                    "the queue `{shown}` is paused there, and was left out: its tasks would run here. Name it with `--queue` to \
                     import it"
                ));
                continue;
            }
            (false, _) => {}
        }
        read.push(queue);
    }
    Ok((read, remarks))
}

impl HashedJobs {
    /// What begins the names of the hashes of a queue.
    fn prefix(&self, queue: &str) -> String {
        format!("{}{queue}{}", self.before, self.after)
    }
}

#[async_trait]
impl Source for HashedJobs {
    async fn count(&mut self) -> anyhow::Result<Option<u64>> {
        self.sets.count(&self.store).await.map(Some)
    }

    async fn page(&mut self) -> anyhow::Result<Option<Vec<Found>>> {
        let Some(page) = self.sets.page(&self.store).await? else {
            return Ok(None);
        };
        let prefix = self.prefix(&page.queue);
        let key = |entry: &Entry| [prefix.as_bytes(), &entry.member].concat();
        let keys: Vec<Vec<u8>> = page.entries.iter().map(key).collect();
        let hashes = self.store.hashes(&keys, self.fields).await?;
        let entries = page.entries.iter().zip(&hashes);
        let found = entries.map(|(entry, fields)| {
            let job = match entry.oversize() {
                Some(length) => Err(format!("its id has {length} bytes")),
                None => (self.job)(entry, fields, &page),
            };
            job.unwrap_or_else(|why| Found::refused(&entry.member, why))
        });
        Ok(Some(found.collect()))
    }

    async fn remarks(&mut self) -> anyhow::Result<Vec<String>> {
        Ok(std::mem::take(&mut self.remarks))
    }

    async fn take(&mut self, jobs: &[Job]) -> anyhow::Result<Taken> {
        let (mut taken, mut from) = (Taken::default(), 0);
        for (set, jobs) in groups(jobs) {
            let prefix = self.prefix(&jobs[0].queue);
            let places: Vec<_> = jobs.iter().map(|job| &job.place).collect();
            let removed = self.store.take(set, &prefix, &places, &self.taker).await?;
            taken.add(from, &removed);
            from += jobs.len();
        }
        Ok(taken)
    }
}
