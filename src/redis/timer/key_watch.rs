//! Key watch: keys that changed, from their event until they are inspected.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use lapsed_core::task::{TaskKey, UnixMs};

/// Most keys that wait for inspection.
const WAITING_MAX: usize = 262_144;

/// How long a key that was missing at its inspection is remembered: its `expired` event may still arrive.
const REMEMBERED_FOR: Duration = Duration::from_secs(2);

/// The change that an event reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// The key received an expiry.
    Armed,
    /// The key was deleted, or lost its expiry.
    Disarmed,
}

/// When an event was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Receipt {
    pub(super) at: Instant,
    /// For a late event: it was published at this time or later, on the ledger's clock.
    pub(super) late_since: Option<UnixMs>,
}

/// Changed keys: waiting for inspection, in inspection, or missing at their inspection.
#[derive(Debug, Default)]
pub(super) struct KeyWatch {
    progress: HashMap<TaskKey, Progress>,
    waiting: VecDeque<TaskKey>,
    /// Keys that were missing, the oldest first.
    gone: VecDeque<(Instant, TaskKey)>,
}

/// The result of noting an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Noted {
    /// The key already waits or is in inspection. The change is kept.
    Known,
    /// The key now waits.
    New,
    /// The queue is full; the event is dropped.
    Full,
}

/// The progress of a changed key.
#[derive(Debug, Clone, Copy)]
enum Progress {
    /// Waits for inspection. Only the latest change counts.
    Waiting(LatestChange),
    /// In inspection, for `asked`.
    Inspecting {
        asked: LatestChange,
        again: Option<LatestChange>,
    },
    /// Armed, but missing at its inspection.
    Gone { since: Receipt, at: Instant },
}

/// The latest change of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LatestChange {
    pub(super) change: Change,
    pub(super) since: Receipt,
    /// What is known about its expiry since.
    pub(super) expiry: Expiry,
    /// When it was last disarmed before that.
    disarmed: Option<Instant>,
}

/// What is known about the expiry of a key since its latest change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expiry {
    /// No `expired` event has arrived.
    NotHeard,
    /// Its `expired` event has arrived.
    Heard,
    /// Events were lost, and its `expired` event may be one of them.
    MayBeLost,
}

impl LatestChange {
    fn new(change: Change, since: Receipt) -> Self {
        Self {
            change,
            since,
            expiry: Expiry::NotHeard,
            disarmed: None,
        }
    }

    /// Merges a change. The latest one counts; a replayed event may be older than those received since.
    fn note(&mut self, change: Change, receipt: Receipt) {
        if receipt.at >= self.since.at {
            self.disarmed = self.last_disarmed();
            (self.change, self.since) = (change, receipt);
            self.expiry = Expiry::NotHeard;
        } else if change == Change::Disarmed {
            self.disarmed = self.disarmed.max(Some(receipt.at));
        }
    }

    /// Returns when the key was last disarmed.
    pub(super) fn last_disarmed(&self) -> Option<Instant> {
        match self.change {
            Change::Armed => self.disarmed,
            Change::Disarmed => Some(self.since.at),
        }
    }
}

impl KeyWatch {
    /// Notes an event.
    pub(super) fn note(&mut self, key: TaskKey, change: Change, receipt: Receipt) -> Noted {
        match self.progress.get_mut(&key) {
            Some(Progress::Waiting(latest)) => {
                latest.note(change, receipt);
                return Noted::Known;
            }
            Some(Progress::Inspecting { asked, again }) => {
                match again {
                    Some(again) => again.note(change, receipt),
                    None if receipt.at >= asked.since.at => {
                        *again = Some(LatestChange::new(change, receipt))
                    }
                    None => {}
                }
                return Noted::Known;
            }
            Some(Progress::Gone { .. }) | None => {}
        }
        if self.waiting.len() >= WAITING_MAX {
            return Noted::Full;
        }
        self.wait(key, LatestChange::new(change, receipt));
        Noted::New
    }

    /// Notes an `expired` event. If the key was armed and missing at its inspection, returns when its arming was heard.
    pub(super) fn expired(&mut self, key: &TaskKey) -> Option<Receipt> {
        let latest = match self.progress.get_mut(key)? {
            Progress::Waiting(latest) => latest,
            Progress::Inspecting { asked, again } => again.as_mut().unwrap_or(asked),
            Progress::Gone { since, .. } => {
                let since = *since;
                self.progress.remove(key);
                return Some(since);
            }
        };
        // The inspection shows whether it was armed again.
        latest.expiry = Expiry::Heard;
        None
    }

    /// Puts keys in inspection back into the queue, with what is known about them: no reply will come.
    pub(super) fn requeue_inspected(&mut self) {
        let inspected = |(key, progress): (&TaskKey, &Progress)| match *progress {
            Progress::Inspecting { asked, again } => {
                let latest = again.map_or(asked, |again| LatestChange {
                    disarmed: again.disarmed.max(asked.last_disarmed()),
                    ..again
                });
                Some((key.clone(), latest))
            }
            Progress::Waiting(_) | Progress::Gone { .. } => None,
        };
        let lost: Vec<(TaskKey, LatestChange)> =
            self.progress.iter().filter_map(inspected).collect();
        for (key, latest) in lost {
            self.wait(key, latest);
        }
    }

    /// Notes that events were lost. Returns the keys that were armed and missing at their inspection, and whose
    /// `expired` events may be among them, with when their arming was heard. Keys that wait for inspection are marked.
    pub(super) fn events_lost(&mut self) -> Vec<(TaskKey, Receipt)> {
        for progress in self.progress.values_mut() {
            if let Progress::Waiting(latest) = progress
                && latest.expiry == Expiry::NotHeard
            {
                latest.expiry = Expiry::MayBeLost;
            }
        }
        let gone = std::mem::take(&mut self.gone).into_iter();
        gone.filter_map(|(remembered, key)| {
            let since = self.forget_one_gone(&key, remembered)?;
            Some((key, since))
        })
        .collect()
    }

    /// True if keys wait for inspection.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn wait(&mut self, key: TaskKey, latest: LatestChange) {
        self.progress.insert(key.clone(), Progress::Waiting(latest));
        self.waiting.push_back(key);
    }

    /// Takes at most `limit` waiting keys into inspection.
    pub(super) fn take(&mut self, limit: usize) -> Vec<(TaskKey, Change)> {
        self.forget_gone();
        let mut batch = Vec::new();
        while batch.len() < limit
            && let Some(key) = self.waiting.pop_front()
        {
            // A key may have been removed since.
            if let Some(progress) = self.progress.get_mut(&key)
                && let Progress::Waiting(asked) = *progress
            {
                *progress = Progress::Inspecting { asked, again: None };
                batch.push((key, asked.change));
            }
        }
        batch
    }

    /// Ends the inspection of a key, and returns what it was inspected for. Changes during it wait for the next one.
    pub(super) fn finish(&mut self, key: &TaskKey) -> Option<LatestChange> {
        match self.progress.remove(key)? {
            Progress::Inspecting { asked, again } => {
                if let Some(again) = again {
                    self.wait(key.clone(), again);
                }
                Some(asked)
            }
            Progress::Waiting(_) | Progress::Gone { .. } => None,
        }
    }

    /// Remembers a key that was armed at `since` and missing at its inspection.
    pub(super) fn remember_gone(&mut self, key: TaskKey, since: Receipt) {
        if self.gone.len() < WAITING_MAX && !self.progress.contains_key(&key) {
            let at = Instant::now();
            self.progress
                .insert(key.clone(), Progress::Gone { since, at });
            self.gone.push_back((at, key));
        }
    }

    fn forget_gone(&mut self) {
        while let Some((at, _)) = self.gone.front()
            && at.elapsed() >= REMEMBERED_FOR
        {
            let (remembered, key) = self.gone.pop_front().expect("just looked at");
            self.forget_one_gone(&key, remembered);
        }
    }

    /// Forgets a key that was remembered as missing at that time. Returns when its arming was heard; `None` if it has changed
    /// or expired since.
    fn forget_one_gone(&mut self, key: &TaskKey, remembered: Instant) -> Option<Receipt> {
        match self.progress.get(key) {
            Some(&Progress::Gone { since, at }) if at == remembered => {
                self.progress.remove(key);
                Some(since)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
