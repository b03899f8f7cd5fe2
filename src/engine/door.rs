//! What the timer talks to: signals go to the intake, sightings to those that wait to be adopted.

use std::sync::Arc;
use std::time::Duration;

use super::intake::Intake;
use super::sightings::Sightings;
use crate::fleet::Share;
use crate::handler::Router;
use crate::task::TaskKey;
use crate::telemetry::Metrics;
use crate::timer::{Cause, Sighting, Signal, SignalSink};

/// Who comes next in line for a key writes its row down so much later than its owner should have: the owner may have
/// died since it heard of the key.
const NEXT_IN_LINE_WAITS: Duration = Duration::from_secs(1);

/// The engine, as its timer sees it.
pub(super) struct Door {
    pub(super) intake: Arc<Intake>,
    pub(super) sightings: Arc<Sightings>,
    pub(super) router: Arc<Router>,
    pub(super) share: Arc<Share>,
    pub(super) metrics: Arc<Metrics>,
}

impl SignalSink for Door {
    fn raise(&self, signal: Signal) {
        self.intake.raise(signal);
    }

    fn sweep(&self, cause: Cause) {
        self.intake.sweep(cause);
    }

    fn audit(&self, cause: Cause) {
        self.intake.audit(cause);
    }

    fn wants(&self, key: &TaskKey) -> bool {
        self.share.rank(key) <= 1 && self.router.runs(key)
    }

    fn owns(&self, key: &TaskKey) -> bool {
        self.share.owns(key)
    }

    fn ours(&self, key: &TaskKey) {
        self.sightings.take(key);
    }

    fn sighted(&self, sighting: Sighting) {
        if !self.router.adopts(&sighting.key) {
            return self.metrics.dropped("not_adopted", 1);
        }
        let wait = match self.share.owns(&sighting.key) {
            true => Duration::ZERO,
            false => NEXT_IN_LINE_WAITS,
        };
        if !self.sightings.add(sighting, wait) {
            self.metrics.dropped("sighting_overflow", 1);
            self.intake.audit(Cause::Overflow);
        }
    }
}
