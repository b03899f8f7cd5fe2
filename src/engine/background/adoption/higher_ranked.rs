//! Leaves candidates to the daemons that act on them first, while these are alive.

use std::collections::HashMap;
use std::time::Duration;

use super::Adopter;
use crate::engine::candidates::Ready;
use crate::membership::HigherRankedListener;
use crate::timer::AdoptionCandidate;

/// Interval of the check whether the daemons that act first are alive, and timeout of its answer.
const RANK_CHECK_EVERY: Duration = Duration::from_millis(250);
const RANK_CHECK_TIMEOUT: Duration = Duration::from_millis(250);

impl Adopter {
    /// Leaves candidates to the daemons that act on them first, as long as these are alive. Returns the others.
    pub(super) async fn leave_to_higher_ranked(&self, ready: Vec<Ready>) -> Vec<AdoptionCandidate> {
        let mut alive = HashMap::new();
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for ready in ready {
            let may_wait = !ready.may_act();
            match ready.higher_ranked.filter(|_| may_wait) {
                Some(higher_ranked) => {
                    let is_alive = match alive.get(&higher_ranked.id) {
                        Some(is_alive) => *is_alive,
                        None => self.is_alive(higher_ranked).await,
                    };
                    alive.insert(higher_ranked.id, is_alive);
                    match is_alive {
                        true => theirs.push(ready),
                        false => ours.push(ready.candidate),
                    }
                }
                None => ours.push(ready.candidate),
            }
        }
        if !theirs.is_empty() {
            self.candidates
                .leave_to_higher_ranked(theirs, RANK_CHECK_EVERY);
        }
        ours
    }

    async fn is_alive(&self, higher_ranked: HigherRankedListener) -> bool {
        if !higher_ranked.can_be_asked {
            return true;
        }
        let hears = self.membership.is_reachable(higher_ranked.id);
        let hears = tokio::time::timeout(RANK_CHECK_TIMEOUT, hears).await;
        !matches!(hears, Ok(Ok(false)))
    }
}
