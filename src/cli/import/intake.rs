//! Writes jobs to the ledger as tasks.

use std::collections::HashSet;

use lapsed::client::{ClientError, IfSame, NotArmed};
use lapsed::config::RouteConfig;
use lapsed::ledger::{CancelAnswer, Ledger, LedgerError, Lookup};
use lapsed::task::{Due, TaskKey, UnixMs};
use lapsed::{Receipt, Task, TaskClient};

use super::job::{Found, Job};
use super::rules::Rules;
use super::tally::Tally;
use crate::progress::Progress;

/// Maximum difference between two due times of one job that were computed from its remaining time.
const ESTIMATE_MS: i64 = 1_000;

/// Most tasks that are cancelled in one transaction.
const UNDONE_TOGETHER: usize = 200;

pub struct Intake<'a> {
    pub ledger: &'a dyn Ledger,
    pub tasks: &'a TaskClient,
    pub rules: Rules<'a>,
    pub routes: &'a [RouteConfig],
    pub progress: &'a Progress,
    pub dry_run: bool,
    /// Jobs that no route matches are refused.
    pub needs_route: bool,
    /// The ledger's time when the import began.
    pub started: UnixMs,
    pub tally: Tally,
}

/// A job and its task.
struct Wanted {
    job: Box<Job>,
    task: Task,
    due: UnixMs,
}

impl Intake<'_> {
    /// Creates the tasks of a page that do not exist, and moves those whose job was moved. Returns the jobs whose tasks are
    /// committed now.
    pub async fn write(&mut self, page: Vec<Found>) -> anyhow::Result<Vec<Job>> {
        self.tasks.now().await?;
        let mut wanted = Vec::with_capacity(page.len());
        for found in page {
            match found {
                Found::Settled => self.tally.settled += 1,
                Found::Refused { id, why } => self.refuse(&id, &why),
                Found::Job(job) => match self.task(&job) {
                    Ok((task, due)) => wanted.push(Wanted { job, task, due }),
                    Err(why) => self.refuse(&job.shown(), &why),
                },
            }
        }
        let keys: Vec<TaskKey> = wanted.iter().map(|want| want.task.key().clone()).collect();
        let lookups = match keys.is_empty() {
            true => Vec::new(),
            false => self.ledger.look_up(&keys).await?,
        };
        let mut keys_here = HashSet::new();
        let (mut committed, mut create) = (Vec::with_capacity(wanted.len()), Vec::new());
        for (want, lookup) in wanted.into_iter().zip(lookups) {
            self.tally.note_missing(want.job.missing);
            match &lookup {
                Some(lookup) if self.is_of_another(lookup, &want) => {
                    let why = format!(
                        "its task `{}` was written since this import began, for this job or another: import again",
                        want.task.key()
                    );
                    self.refuse(&want.job.shown(), &why);
                }
                Some(lookup) if is_same(lookup, &want) => {
                    self.tally.known += 1;
                    committed.push(*want.job);
                }
                // A key that has several rows: the last one counts.
                _ if want.job.key.is_none() && !keys_here.insert(want.task.key().clone()) => {
                    let why = format!("another job has its key `{}`", want.task.key());
                    self.refuse(&want.job.shown(), &why);
                }
                _ => create.push((want, lookup.is_some())),
            }
        }
        if self.dry_run {
            for (want, existed) in &create {
                self.count(want.task.key(), want.due, *existed);
            }
            return Ok(Vec::new());
        }
        if create.is_empty() {
            return Ok(committed);
        }
        let tasks = create.iter().map(|(want, _)| want.pair());
        match self.tasks.create_many(tasks.collect()).await {
            Ok(receipts) => {
                for ((want, existed), receipt) in create.into_iter().zip(receipts) {
                    self.created(want, existed, &receipt, &mut committed);
                }
            }
            // One of them: which one, only the ledger knows.
            Err(error) if is_about_a_task(&error) => {
                for (want, existed) in create {
                    let (task, due) = want.pair();
                    match self.tasks.create(task, due).await {
                        Ok(receipt) => self.created(want, existed, &receipt, &mut committed),
                        Err(error) if is_about_a_task(&error) => {
                            self.refuse(&want.job.shown(), &error.to_string());
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(committed)
    }

    /// Cancels the tasks of jobs that were not at the source any more when they were to be removed: the old system has run
    /// them, or a program has cancelled them there. A task that has been armed anew since is left alone.
    pub async fn undo(&mut self, gone: Vec<&Job>) -> anyhow::Result<()> {
        for gone in gone.chunks(UNDONE_TOGETHER) {
            let keyed = gone
                .iter()
                .filter_map(|job| Some((self.rules.key(job).ok()?, *job)));
            let (keys, gone): (Vec<TaskKey>, Vec<&Job>) = keyed.unzip();
            let rows = self.ledger.look_up(&keys).await?;
            let pairs = keys.into_iter().zip(rows).zip(gone);
            let unchanged = pairs.filter_map(|((key, row), job)| {
                let row = row.filter(|row| has_due_time(row, job.due, job))?;
                Some((key, row.arming))
            });
            let unchanged: Vec<_> = unchanged.collect();
            for answer in self.tasks.cancel_if(&unchanged).await? {
                match answer {
                    IfSame::Same(CancelAnswer::Cancelled) => self.tally.undone += 1,
                    IfSame::Same(CancelAnswer::Running | CancelAnswer::Finished(_)) => {
                        self.tally.not_undone += 1;
                    }
                    IfSame::Same(CancelAnswer::Unknown) | IfSame::Other => {}
                }
            }
        }
        Ok(())
    }

    fn task(&self, job: &Job) -> Result<(Task, UnixMs), String> {
        let key = self.rules.key(job)?;
        if self.needs_route && !self.is_routed(&key) {
            return Err(format!(
                "no route of this configuration matches its key `{key}`: add a route or a rule, or give `--unrouted`"
            ));
        }
        let task = Task::from(key).contents(job.contents.clone());
        let task = task.attempts(job.attempts).keep_same_due();
        let due = Due::at(job.due).map_err(|error| error.to_string())?;
        self.tasks
            .check(&task, due)
            .map_err(|error| error.to_string())?;
        Ok((task, job.due))
    }

    /// Whether this import has written the task, for another job, or for the same one before it was moved: no job is read
    /// twice. Taking or moving it could lose the other job.
    fn is_of_another(&self, lookup: &Lookup, want: &Wanted) -> bool {
        want.job.key.is_none() && lookup.stamp.changed >= self.started
    }

    fn created(&mut self, want: Wanted, existed: bool, receipt: &Receipt, to: &mut Vec<Job>) {
        self.count(want.task.key(), want.due, existed);
        self.tally.unarmed += u64::from(receipt.not_armed() == Some(NotArmed::Unreachable));
        to.push(*want.job);
    }

    fn count(&mut self, key: &TaskKey, due: UnixMs, existed: bool) {
        match existed {
            true => self.tally.moved += 1,
            false => self.tally.created += 1,
        }
        self.tally.note(key, due);
        if !self.is_routed(key) {
            self.tally.note_unrouted(key);
        }
    }

    /// Whether a route matches a key. Without any route, programs with handlers run the tasks.
    fn is_routed(&self, key: &TaskKey) -> bool {
        self.routes.is_empty() || self.routes.iter().any(|route| route.fits(key))
    }

    fn refuse(&mut self, id: &str, why: &str) {
        self.tally.refused += 1;
        self.progress.line(&format!("job {id}: {why}"));
    }
}

impl Wanted {
    fn pair(&self) -> (Task, Due) {
        let due = Due::at(self.due).expect("it was checked");
        (self.task.clone(), due)
    }
}

/// Whether the task of this job exists, in whatever state.
fn is_same(lookup: &Lookup, want: &Wanted) -> bool {
    has_due_time(lookup, want.due, &want.job)
}

fn has_due_time(lookup: &Lookup, due: UnixMs, job: &Job) -> bool {
    let apart = (lookup.arming.due.0 - due.0).abs();
    apart == 0 || (job.due_is_estimated && apart <= ESTIMATE_MS)
}

/// Whether the ledger refuses a task, and may take others.
fn is_about_a_task(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::Ledger(LedgerError::Invalid(_) | LedgerError::Unfit { .. })
            | ClientError::Invalid(_)
            | ClientError::Key(_)
            | ClientError::Schedule(_)
    )
}
