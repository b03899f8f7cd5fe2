//! Keys that are armed while no events arrive: only a scan finds them, and they are lost when they expire.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Audit, Page, Progress};
use crate::engine::pace::Pace;

/// Shortest pause between two passes over the keys while no events arrive.
const UNHEARD_EVERY: Duration = Duration::from_secs(2);

/// The pause is at least this many times as long as the pass before it.
const UNHEARD_RESTS: u32 = 9;

impl Audit {
    /// While no events arrive, an armed key is known only from a scan: adopts those that are found, often, because a
    /// key that expires before is lost.
    pub(super) async fn adopt_unheard(&self) {
        let mut pause = UNHEARD_EVERY;
        loop {
            sleep(pause).await;
            let began = Instant::now();
            let mut progress = Progress::default();
            let mut pace = Pace::begin();
            while self.misses_keys() {
                // Without a connection nothing is armed unheard: the audit after it says what is wrong.
                let Ok(page) = self.scan_keys(&progress).await else {
                    break;
                };
                match self.adopt_page(page, &mut progress).await {
                    Ok(Page::More) => pace.rest().await,
                    Ok(_) => break,
                    Err(error) => {
                        self.health.failed("audit", &error);
                        break;
                    }
                }
            }
            if progress.report.adopted > 0 {
                tracing::info!(
                    adopted = progress.report.adopted,
                    "adopted keys that were armed unheard: no events arrive"
                );
            }
            pause = UNHEARD_EVERY.max(began.elapsed() * UNHEARD_RESTS);
        }
    }

    /// True if programs may arm keys that this daemon would adopt, and it does not hear of them.
    fn misses_keys(&self) -> bool {
        self.entries.is_none() && self.router.adopts_any() && self.misses_events()
    }
}
