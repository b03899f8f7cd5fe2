//! Jobs in sorted sets whose scores are due times: a member is the job itself, or the id of a hash that is.

use async_trait::async_trait;

use super::job::{Found, Job};
use super::sets::{Page, Sets, groups};
use super::source::{Source, Taken};
use super::store::{Entry, Field, RemovalScript, Store};

/// Reads a job from its entry and the fields of its hash; an error says why it cannot be imported.
pub type ReadJob = fn(&Entry, &[Field], &Page) -> Result<Found, String>;

/// Jobs of queues.
pub struct SortedSetJobs {
    pub store: Store,
    pub sets: Sets,
    pub removal: RemovalScript,
    /// The hashes of the jobs; `None`: a member is the job.
    pub hashes: Option<Hashes>,
    /// Only jobs of this queue; `None`: all jobs of the sets.
    pub queue: Option<String>,
    /// What is said of its queues.
    pub remarks: Vec<String>,
    pub job: ReadJob,
}

/// Hashes of jobs, each named `<before><queue><after><id>`.
pub struct Hashes {
    pub before: String,
    pub after: &'static str,
    /// Fields that are read.
    pub fields: &'static [&'static str],
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

impl SortedSetJobs {
    /// Jobs that are the members of these sets.
    pub fn of_members(store: Store, sets: Sets, job: ReadJob) -> Self {
        Self {
            store,
            sets,
            removal: RemovalScript::new("", ""),
            hashes: None,
            queue: None,
            remarks: Vec::new(),
            job,
        }
    }

    /// The fields of the hash of each entry; none if an entry has no hash.
    async fn fields(&self, page: &Page) -> anyhow::Result<Vec<Vec<Field>>> {
        let Some(hashes) = &self.hashes else {
            return Ok(page.entries.iter().map(|_| Vec::new()).collect());
        };
        let prefix = self.prefix(&page.queue);
        let key = |entry: &Entry| [prefix.as_bytes(), &entry.member].concat();
        let keys: Vec<Vec<u8>> = page.entries.iter().map(key).collect();
        self.store.hashes(&keys, hashes.fields).await
    }

    /// What begins the names of the hashes of a queue.
    fn prefix(&self, queue: &str) -> String {
        match &self.hashes {
            Some(Hashes { before, after, .. }) => format!("{before}{queue}{after}"),
            None => String::new(),
        }
    }
}

#[async_trait]
impl Source for SortedSetJobs {
    async fn count(&mut self) -> anyhow::Result<Option<u64>> {
        self.sets.count(&self.store).await.map(Some)
    }

    async fn page(&mut self) -> anyhow::Result<Option<Vec<Found>>> {
        let Some(page) = self.sets.page(&self.store).await? else {
            return Ok(None);
        };
        let fields = self.fields(&page).await?;
        let is_wanted = |found: &Found| match (found, &self.queue) {
            (Found::Job(job), Some(queue)) => *job.queue == **queue,
            _ => true,
        };
        let entries = page.entries.iter().zip(&fields);
        let found = entries.map(|(entry, fields)| {
            let job = match entry.oversize() {
                Some(length) if self.hashes.is_some() => Err(format!("its id has {length} bytes")),
                Some(length) => Err(format!("it has {length} bytes")),
                None => (self.job)(entry, fields, &page),
            };
            job.unwrap_or_else(|why| Found::refused(&entry.member, why))
        });
        Ok(Some(found.filter(is_wanted).collect()))
    }

    async fn remarks(&mut self) -> anyhow::Result<Vec<String>> {
        Ok(std::mem::take(&mut self.remarks))
    }

    async fn take(&mut self, jobs: &[Job]) -> anyhow::Result<Taken> {
        let (mut taken, mut from) = (Taken::default(), 0);
        for (set, jobs) in groups(jobs) {
            let prefix = self.prefix(&jobs[0].queue);
            let places: Vec<_> = jobs.iter().map(|job| &job.place).collect();
            let removed = self
                .store
                .take(set, &prefix, &places, &self.removal)
                .await?;
            taken.add(from, &removed);
            from += jobs.len();
        }
        Ok(taken)
    }
}
