//! What the timer talks to: signals go to the intake, sightings to those that wait to be adopted.

use std::sync::Arc;

use crate::engine::candidates::Candidates;
use crate::engine::queue::SignalQueue;
use crate::fleet::Share;
use crate::handler::Router;
use crate::task::TaskKey;
use crate::telemetry::Metrics;
use crate::timer::{Cause, Sighting, Signal, SignalSink};

/// The engine, as its timer sees it.
pub(crate) struct TimerSink {
    pub(crate) intake: Arc<SignalQueue>,
    pub(crate) sightings: Arc<Candidates>,
    pub(crate) router: Arc<Router>,
    pub(crate) share: Arc<Share>,
    pub(crate) metrics: Arc<Metrics>,
}

impl SignalSink for TimerSink {
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
        self.sightings.forget_arming(key);
    }

    fn sighted(&self, sighting: Sighting) {
        if !self.router.adopts(&sighting.key) {
            return self.metrics.dropped("not_adopted", 1);
        }
        let elder = self.share.first_in_turn(&sighting.key);
        if !self.sightings.add_behind(sighting, elder) {
            self.metrics.dropped("sighting_overflow", 1);
            self.intake.audit(Cause::Overflow);
        }
    }
}
