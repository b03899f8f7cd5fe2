//! Tasks that start after others: see [`After`](crate::task::After).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use super::health::LedgerHealth;
use crate::clock::LedgerClock;
use crate::ledger::{Admin, Claim, LedgerError, ListCursor, ListFilter, StateFilter};
use crate::task::{After, Envelope, IfDead, Outcome, State, UnixMs};

/// A task that waits is checked again after its waiting time divided by this, within [`AGAIN_MIN`] and [`AGAIN_MAX`].
const AGAIN_SHARE: u32 = 10;

/// Least time between two checks.
const AGAIN_MIN: Duration = Duration::from_secs(1);

/// Most time between two checks.
const AGAIN_MAX: Duration = Duration::from_secs(60);

/// How long a check searches. A group of many tasks takes several checks: the slot of the task is not kept meanwhile.
const SEARCH_MAX: Duration = Duration::from_millis(500);

/// Number of places from which all are forgotten, such as those of tasks that were cancelled: their searches begin anew.
const PLACES_MAX: usize = 1_000;

/// Decides whether claimed tasks that start after others may start.
pub struct Conditions {
    tasks: Arc<dyn Admin>,
    clock: LedgerClock,
    health: Arc<LedgerHealth>,
    /// Where the next check continues, if the last one took too long; [`PLACES_MAX`] at most.
    places: Mutex<HashMap<Waiting, ListCursor>>,
}

/// A task that waits: its row, and when it was created. One that is created again begins its search anew.
type Waiting = (u64, UnixMs);

/// What a check has found.
enum Found {
    /// A task that has not ended, in this state.
    Open(State),
    /// Nothing yet: there are more tasks to look at.
    More,
    /// Every task has ended.
    Nothing,
}

impl Conditions {
    pub fn new(tasks: Arc<dyn Admin>, clock: LedgerClock, health: Arc<LedgerHealth>) -> Self {
        Self {
            tasks,
            clock,
            health,
            places: Mutex::default(),
        }
    }

    /// Returns what has to end before a claimed task starts.
    pub fn of(claim: &Claim) -> Option<After> {
        claim.payload.as_deref().and_then(Envelope::condition)
    }

    /// Outcome of a claim whose task has to wait for others. `None` if it is to be run.
    pub async fn instead_of_running(&self, claim: &Claim) -> Option<Outcome> {
        let after = Self::of(claim)?;
        let found = match self.search(claim, &after).await {
            Ok(found) => found,
            Err(error) => {
                self.health
                    .log_failure("look for the tasks that a task waits for", &error);
                return Some(Outcome::NotStarted);
            }
        };
        let waited = self.clock.now().since(claim.attempt.since);
        let again = (waited / AGAIN_SHARE).clamp(AGAIN_MIN, AGAIN_MAX);
        let (delay, error) = match found {
            Found::Nothing => return None,
            Found::Open(state) => (again, after.waits_for(state)),
            Found::More => (
                AGAIN_MIN,
                format!("tasks with tag `{}` are being counted", after.tag),
            ),
        };
        Some(Outcome::Postponed { delay, error })
    }

    /// Looks for a task that has not ended, from where the last check stopped.
    async fn search(&self, claim: &Claim, after: &After) -> Result<Found, LedgerError> {
        let row = claim.lease.arming.row;
        let waiting = (row, claim.created);
        let until = Instant::now() + SEARCH_MAX;
        let mut filter = ListFilter {
            states: open_states(after.if_dead),
            limit: 1,
            brief: true,
            cursor: self.places().remove(&waiting),
            ..ListFilter::tag(&*after.tag)
        };
        loop {
            let page = self.tasks.list(&filter).await?;
            // A row with a malformed key never runs, and this task does not wait for itself.
            let open = page.tasks.iter().find(|task| task.row() != Some(row));
            if let Some(open) = open {
                return Ok(Found::Open(open.state));
            }
            let Some(next) = page.next else {
                return Ok(Found::Nothing);
            };
            if Instant::now() >= until {
                let mut places = self.places();
                if places.len() >= PLACES_MAX {
                    places.clear();
                }
                places.insert(waiting, next);
                return Ok(Found::More);
            }
            filter.cursor = Some(next);
        }
    }

    fn places(&self) -> MutexGuard<'_, HashMap<Waiting, ListCursor>> {
        self.places.lock().expect("nothing panics while holding it")
    }
}

/// The states of tasks that have not ended.
fn open_states(if_dead: IfDead) -> Vec<StateFilter> {
    let dead = (if_dead == IfDead::Wait).then_some(State::Dead);
    let open = [State::Pending, State::Waiting, State::Running];
    open.into_iter().chain(dead).map(StateFilter::Is).collect()
}
