//! Members that have ended without saying so.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::membership::Capabilities;

/// A daemon that has ended without saying so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoneMember {
    /// Host and process.
    pub name: String,
    /// What it could run.
    pub capabilities: Arc<Capabilities>,
}

/// Most members that are remembered.
const GONE_MAX: usize = 16;

/// The latest members that are gone, oldest first, and when they were missed.
#[derive(Debug, Default)]
pub(super) struct Gone(VecDeque<(Instant, GoneMember)>);

impl Gone {
    /// Takes a change of the members. One that joins takes the place of one that is gone.
    pub(super) fn update(&mut self, lost: &[GoneMember], joined: usize, at: Instant) {
        self.0.drain(..joined.min(self.0.len()));
        self.0
            .extend(lost.iter().map(|member| (at, member.clone())));
        let surplus = self.0.len().saturating_sub(GONE_MAX);
        self.0.drain(..surplus);
    }

    /// Returns those that are gone since at most `span`, and whose place no other has taken.
    pub(super) fn within(&self, span: Duration) -> Vec<GoneMember> {
        let recent = self.0.iter().filter(|(at, _)| at.elapsed() < span);
        recent.map(|(_, member)| member.clone()).collect()
    }
}
