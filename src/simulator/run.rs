//! Runs a plan on virtual time.

use std::sync::OnceLock;
use std::time::Duration;

use lapsed_core::clock::{self, MachineClocks};
use tokio::time::Instant;

use crate::moving::MoveWorld;
use crate::outcome::Outcome;
use crate::plan::{Plan, START};
use crate::world::World;

/// The start of virtual time.
static BEGIN: OnceLock<Instant> = OnceLock::new();

fn virtual_time() -> Duration {
    let run = BEGIN.get().map(Instant::elapsed).unwrap_or_default();
    Duration::from_millis(START.0.unsigned_abs()) + run
}

/// Carries out a plan in this process, which can do so once.
pub fn simulate(plan: Plan, prints: bool, forgets: u64) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let outcome = runtime.block_on(async move {
        BEGIN.get_or_init(Instant::now);
        clock::simulate(MachineClocks {
            wall: virtual_time,
            monotonic: virtual_time,
        });
        match plan.is_move {
            true => MoveWorld::new(plan, prints, forgets).run().await,
            false => World::new(plan, prints, forgets).run().await,
        }
    });
    // Tasks of dead processes wait for ever.
    runtime.shutdown_background();
    outcome
}
