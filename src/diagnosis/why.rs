//! Why a task has not run: one answer for the pages, the API, the command line and the log. Pure.

mod words;

use std::sync::Arc;
use std::time::Duration;

use super::STARTING;
use crate::handler::{Route, Router};
use crate::ledger::TaskRecord;
use crate::membership::{CapabilityMatcher, GoneMember, Member, MemberId, Readiness};
use crate::task::{BlockedBy, How, Pause, PauseKind, Paused, Rate, State, TaskKey, UnixMs};

/// A worker that asked a daemon for tasks at most this long ago may be busy with one, if the queue is not known here.
const BUSY_FOR: Duration = Duration::from_secs(30);

/// Why a task has not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhyCause {
    /// It has ended, in this state and at this time.
    Ended(State, Option<UnixMs>),
    /// It runs now, in this daemon.
    Running(String),
    /// An older arming of it runs, in this daemon.
    OlderRuns(String),
    /// It is due at this time.
    NotDue(UnixMs),
    /// It waits until this time for an attempt: its number, and the maximum if it is known.
    Retry(UnixMs, u16, Option<u16>),
    /// It starts after the tasks with this tag, and looks for them again at this time.
    After(String, UnixMs),
    /// It starts after the tasks with this tag, one of which is dead; it looks for them again at this time.
    AfterDead(String, UnixMs),
    /// It fell due a moment ago.
    Starting,
    /// Its class, its method or everything is paused.
    Paused(Pause),
    /// It is held for review.
    Held(Pause),
    /// The ledger does not answer the daemon; since when, if that is known.
    Ledger(Option<UnixMs>),
    /// No daemon runs.
    NoDaemon,
    /// None of the daemons has a handler or a route for it.
    NoRoute,
    /// Only daemons that are lost or accept no task have a handler or a route for it: their names.
    Away(Vec<String>),
    /// No worker asks any daemon for its queue. Since when, and the name of the queue, if they are known.
    NoWorker(Option<Arc<str>>, Option<UnixMs>),
    /// No worker asks this daemon for its queue, and the daemons of this ledger do not know of each other. The name of the queue,
    /// if it is known.
    NoWorkerHere(Option<Arc<str>>),
    /// Its route runs as many tasks as it may at the same time.
    Concurrency(u32),
    /// All slots of the daemons that can run it are taken.
    NoSlot,
    /// Its route may not start more tasks now.
    Rate(Rate),
    /// The other daemons cannot be heard, and this one cannot run it.
    Unheard,
    /// This daemon has no handler or route for it, and the daemons of this ledger do not know of each other.
    NoRouteHere,
    /// A daemon can run it, and nothing that is known blocks it.
    Unknown,
}

/// The answer about one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// Why it has not run.
    pub cause: WhyCause,
    /// If it is not due yet: what would hinder it if it were.
    pub then: Option<WhyCause>,
}

/// What is known of daemons that are not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unlisted {
    /// There are none.
    None,
    /// There may be some: their heartbeats cannot be read now.
    Unheard,
    /// There may be some: the daemons of this ledger publish no heartbeats.
    Unknown,
}

/// What is known about the daemons of a ledger.
#[derive(Debug)]
pub struct Daemons {
    live: Vec<(Member, CapabilityMatcher)>,
    gone: Vec<(String, CapabilityMatcher)>,
    unlisted: Unlisted,
}

impl Daemons {
    /// Takes the daemons that live, and those that have ended without deregistering.
    pub fn new(live: Vec<Member>, gone: Vec<GoneMember>) -> Self {
        let live = live.into_iter().map(|member| {
            let matcher = CapabilityMatcher::new(&member.capabilities);
            (member, matcher)
        });
        let gone = gone.into_iter().map(|gone| {
            let matcher = CapabilityMatcher::new(&gone.capabilities);
            (gone.name, matcher)
        });
        Self {
            live: live.collect(),
            gone: gone.collect(),
            unlisted: Unlisted::None,
        }
    }

    /// Says whether there may be others.
    #[must_use]
    pub fn with_unlisted(self, unlisted: Unlisted) -> Self {
        Self { unlisted, ..self }
    }

    /// The daemon with the smallest id of those that have a handler or a route for the key: it does what one is to do.
    pub fn first_that_runs(&self, key: &TaskKey) -> Option<MemberId> {
        let able = self.live.iter().filter(|(_, matcher)| matcher.can_run(key));
        able.map(|(member, _)| member.id).min()
    }
}

/// What the process that answers knows about the route of a key.
#[derive(Debug, Clone)]
pub struct RouteFacts {
    queue: Option<Arc<str>>,
    /// How long a worker has a task.
    visibility: Duration,
    max_attempts: u16,
    /// The limit that holds its tasks back in this process.
    limit: Option<WhyCause>,
}

impl RouteFacts {
    /// What the routes of a configuration say; `None` if none matches.
    pub fn of(router: &Router, key: &TaskKey) -> Option<Self> {
        router.find(key).map(|route| Self::of_route(&route))
    }

    pub(crate) fn of_route(route: &Route) -> Self {
        let pull = route.pull.as_ref();
        Self {
            queue: pull.map(|pull| Arc::clone(&pull.queue)),
            visibility: pull.map_or(BUSY_FOR, |pull| pull.visibility),
            max_attempts: route.retry.max_attempts,
            limit: None,
        }
    }

    /// Adds the limit that holds its tasks back in this process.
    #[must_use]
    pub(crate) fn limited(self, limit: Option<WhyCause>) -> Self {
        Self { limit, ..self }
    }
}

/// What the answer is made of.
#[derive(Debug)]
pub struct WhyFacts {
    /// The daemons.
    pub daemons: Daemons,
    /// All pauses and holds.
    pub pauses: Vec<Pause>,
    /// Set if the ledger does not answer the daemon that is asked: since when, if that is known.
    pub ledger_gone: Option<Option<UnixMs>>,
    /// Now, by the ledger's clock.
    pub now: UnixMs,
}

impl WhyFacts {
    /// Says why a task has not run.
    pub fn of_task(&self, task: &TaskRecord, route: Option<&RouteFacts>) -> Why {
        let cause = match task.state {
            State::Done | State::Dead | State::Cancelled => {
                WhyCause::Ended(task.state, task.finished)
            }
            // A claim counts its attempt, so this arming has not been claimed.
            State::Running if task.attempt == 0 => WhyCause::OlderRuns(task.daemon.clone()),
            State::Running => WhyCause::Running(task.daemon.clone()),
            State::Pending | State::Waiting if task.due_at > self.now => {
                let blocked_by = self.of_due(&task.key, task.due, route);
                let blocked = match blocked_by {
                    WhyCause::Concurrency(_)
                    | WhyCause::NoSlot
                    | WhyCause::Rate(_)
                    | WhyCause::NoWorkerHere(_)
                    | WhyCause::NoRouteHere
                    | WhyCause::Unknown => None,
                    blocked_by => Some(blocked_by),
                };
                let max = route.map(|route| route.max_attempts);
                return Why {
                    cause: match task.state {
                        State::Waiting if let Some(cause) = after_others(task) => cause,
                        State::Waiting => WhyCause::Retry(
                            task.due_at,
                            task.attempt.saturating_add(1),
                            task.max_attempts.or(max),
                        ),
                        _ => WhyCause::NotDue(task.due_at),
                    },
                    then: blocked,
                };
            }
            State::Pending | State::Waiting => {
                let is_new = self.now.since(task.due_at) < STARTING;
                match self.of_due(&task.key, task.due, route) {
                    WhyCause::Unknown if is_new => WhyCause::Starting,
                    cause => cause,
                }
            }
        };
        Why { cause, then: None }
    }

    /// Says why tasks of a key do not start though they are due. `due` is their `end_time`, by which they may be held.
    pub fn of_due(&self, key: &TaskKey, due: UnixMs, route: Option<&RouteFacts>) -> WhyCause {
        let is = |kind, pause: &&Pause| pause.kind == kind && pause.scope.covers(key);
        let pause = |kind| self.pauses.iter().find(|pause| is(kind, pause)).cloned();
        let blocked = match Paused::of(&self.pauses).blocks(key, due) {
            Some(BlockedBy::Paused) => pause(PauseKind::Pause).map(WhyCause::Paused),
            Some(BlockedBy::Held) => pause(PauseKind::Hold).map(WhyCause::Held),
            None => None,
        };
        if let Some(blocked) = blocked {
            return blocked;
        }
        if let Some(since) = self.ledger_gone {
            return WhyCause::Ledger(since);
        }
        self.of_daemons(key, route)
    }

    fn of_daemons(&self, key: &TaskKey, route: Option<&RouteFacts>) -> WhyCause {
        let daemons = &self.daemons;
        let able = || daemons.live.iter().filter(|(_, it)| it.can_run(key));
        let (here, away): (Vec<_>, Vec<_>) =
            able().partition(|(member, _)| member.readiness > Readiness::Away);
        if here.is_empty() {
            let away = away.into_iter().map(|(member, _)| member.name.clone());
            let gone = daemons.gone.iter().filter(|(_, it)| it.can_run(key));
            let away: Vec<String> = away.chain(gone.map(|(name, _)| name.clone())).collect();
            return match () {
                () if daemons.unlisted == Unlisted::Unheard => WhyCause::Unheard,
                () if !away.is_empty() => WhyCause::Away(away),
                () if daemons.unlisted == Unlisted::Unknown => WhyCause::NoRouteHere,
                () if daemons.live.is_empty() => WhyCause::NoDaemon,
                () => WhyCause::NoRoute,
            };
        }
        let busy_for = route.map_or(BUSY_FOR, |route| route.visibility);
        let asked = here.iter().map(|(member, matcher)| {
            let place = matcher.idle_place(key)?;
            let asked = member.idle_since.get(place).copied();
            let is_busy = asked.is_some_and(|asked| self.now.since(asked) <= busy_for);
            // What was before the start of a daemon is not known.
            (!is_busy).then(|| asked.map(|asked| asked.max(member.since)))
        });
        // Each daemon has an idle route: when its workers asked last.
        let asked: Option<Vec<Option<UnixMs>>> = asked.collect();
        if let Some(asked) = asked {
            let queue = route.and_then(|route| route.queue.clone());
            let since: Option<Vec<UnixMs>> = asked.into_iter().collect();
            let since = since.and_then(|since| since.into_iter().max());
            let since = since.filter(|since| *since > UnixMs(0));
            return match daemons.unlisted {
                Unlisted::Unheard => WhyCause::Unheard,
                Unlisted::Unknown => WhyCause::NoWorkerHere(queue),
                Unlisted::None => WhyCause::NoWorker(queue, since),
            };
        }
        if let Some(limit) = route.and_then(|route| route.limit.clone()) {
            return limit;
        }
        let is_pulled = route.is_some_and(|route| route.queue.is_some());
        let is_full = |(member, _): &&(Member, _)| member.readiness == Readiness::Full;
        match !is_pulled && here.iter().all(is_full) {
            true => WhyCause::NoSlot,
            false => WhyCause::Unknown,
        }
    }
}

/// The cause of a task that has been found to wait for others. `None` if it waits for something else.
fn after_others(task: &TaskRecord) -> Option<WhyCause> {
    let after = task.after.as_ref()?;
    let latest = task.history.first()?;
    let (tag, again) = (after.tag.clone(), task.due_at);
    match latest.how {
        How::Snoozed if latest.error == after.waits_for(State::Dead) => {
            Some(WhyCause::AfterDead(tag, again))
        }
        // A handler that snoozes gives no text.
        How::Snoozed if !latest.error.is_empty() => Some(WhyCause::After(tag, again)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
