//! A ledger with faults.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use lapsed::clock::LedgerClock;
use lapsed::ledger::memory::MemoryLedger;
use lapsed::ledger::{
    Admin, Adopted, Adoption, AdoptionRequest, ArchiveMaintenance, CancelAnswer, CancelByKey,
    CancelByKeyAnswer, CancelPage, Changed, Claim, Claimant, Claims, Created, Decide,
    DetailedStats, DetailedStatsLimits, DuePage, DuePlace, DueScan, Forecast, ForecastRange,
    FoundLease, Known, Lease, LeasePage, Ledger, LedgerError, ListCursor, ListFilter, ListPage,
    Lookup, MethodPages, MethodScan, MethodTag, NearScan, NewTask, PauseAnswer, Pauses, Picked,
    Producer, Progress, Prune, PruneCursor, Pruned, ReleaseAnswer, Renewal, RescheduleAnswer,
    Retention, RowSnapshot, RunNowAnswer, Scans, See, Settled, Settlement, TaskRecord, Upcoming,
    Window,
};
use lapsed::task::{
    Arming, Due, KeyBuckets, Pause, Paused, Scope, State, TaskKey, UnixMs, Verdict,
};

use super::faults::{Faults, refused, unavailable};

#[derive(Debug)]
pub struct Faulty {
    pub(super) inner: Arc<MemoryLedger>,
    faults: Arc<Faults>,
    clock: LedgerClock,
}

impl Faulty {
    pub fn new(inner: Arc<MemoryLedger>, faults: Arc<Faults>) -> Self {
        let ahead = *faults.clock_ahead.lock().unwrap();
        Self {
            clock: LedgerClock::starting_at(inner.clock().now().plus(ahead)),
            inner,
            faults,
        }
    }
}

#[async_trait]
impl Ledger for Faulty {
    fn clock(&self) -> &LedgerClock {
        &self.clock
    }

    async fn sync_clock(&self) -> Result<UnixMs, LedgerError> {
        self.faults.connection().await;
        self.inner.sync_clock().await
    }

    async fn check(&self) -> Result<(), LedgerError> {
        self.inner.check().await
    }

    async fn check_writable(&self) -> Result<(), LedgerError> {
        match self.faults.read_only.load(Ordering::SeqCst) {
            true => Err(refused()),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Claims for Faulty {
    async fn look_up(&self, keys: &[TaskKey]) -> Result<Vec<Option<Lookup>>, LedgerError> {
        if self.faults.look_up_fails.load(Ordering::SeqCst) {
            return Err(unavailable());
        }
        self.inner.look_up(keys).await
    }

    async fn claim(&self, armings: &[Arming], by: &Claimant) -> Result<Vec<Claim>, LedgerError> {
        if self.faults.read_only.load(Ordering::SeqCst) {
            return Err(refused());
        }
        let locked = *self.faults.locked_row.lock().unwrap();
        let free = armings.iter().filter(|arming| Some(arming.row) != locked);
        let free: Vec<Arming> = free.copied().collect();
        let under_way = self.faults.claims_under_way.fetch_add(1, Ordering::SeqCst) + 1;
        let most = &self.faults.claims_at_once_max;
        most.fetch_max(under_way, Ordering::SeqCst);
        let claims = self.inner.claim(&free, by).await;
        let takes = *self.faults.claim_answer_takes.lock().unwrap();
        tokio::time::sleep(takes).await;
        self.faults.claims_under_way.fetch_sub(1, Ordering::SeqCst);
        claims
    }

    async fn renew(&self, leases: &[Lease], length: Duration) -> Result<Vec<Renewal>, LedgerError> {
        match self.faults.renewals_locked.load(Ordering::SeqCst) {
            true => Ok(vec![Renewal::Locked; leases.len()]),
            false => self.inner.renew(leases, length).await,
        }
    }

    async fn report(
        &self,
        reports: &[(Lease, Progress)],
        length: Duration,
    ) -> Result<Vec<Renewal>, LedgerError> {
        self.faults.reports.fetch_add(1, Ordering::SeqCst);
        if self.faults.reports_refused.load(Ordering::SeqCst) {
            return Err(refused());
        }
        match self.faults.renewals_locked.load(Ordering::SeqCst) {
            true => Ok(vec![Renewal::Locked; reports.len()]),
            false => self.inner.report(reports, length).await,
        }
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>, LedgerError> {
        let error = self.faults.settle_errors.lock().unwrap().pop_front();
        let locked = &self.faults.settle_locked;
        let is_locked =
            locked.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        let row = *self.faults.refused_row.lock().unwrap();
        let is_refused = self.faults.settle_refused.load(Ordering::SeqCst)
            || settlements
                .iter()
                .any(|one| Some(one.lease.arming.row) == row);
        let is_unfit = |one: &Settlement| matches!(one.verdict, Verdict::CompleteWith(_));
        if self.faults.results_unfit.load(Ordering::SeqCst) && settlements.iter().any(is_unfit) {
            return Err(LedgerError::Unfit {
                message: "no".into(),
                source: None,
            });
        }
        match error {
            Some(error) => Err(error),
            None if is_refused => Err(refused()),
            None if is_locked.is_ok() => Ok(vec![Settled::Locked; settlements.len()]),
            None => self.inner.settle(settlements).await,
        }
    }

    async fn pardon(&self, lease: &Lease) -> Result<Renewal, LedgerError> {
        self.inner.pardon(lease).await
    }

    async fn end_leases(&self, leases: &[FoundLease]) -> Result<u64, LedgerError> {
        self.inner.end_leases(leases).await
    }
}

#[async_trait]
impl Scans for Faulty {
    async fn scan(&self, scan: DueScan) -> Result<DuePage, LedgerError> {
        self.faults.connection().await;
        self.faults.scan(&scan);
        if let Window::Ahead(_) = scan.window {
            let takes = *self.faults.scan_ahead_takes.lock().unwrap();
            tokio::time::sleep(takes).await;
        }
        self.inner.scan(scan).await
    }

    async fn scan_new(
        &self,
        scan: DueScan,
        among: &KeyBuckets,
        known: Known<'_>,
    ) -> Result<DuePage, LedgerError> {
        self.faults.connection().await;
        self.faults.scan(&scan);
        self.inner.scan_new(scan, among, known).await
    }

    async fn scan_near(
        &self,
        scan: NearScan,
        among: &KeyBuckets,
        known: Known<'_>,
    ) -> Result<Vec<Upcoming>, LedgerError> {
        self.faults.connection().await;
        self.faults.near_scans.fetch_add(1, Ordering::SeqCst);
        match self.faults.scan_near_fails.load(Ordering::SeqCst) {
            true => Err(unavailable()),
            false => self.inner.scan_near(scan, among, known).await,
        }
    }

    async fn unsignalled_changes(&self) -> Result<Option<u64>, LedgerError> {
        Ok(*self.faults.unsignalled_changes.lock().unwrap())
    }

    async fn scan_unpaused(&self, scan: DueScan, paused: &Paused) -> Result<DuePage, LedgerError> {
        self.faults.connection().await;
        self.faults.scan(&scan);
        self.inner.scan_unpaused(scan, paused).await
    }

    async fn scan_methods(&self, scan: MethodScan) -> Result<Option<MethodPages>, LedgerError> {
        self.faults.connection().await;
        self.inner.scan_methods(scan).await
    }

    async fn scan_method(&self, method: &MethodTag, scan: DueScan) -> Result<DuePage, LedgerError> {
        self.faults.connection().await;
        self.inner.scan_method(method, scan).await
    }

    async fn scan_leases(
        &self,
        after: Option<DuePlace>,
        ahead: Duration,
    ) -> Result<LeasePage, LedgerError> {
        self.faults.connection().await;
        self.faults.lease_scans.fetch_add(1, Ordering::SeqCst);
        match self.faults.scan_leases_fails.load(Ordering::SeqCst) {
            true => Err(unavailable()),
            false => self.inner.scan_leases(after, ahead).await,
        }
    }

    async fn claimable(&self, rows: &[u64]) -> Result<Vec<Upcoming>, LedgerError> {
        self.faults.connection().await;
        self.inner.claimable(rows).await
    }
}

#[async_trait]
impl Producer for Faulty {
    async fn create(&self, tasks: &[NewTask]) -> Result<Vec<Created>, LedgerError> {
        self.inner.create(tasks).await
    }

    async fn read_row(&self, key: &TaskKey) -> Result<Option<RowSnapshot>, LedgerError> {
        self.inner.read_row(key).await
    }

    async fn read_rows(&self, keys: &[TaskKey], see: Arc<dyn See>) -> Result<(), LedgerError> {
        self.inner.read_rows(keys, see).await
    }

    async fn change(
        &self,
        keys: &[TaskKey],
        see: Arc<dyn See>,
        decide: Arc<Decide>,
    ) -> Result<Vec<Changed>, LedgerError> {
        self.inner.change(keys, see, decide).await
    }

    async fn write_series(
        &self,
        task: &NewTask,
        over: Option<&RowSnapshot>,
    ) -> Result<Option<Arming>, LedgerError> {
        self.inner.write_series(task, over).await
    }

    async fn mark_configured(&self, seen: &RowSnapshot) -> Result<bool, LedgerError> {
        self.inner.mark_configured(seen).await
    }

    async fn reschedule(
        &self,
        key: &TaskKey,
        due: UnixMs,
    ) -> Result<RescheduleAnswer, LedgerError> {
        self.inner.reschedule(key, due).await
    }

    async fn cancel(&self, keys: &[TaskKey]) -> Result<Vec<CancelAnswer>, LedgerError> {
        self.inner.cancel(keys).await
    }

    async fn cancel_page(
        &self,
        filter: &ListFilter,
        dry_run: bool,
    ) -> Result<CancelPage, LedgerError> {
        self.inner.cancel_page(filter, dry_run).await
    }
}

#[async_trait]
impl Adoption for Faulty {
    async fn adopt(&self, keys: &[AdoptionRequest]) -> Result<Vec<Adopted>, LedgerError> {
        match self.faults.adopt_fails.load(Ordering::SeqCst) {
            true => Err(unavailable()),
            false => self.inner.adopt(keys).await,
        }
    }

    async fn cancel_by_key(
        &self,
        cancellations: &[CancelByKey],
        ahead: Duration,
    ) -> Result<Vec<CancelByKeyAnswer>, LedgerError> {
        self.inner.cancel_by_key(cancellations, ahead).await
    }

    async fn undelete(&self, arming: Arming) -> Result<bool, LedgerError> {
        self.inner.undelete(arming).await
    }
}

#[async_trait]
impl Admin for Faulty {
    async fn find(&self, key: &TaskKey) -> Result<Option<TaskRecord>, LedgerError> {
        self.inner.find(key).await
    }

    async fn find_archived(&self, key: &TaskKey) -> Result<Option<TaskRecord>, LedgerError> {
        self.inner.find_archived(key).await
    }

    async fn list(&self, filter: &ListFilter) -> Result<ListPage, LedgerError> {
        let stops = |left: u32| left.checked_sub(1);
        let stop = &self.faults.lists_stop;
        if stop
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, stops)
            .is_ok()
        {
            tokio::time::sleep(Duration::from_millis(500)).await;
            return Ok(ListPage {
                next: Some(filter.cursor.clone().unwrap_or(ListCursor::Row(0))),
                searched: Some(1),
                ..ListPage::default()
            });
        }
        self.inner.list(filter).await
    }

    async fn detailed_stats(
        &self,
        limits: DetailedStatsLimits,
    ) -> Result<DetailedStats, LedgerError> {
        self.inner.detailed_stats(limits).await
    }

    async fn forecast(&self, range: ForecastRange) -> Result<Forecast, LedgerError> {
        self.inner.forecast(range).await
    }

    async fn overdue_for(&self) -> Result<Duration, LedgerError> {
        let waits = *self.faults.counts_fail_after.lock().unwrap();
        match waits {
            Some(waits) => {
                tokio::time::sleep(waits).await;
                Err(refused())
            }
            None => self.inner.overdue_for().await,
        }
    }

    async fn run_now(&self, key: &TaskKey) -> Result<RunNowAnswer, LedgerError> {
        self.inner.run_now(key).await
    }

    async fn redrive(&self, key: &TaskKey) -> Result<RunNowAnswer, LedgerError> {
        self.inner.redrive(key).await
    }

    async fn pick_dead(&self, filter: &ListFilter) -> Result<Picked, LedgerError> {
        self.inner.pick_dead(filter).await
    }

    async fn redrive_rows(&self, rows: &[u64]) -> Result<u64, LedgerError> {
        self.inner.redrive_rows(rows).await
    }

    async fn dead_keys(&self, rows: &[u64]) -> Result<Vec<TaskKey>, LedgerError> {
        self.inner.dead_keys(rows).await
    }

    async fn discard_rows(&self, rows: &[u64]) -> Result<u64, LedgerError> {
        self.inner.discard_rows(rows).await
    }
}

#[async_trait]
impl Retention for Faulty {
    async fn prune(&self, prune: &Prune) -> Result<Pruned, LedgerError> {
        self.inner.prune(prune).await
    }

    async fn prune_rows(&self, prune: &Prune, rows: &[u64]) -> Result<u64, LedgerError> {
        self.inner.prune_rows(prune, rows).await
    }

    async fn end_cancelled(
        &self,
        after: Option<DuePlace>,
    ) -> Result<(u64, Option<DuePlace>), LedgerError> {
        self.inner.end_cancelled(after).await
    }

    async fn surplus(&self, state: State, keep: u64) -> Result<Option<PruneCursor>, LedgerError> {
        self.inner.surplus(state, keep).await
    }

    async fn maintain_archive(
        &self,
        keep: Option<Duration>,
    ) -> Result<ArchiveMaintenance, LedgerError> {
        self.inner.maintain_archive(keep).await
    }
}

#[async_trait]
impl Pauses for Faulty {
    async fn pauses(&self) -> Result<Vec<Pause>, LedgerError> {
        self.faults.connection().await;
        match self.faults.pauses_fail.load(Ordering::SeqCst) {
            true => Err(refused()),
            false => self.inner.pauses().await,
        }
    }

    async fn pause(
        &self,
        scope: &Scope,
        end: Option<Due>,
        by: &str,
        reason: &str,
    ) -> Result<PauseAnswer, LedgerError> {
        self.inner.pause(scope, end, by, reason).await
    }

    async fn resume(&self, scope: &Scope) -> Result<Option<Pause>, LedgerError> {
        self.inner.resume(scope).await
    }

    async fn hold_overdue(&self, by: &str, reason: &str) -> Result<PauseAnswer, LedgerError> {
        self.inner.hold_overdue(by, reason).await
    }

    async fn release(&self, scope: &Scope, by: &str) -> Result<ReleaseAnswer, LedgerError> {
        self.inner.release(scope, by).await
    }

    async fn count_overdue(&self, before: UnixMs, limit: u32) -> Result<u64, LedgerError> {
        self.inner.count_overdue(before, limit).await
    }
}
