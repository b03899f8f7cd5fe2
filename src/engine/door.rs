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

/// The second daemon that hears of a key writes its row down so much later than the first should have: that one may have
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
        self.router.runs(key)
    }

    fn owns(&self, key: &TaskKey) -> bool {
        self.share.owns(key)
    }

    fn turn(&self, key: &TaskKey) -> usize {
        self.share.turn(key)
    }

    fn to_be_told(&self, key: &TaskKey) -> Option<u64> {
        self.share.to_be_told(key).map(|member| member.0)
    }

    fn member(&self) -> Option<u64> {
        Some(self.share.me().0)
    }

    fn may_stop_listening(&self) -> bool {
        self.share.may_stop_listening()
    }

    fn ours(&self, key: &TaskKey) {
        self.sightings.take(key);
    }

    fn sighted(&self, sighting: Sighting) {
        if !self.router.adopts(&sighting.key) {
            return self.metrics.dropped("not_adopted", 1);
        }
        let wait = match self.share.turn(&sighting.key) {
            0 => Duration::ZERO,
            _ => NEXT_IN_LINE_WAITS,
        };
        if !self.sightings.add(sighting, wait) {
            self.metrics.dropped("sighting_overflow", 1);
            self.intake.audit(Cause::Overflow);
        }
    }
}
