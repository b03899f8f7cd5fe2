//! Audit: compares every task that the timer has to hold with the armed keys, arms keys that the timer has lost, adopts
//! keys without a row, and undeletes tasks that a legacy program deleted and created again.
//!
//! The audit runs beside the sweep, not before it: a million keys take a while. Tasks due soon are checked first, then
//! the keys, some of which may have been armed while no daemon listened and have no row yet, then all other future tasks.
//! Where a missing entry cancels a task, those that are due and wait come last.

mod arming;
mod missing;
mod progress;
mod report;
mod unheard;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use self::progress::{Page, Progress, Request, Step};
pub use self::report::AuditReport;
use crate::clock::LedgerClock;
use crate::engine::activity::Activity;
use crate::engine::background::adoption::Adopter;
use crate::engine::background::audit_lock::{AUDIT_EVERY, AuditLock};
use crate::engine::health::LedgerHealth;
use crate::engine::pace::Pace;
use crate::engine::queue::SignalQueue;
use crate::engine::queue::class::SignalClass;
use crate::engine::reports::{AuditSkipped, EntriesWithoutRow, Reporter};
use crate::engine::undelete::Undeleter;
use crate::handler::Router;
use crate::ledger::{Claims, LedgerError, Scans, Window};
use crate::task::{DELAY_MAX, TaskKey};
use crate::timer::{Alarm, ArmedPage, Cause, Entries, Listening, Timer, TimerError};

/// Maximum time that the first audit waits for a subscription.
const SUBSCRIBED_WITHIN: Duration = Duration::from_secs(3);

/// Delay before an audit that broke off continues, unless another is requested before.
const RESUME_AFTER: Duration = Duration::from_secs(10);

/// Pause when the ledger does not answer.
const OUTAGE_PAUSE: Duration = Duration::from_secs(1);

/// Tasks due within this are checked before the keys.
const SOON: Duration = Duration::from_secs(3600);

/// Maximum time that a step waits for due tasks to be claimed. An audit ends however many there are.
const YIELD_MAX: Duration = Duration::from_millis(100);

/// Interval of the check whether due tasks still wait.
const YIELD_CHECK: Duration = Duration::from_millis(10);

/// Compares the armed keys with the ledger.
pub struct Audit {
    pub claims: Arc<dyn Claims>,
    pub scans: Arc<dyn Scans>,
    pub clock: LedgerClock,
    pub health: Arc<LedgerHealth>,
    pub timer: Arc<dyn Timer>,
    pub entries: Option<Arc<dyn Entries>>,
    pub listening: Option<Arc<dyn Listening>>,
    pub router: Arc<Router>,
    pub undeleter: Arc<Undeleter>,
    pub reporter: Arc<Reporter>,
    pub activity: Arc<Activity>,
    pub queue: Arc<SignalQueue>,
    pub adopter: Arc<Adopter>,
    pub lock: AuditLock,
}

impl Audit {
    /// Audits when activated, and adopts unheard keys. Never returns.
    pub async fn run(self) {
        tokio::join!(self.audit_when_activated(), self.adopt_unheard());
    }

    /// Audits when activated: at once when Redis has changed, else at most once a minute.
    async fn audit_when_activated(&self) {
        let mut last: Option<Instant> = None;
        let mut progress = Progress::default();
        loop {
            let request = self.audit_requested().await;
            let Request { cause, since } = self.rest_after(last, request).await;
            if !self.lock.acquire(since).await {
                AuditSkipped { cause }.emit(&self.reporter);
                continue;
            }
            let began = Instant::now();
            progress = progress.resume(cause);
            let began_at = *progress.began.get_or_insert(self.clock.now());
            let audited = self.activity.pass(cause, self.audit(cause, &mut progress));
            match audited.await {
                Ok(()) if progress.broke_off.is_some() => {
                    let requested = timeout(RESUME_AFTER, self.activity.activated()).await;
                    self.activity.activate(requested.unwrap_or(cause));
                }
                Ok(()) => {
                    last = Some(began);
                    self.lock.release(began_at).await;
                    progress.report.log(cause);
                    // This audit also satisfies the request of a sentinel that expired meanwhile.
                    self.activity.cancel_request(Cause::Sentinel);
                }
                Err(error) => {
                    progress.break_off();
                    self.health.failed("audit", &error);
                    self.activity.activate(cause);
                    sleep(OUTAGE_PAUSE).await;
                }
            }
        }
    }

    /// Waits until an audit is requested.
    async fn audit_requested(&self) -> Request {
        let cause = self.activity.activated().await;
        let since = self.lock.serves_since(cause);
        Request { cause, since }
    }

    /// Waits until it is time for another audit. Returns the merged requests up to then.
    async fn rest_after(&self, last: Option<Instant>, request: Request) -> Request {
        match last {
            Some(last) => self.wait_until(last + AUDIT_EVERY, request).await,
            // Keys armed before the subscription would need another audit.
            None if self.misses_events() => {
                let subscribed = Instant::now() + SUBSCRIBED_WITHIN;
                self.wait_until(subscribed, request).await
            }
            None => request,
        }
    }

    /// True if the timer's server does not send events now.
    fn misses_events(&self) -> bool {
        let server = self.listening.as_ref();
        server.is_some_and(|server| !server.is_listening())
    }

    /// Waits until `turn`, or until a request arrives that does not wait. Returns the merged requests.
    async fn wait_until(&self, turn: Instant, mut request: Request) -> Request {
        let is_first = request.cause == Cause::Start;
        while request.cause != Cause::RedisChanged {
            let Ok(other) = tokio::time::timeout_at(turn, self.audit_requested()).await else {
                break;
            };
            request = request.with(other);
            if is_first && other.cause == Cause::Subscribed {
                break;
            }
        }
        request
    }

    /// Runs one audit for a caller that waits for it.
    pub async fn audit_now(&self) -> Result<AuditReport, LedgerError> {
        let mut progress = Progress::default();
        self.audit(Cause::Asked, &mut progress).await?;
        Ok(progress.report)
    }

    /// Checks every task that the timer has to hold now, arms keys that the timer has lost, and adopts keys that the
    /// ledger lacks. If the ledger fails, the timer fails (which is not an error here) or a more urgent audit is
    /// requested, `progress` records where to continue.
    async fn audit(&self, cause: Cause, progress: &mut Progress) -> Result<(), LedgerError> {
        progress.report.revived += self.undeleter.undelete_armed(DELAY_MAX).await?;
        let mut renewed = Instant::now();
        let mut pace = match cause {
            Cause::Asked => Pace::without_rests(),
            _ => Pace::begin(),
        };
        // Tasks beyond the horizon are armed as they come within it.
        let horizon = self.timer.horizon();
        let span = horizon.map_or(DELAY_MAX, |horizon| horizon.min(DELAY_MAX));
        // A timer without a server has lost nothing, and holds nothing that programs have armed.
        if self.listening.is_none() {
            progress.step = Step::End;
        }
        while progress.step != Step::End {
            let continues = match progress.step {
                Step::Soon => {
                    let step = self
                        .arm_lost(Window::Ahead(SOON.min(span)), progress)
                        .await?;
                    step.proceed(Step::Keys, progress)
                }
                Step::Keys => {
                    let step = self.adopt_armed(progress).await?;
                    step.proceed(Step::Later, progress)
                }
                Step::Later => {
                    let step = self.arm_lost(Window::Ahead(span), progress).await?;
                    step.proceed(self.step_after_later(), progress)
                }
                Step::Due => {
                    let step = self.arm_lost(Window::Due, progress).await?;
                    step.proceed(Step::End, progress)
                }
                Step::End => true,
            };
            let continues = continues && self.arm_missing(progress).await? != Page::Failed;
            let is_urgent = self.activity.is_requested_for(Cause::RedisChanged);
            let overtaken = cause != Cause::Asked && is_urgent;
            if !continues || (overtaken && progress.step != Step::End) {
                progress.break_off();
                return Ok(());
            }
            pace.rest().await;
            if cause != Cause::Asked {
                self.yield_to_due().await;
                pace.next_step();
                self.lock.renew(&mut renewed).await;
            }
        }
        progress.report.complete = true;
        if let Some(entries) = &self.entries {
            entries.audited(progress.began.unwrap_or_default()).await;
        }
        self.reporter
            .metrics
            .audited(cause.as_str(), progress.report.rearmed as u64);
        Ok(())
    }

    /// Keys of tasks that are due have expired. An entry stays until its task starts, and while it is missing, its task is
    /// cancelled: after the server has lost its data, those of tasks that wait for a slot, a worker, the end of a pause or
    /// that of a run for an earlier time have to be written, too.
    fn step_after_later(&self) -> Step {
        let entries = self.entries.as_ref();
        match entries.is_some_and(|entries| entries.counts_absence(None)) {
            true => Step::Due,
            false => Step::End,
        }
    }

    /// Waits while tasks that have just fallen due wait to be claimed, up to [`YIELD_MAX`].
    async fn yield_to_due(&self) {
        let until = Instant::now() + YIELD_MAX;
        while self.queue.waiting(SignalClass::Fresh) > 0 && Instant::now() < until {
            sleep(YIELD_CHECK).await;
        }
    }

    /// Removes overdue entries whose tasks have ended: the daemon that settled them could not. An entry without a row stays:
    /// a program may have written it, or the ledger may have lost its task. Of an entry that was taken, only that fact is
    /// left, and is forgotten.
    async fn remove_ended(
        &self,
        overdue: Vec<Alarm>,
        taken: Vec<Alarm>,
    ) -> Result<(), LedgerError> {
        let (Some(timer), false) = (&self.entries, overdue.is_empty() && taken.is_empty()) else {
            return Ok(());
        };
        let entries = overdue.len();
        let overdue: Vec<Alarm> = overdue.into_iter().chain(taken).collect();
        let keys: Vec<TaskKey> = overdue.iter().map(|entry| entry.key.clone()).collect();
        let rows = self.claims.look_up(&keys).await?;
        let (mut ended, mut without_row) = (Vec::new(), 0);
        for (index, (entry, row)) in overdue.into_iter().zip(rows).enumerate() {
            match row {
                Some(row) if row.state.is_finished() => ended.push(entry),
                Some(_) => {}
                None if index >= entries => ended.push(entry),
                None => without_row += 1,
            }
        }
        if without_row > 0 {
            EntriesWithoutRow { count: without_row }.emit(&self.reporter);
        }
        if let Err(error) = timer.settle(&ended).await {
            tracing::debug!(%error, entries = ended.len(), "could not remove entries of ended tasks; the next audit does");
        }
        Ok(())
    }

    /// Checks a page of the keys, and adopts those that the ledger lacks, armed while no daemon listened.
    async fn adopt_armed(&self, progress: &mut Progress) -> Result<Page, LedgerError> {
        if !self.router.adopts_any() && self.entries.is_none() {
            return Ok(Page::Last);
        }
        match self.scan_keys(progress).await {
            Ok(page) => self.adopt_page(page, progress).await,
            Err(error) => {
                if let Some(held_back) = self.reporter.failures.admit("go through the keys") {
                    tracing::warn!(%error, held_back, "some keys armed without a row may not be adopted; the next audit checks them again");
                }
                // A refused command is refused the next time, too.
                Ok(match error.is_transient() {
                    true => Page::Failed,
                    false => Page::Last,
                })
            }
        }
    }

    /// Reads the next page of the keys.
    async fn scan_keys(&self, progress: &Progress) -> Result<ArmedPage, TimerError> {
        let wants = |key: &TaskKey| self.router.adopts(key);
        match &self.listening {
            Some(server) => server.scan_foreign(progress.cursor, &wants).await,
            None => Ok(ArmedPage::default()),
        }
    }

    /// Adopts the keys of a page that the ledger lacks.
    async fn adopt_page(
        &self,
        page: ArmedPage,
        progress: &mut Progress,
    ) -> Result<Page, LedgerError> {
        progress.report.adopted += self.adopter.adopt(page.foreign).await?;
        self.remove_ended(page.overdue, page.taken).await?;
        progress.cursor = page.next;
        Ok(match page.next {
            Some(_) => Page::More,
            None => Page::Last,
        })
    }
}
