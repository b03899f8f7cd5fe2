//! What starts on a route: how much runs now, how many starts its rate allows, and who is woken when that changes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::class::SignalClass;

/// How long starts that were granted may wait to be used. What is older is lost: a route that starts late must not start
/// more at once than its rate says.
const GRANT_LASTS: Duration = Duration::from_secs(1);

/// Wakes those who dispatch, and who asks for starts.
#[derive(Debug, Default)]
pub struct Wakeups {
    fresh: Notify,
    swept: Notify,
    /// Signals wait that may not start: who ends next says so.
    held: AtomicBool,
    /// A route with a rate has signals and no starts.
    pub starved: Notify,
    /// There is room for a sweep again, where there was little.
    pub drained: Notify,
}

impl Wakeups {
    /// Something arrived in this class, or may start now.
    pub fn arrived(&self, class: SignalClass) -> &Notify {
        match class {
            SignalClass::Fresh => &self.fresh,
            SignalClass::Backlog => &self.swept,
        }
    }

    /// Something is about to be found waiting that may not start. Said *before* looking: a run that ends in between is
    /// then seen, or heard.
    pub fn listen_for_ends(&self) {
        self.held.store(true, Ordering::SeqCst);
    }

    /// What may start has changed.
    pub fn open(&self) {
        self.fresh.notify_one();
        self.swept.notify_one();
    }

    fn ended(&self) {
        if self.held.swap(false, Ordering::SeqCst) {
            self.open();
        }
    }
}

/// What goes on on one route. It outlives a reload of the routes.
#[derive(Debug)]
pub struct RouteLoad {
    running: AtomicUsize,
    hand: Mutex<Granted>,
    wakeups: Arc<Wakeups>,
}

/// Starts that were granted and are not used yet.
#[derive(Debug, Default)]
struct Granted {
    starts: u32,
    since: Option<Instant>,
}

impl RouteLoad {
    /// Nothing runs.
    pub fn new(wakeups: Arc<Wakeups>) -> Self {
        Self {
            running: AtomicUsize::new(0),
            hand: Mutex::default(),
            wakeups,
        }
    }

    /// Runs, and claims that may become runs.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    /// How many starts are in hand.
    pub fn starts(&self) -> u32 {
        self.hand().fresh()
    }

    /// So many more starts were granted.
    pub fn grant(&self, starts: u32) {
        let mut hand = self.hand();
        hand.starts = hand.fresh().saturating_add(starts);
        hand.since = Some(Instant::now());
    }

    /// Takes a permit, and one of the starts in hand where they are counted.
    pub fn permit(self: &Arc<Self>, counted: bool) -> RoutePermit {
        if counted {
            let mut hand = self.hand();
            hand.starts = hand.fresh().saturating_sub(1);
        }
        self.running.fetch_add(1, Ordering::SeqCst);
        RoutePermit {
            load: Arc::clone(self),
            counted,
            unused: counted,
        }
    }

    fn hand(&self) -> MutexGuard<'_, Granted> {
        self.hand.lock().expect("nothing panics while holding it")
    }
}

impl Granted {
    fn fresh(&self) -> u32 {
        let fresh = self
            .since
            .is_some_and(|since| since.elapsed() < GRANT_LASTS);
        if fresh { self.starts } else { 0 }
    }
}

/// A signal's right to one run of its route, from before the claim until the run has ended.
#[derive(Debug)]
pub struct RoutePermit {
    load: Arc<RouteLoad>,
    /// It took one of the starts in hand.
    counted: bool,
    /// It took one of the starts in hand, and nothing has started.
    unused: bool,
}

impl RoutePermit {
    /// A run starts on it.
    pub fn start(&mut self) {
        self.unused = false;
    }

    /// Nothing was run after all.
    pub fn give_back(&mut self) {
        self.unused = self.counted;
    }
}

impl Drop for RoutePermit {
    fn drop(&mut self) {
        if self.unused {
            // The claim was lost, or nothing was run: the next one may have it.
            let mut hand = self.load.hand();
            hand.starts = hand.fresh().saturating_add(1);
        }
        self.load.running.fetch_sub(1, Ordering::SeqCst);
        self.load.wakeups.ended();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_start_that_was_not_used_goes_to_the_next_and_none_lasts() {
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
        for (counted, starts) in [(true, 1), (false, 1)] {
            let mut missed = load.permit(counted);
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
