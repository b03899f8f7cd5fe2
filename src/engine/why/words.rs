//! Causes in words, for people and programs.

use super::WhyCause;
use crate::task::{State, UnixMs};

impl WhyCause {
    /// One word, for programs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Ended(..) => "ended",
            Self::Running(_) | Self::OlderRuns(_) => "running",
            Self::NotDue(_) => "not_due",
            Self::Retry(..) => "retry",
            Self::Starting => "starting",
            Self::Paused(_) => "paused",
            Self::Held(_) => "held",
            Self::Ledger(_) => "ledger",
            Self::NoDaemon => "no_daemon",
            Self::NoRoute => "no_route",
            Self::Away(_) => "away",
            Self::NoWorker(..) => "no_worker",
            Self::Concurrency(_) | Self::NoSlot => "no_slot",
            Self::Rate(_) => "rate",
            Self::Unheard => "unheard",
            Self::Unknown => "unknown",
        }
    }

    /// True if a person has to act before the task can start.
    pub fn is_trouble(&self) -> bool {
        match self {
            Self::Ledger(_)
            | Self::NoDaemon
            | Self::NoRoute
            | Self::Away(_)
            | Self::NoWorker(..)
            | Self::Unheard
            | Self::Unknown => true,
            Self::Ended(..)
            | Self::Running(_)
            | Self::OlderRuns(_)
            | Self::NotDue(_)
            | Self::Retry(..)
            | Self::Starting
            | Self::Paused(_)
            | Self::Held(_)
            | Self::Concurrency(_)
            | Self::NoSlot
            | Self::Rate(_) => false,
        }
    }

    /// Since when it is so, if that is known.
    pub fn since(&self) -> Option<UnixMs> {
        match self {
            Self::Paused(pause) | Self::Held(pause) => Some(pause.since),
            Self::Ended(_, since) | Self::Ledger(since) | Self::NoWorker(_, since) => *since,
            Self::Running(_)
            | Self::OlderRuns(_)
            | Self::NotDue(_)
            | Self::Retry(..)
            | Self::Starting
            | Self::NoDaemon
            | Self::NoRoute
            | Self::Away(_)
            | Self::Concurrency(_)
            | Self::NoSlot
            | Self::Rate(_)
            | Self::Unheard
            | Self::Unknown => None,
        }
    }

    /// What is so, a sentence about the task.
    pub fn text(&self) -> String {
        let since = |since: &Option<UnixMs>| since.map_or_else(String::new, since_text);
        match self {
            Self::Ended(state, at) => match at {
                Some(at) => format!("It has ended: it is {state} since {at}."),
                None => format!("It has ended: it is {state}."),
            },
            Self::Running(daemon) => format!("It runs now, on {daemon}."),
            Self::OlderRuns(daemon) => {
                format!("It starts when the run of its older arming has ended, on {daemon}.")
            }
            Self::NotDue(at) => format!("It is not due until {at}."),
            Self::Retry(at, attempt, max) => match max {
                Some(max) => format!("It waits until {at} for attempt {attempt} of {max}."),
                None => format!("It waits until {at} for attempt {attempt}."),
            },
            Self::Starting => "It fell due a moment ago and is about to start.".to_owned(),
            Self::Paused(pause) => match pause.scope.is_everything() {
                true => format!("Everything is paused {}.", pause.origin()),
                false => format!("`{}` is paused {}.", pause.scope, pause.origin()),
            },
            Self::Held(pause) => format!("It is held for review {}.", pause.origin()),
            Self::Ledger(gone) => {
                format!("The ledger does not answer the daemon{}.", since(gone))
            }
            Self::NoDaemon => "No daemon runs.".to_owned(),
            Self::NoRoute => "No daemon has a handler or a route for it.".to_owned(),
            Self::Away(names) if names.is_empty() => {
                "The daemons that have a route for it are gone, or accept no task.".to_owned()
            }
            Self::Away(names) => format!(
                "Only daemons that are gone, or accept no task, have a route for it: {}.",
                names.join(", ")
            ),
            Self::NoWorker(queue, asked) => {
                let queue = queue.as_ref();
                let queue = queue.map_or_else(String::new, |queue| format!(" `{queue}`"));
                let since = since(asked);
                format!("No worker asks any daemon for its queue{queue}{since}.")
            }
            Self::Concurrency(limit) => format!(
                "Its route runs as many tasks as it may at the same time: {limit} on the daemon that answers."
            ),
            Self::NoSlot => "All slots of the daemons that can run it are taken.".to_owned(),
            Self::Rate(rate) => format!("Other tasks of its route start first, at most {rate}."),
            Self::Unheard => "The daemon that answers cannot start it, and cannot hear the other daemons: Redis does not answer.".to_owned(),
            Self::Unknown => "A daemon can run it, and has not started it. Usual causes: its concurrency or rate is used up, all slots or workers are busy, or the ledger is slow.".to_owned(),
        }
    }

    /// What to do, if there is something to do.
    pub fn remedy(&self) -> Option<&'static str> {
        Some(match self {
            Self::Ended(State::Dead, _) => "Mend the cause of its error, then redrive it.",
            Self::Ended(..)
            | Self::Running(_)
            | Self::OlderRuns(_)
            | Self::NotDue(_)
            | Self::Retry(..)
            | Self::Starting => return None,
            Self::Paused(_) => "Resume it when it is time.",
            Self::Held(_) => "Release it when it is time: `lapsed resume --held`.",
            Self::Ledger(_) => "Check the database server and `ledger.url`.",
            Self::NoDaemon => "Start `lapsed listen`.",
            Self::NoRoute => {
                "Add a route that matches its key, and reload the daemons; or cancel it."
            }
            Self::Away(_) => "Start these daemons again, or give another one their routes.",
            Self::NoWorker(..) => "Start the workers of the queue.",
            Self::Concurrency(_) => {
                "Wait, or raise `concurrency` of the route; look for runs that hang."
            }
            Self::NoSlot => {
                "Wait, raise `engine.concurrency`, or start another daemon; look for runs that hang."
            }
            Self::Rate(_) => "Wait, or raise `rate` of the route.",
            Self::Unheard => "Check the Redis server and `redis.url`.",
            Self::Unknown => "Look at the log of the daemons, and run `lapsed doctor`.",
        })
    }
}

fn since_text(since: UnixMs) -> String {
    format!(" since {since}")
}
