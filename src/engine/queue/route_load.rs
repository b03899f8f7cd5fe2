//! Load of a route: its current runs, the starts that its rate limit granted, and the wakeups when either changes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::class::SignalClass;
use crate::engine::workers::demand::Reservation;

/// Lifetime of granted starts. Unused starts expire, so that a route that starts late does not start more runs at once
/// than its rate allows.
const GRANT_LASTS: Duration = Duration::from_secs(1);

/// Wakes the workers, the rate limit task and the sweep.
#[derive(Debug, Default)]
pub struct Wakeups {
    fresh: Notify,
    backlog: Notify,
    /// True if blocked signals wait: the next run that ends wakes the workers.
    blocked: AtomicBool,
    /// Notified when a route with a rate limit has signals but no starts.
    pub starved: Notify,
    /// Notified when a queue that was full has room for a sweep again.
    pub drained: Notify,
}

impl Wakeups {
    /// Notified when a signal of this class arrives or may start.
    pub fn arrived(&self, class: SignalClass) -> &Notify {
        match class {
            SignalClass::Fresh => &self.fresh,
            SignalClass::Backlog => &self.backlog,
        }
    }

    /// Requests a wakeup when a run ends. Called *before* checking for blocked signals: a run that ends in between is then
    /// either seen by the check or wakes the workers.
    pub fn watch_for_run_ends(&self) {
        self.blocked.store(true, Ordering::SeqCst);
    }

    /// Wakes the workers of both classes: which signals may start has changed.
    pub fn wake_all(&self) {
        self.fresh.notify_one();
        self.backlog.notify_one();
    }

    fn run_ended(&self) {
        if self.blocked.swap(false, Ordering::SeqCst) {
            self.wake_all();
        }
    }
}

/// Runs and granted starts of one route. Outlives a reload of the routes.
#[derive(Debug)]
pub struct RouteLoad {
    running: AtomicUsize,
    granted: Mutex<Granted>,
    wakeups: Arc<Wakeups>,
}

/// Starts that were granted and not used yet.
#[derive(Debug, Default)]
struct Granted {
    starts: u32,
    since: Option<Instant>,
}

impl RouteLoad {
    /// Creates the load of a route without runs.
    pub fn new(wakeups: Arc<Wakeups>) -> Self {
        Self {
            running: AtomicUsize::new(0),
            granted: Mutex::default(),
            wakeups,
        }
    }

    /// Number of runs, and of claims that may become runs.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    /// Number of granted starts that can still be used.
    pub fn starts(&self) -> u32 {
        self.granted().usable()
    }

    /// Adds granted starts.
    pub fn grant(&self, starts: u32) {
        let mut granted = self.granted();
        granted.starts = granted.usable().saturating_add(starts);
        granted.since = Some(Instant::now());
    }

    /// Takes a permit and, on a rate-limited route, one granted start.
    pub fn permit(self: &Arc<Self>, is_counted: bool) -> RoutePermit {
        if is_counted {
            let mut granted = self.granted();
            granted.starts = granted.usable().saturating_sub(1);
        }
        self.running.fetch_add(1, Ordering::SeqCst);
        RoutePermit {
            load: Arc::clone(self),
            is_counted,
            is_unused: is_counted,
            reservation: None,
        }
    }

    fn granted(&self) -> MutexGuard<'_, Granted> {
        self.granted
            .lock()
            .expect("nothing panics while holding it")
    }
}

impl Granted {
    fn usable(&self) -> u32 {
        let is_usable = self
            .since
            .is_some_and(|since| since.elapsed() < GRANT_LASTS);
        if is_usable { self.starts } else { 0 }
    }
}

/// Permit for one run of a route, held from before the claim until the run has ended.
#[derive(Debug)]
pub struct RoutePermit {
    load: Arc<RouteLoad>,
    /// True if the permit took a granted start.
    is_counted: bool,
    /// True if the permit took a granted start and no run has used it.
    is_unused: bool,
    /// The demand of pull workers that the claim is made for.
    reservation: Option<Reservation>,
}

impl RoutePermit {
    /// Adds the demand that the claim is made for.
    pub fn reserving(mut self, reservation: Option<Reservation>) -> Self {
        self.reservation = reservation;
        self
    }

    /// Frees the demand that the claim was made for.
    pub fn end_reservation(&mut self) {
        self.reservation = None;
    }

    /// Uses the permit's start for a run.
    pub fn start(&mut self) {
        self.is_unused = false;
    }

    /// Marks the permit's start as unused, since nothing was run.
    pub fn give_back(&mut self) {
        self.is_unused = self.is_counted;
    }
}

impl Drop for RoutePermit {
    fn drop(&mut self) {
        if self.is_unused {
            // The claim was lost or nothing was run: the next signal may use the start.
            let mut granted = self.load.granted();
            granted.starts = granted.usable().saturating_add(1);
        }
        self.end_reservation();
        self.load.running.fetch_sub(1, Ordering::SeqCst);
        self.load.wakeups.run_ended();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_unused_start_is_given_back_and_starts_expire() {
        let load = Arc::new(RouteLoad::new(Arc::default()));
        load.grant(2);
        let (lost, mut won) = (load.permit(true), load.permit(true));
        assert_eq!((load.running(), load.starts()), (2, 0));
        won.start();
        drop((lost, won));
        assert_eq!((load.running(), load.starts()), (0, 1));
        tokio::time::advance(GRANT_LASTS).await;
        assert_eq!(load.starts(), 0);
        load.grant(1);
        for (is_counted, starts) in [(true, 1), (false, 1)] {
            let mut missed = load.permit(is_counted);
            missed.start();
            missed.give_back();
            drop(missed);
            assert_eq!(load.starts(), starts, "as many as before");
        }
        tokio::time::advance(GRANT_LASTS).await;
        load.grant(3);
        assert_eq!(load.starts(), 3);
    }
}
