//! Expiry of keys that nobody uses.

use tokio::time::Instant;

use super::State;
use crate::events::Class;
use crate::keyspace::Db;

/// Most batches of one expiry cycle. A real cycle ends by time.
const CYCLE_BATCHES_MAX: usize = 1000;

/// A cycle ends with a batch of which at most this part was due.
const STALE_PART: usize = 10;

impl State {
    pub(super) fn expire(&mut self, db: u32, key: &[u8], due: i64) {
        self.db(db).remove(key);
        self.expired_keys += 1;
        self.notify_due(Class::Expired, "expired", db, key, Some(due));
    }

    /// When the next expiry cycle finds a key that is due.
    pub(crate) fn next_cycle(&self) -> Option<Instant> {
        if self.is_replica || !self.expires_actively {
            return None;
        }
        let first = self.data.values().filter_map(Db::first_due).min()?;
        let now = self.now();
        let wait_ms = u64::try_from(first.saturating_add(1).saturating_sub(now)).unwrap_or(0);
        let passed_ms = u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX);
        let period = u64::from(1000 / self.options.hz.clamp(1, 500));
        // Cycles begin at multiples of the period.
        let cycles = passed_ms.saturating_add(wait_ms).div_ceil(period);
        let cycles = cycles.max(passed_ms / period + 1);
        let at = std::time::Duration::from_millis(cycles.saturating_mul(period));
        self.born.checked_add(at)
    }

    /// Deletes keys that are due, in batches from a cursor.
    pub(crate) fn cycle(&mut self) {
        if self.is_replica || !self.expires_actively {
            return;
        }
        let (now, batch) = (self.now(), self.options.keys_per_batch);
        let numbers: Vec<u32> = self.data.keys().copied().collect();
        for db in numbers {
            for _ in 0..CYCLE_BATCHES_MAX {
                let sample = self.db(db).sample(batch);
                let due: Vec<_> = sample.iter().filter(|(_, due)| *due < now).collect();
                for (key, due) in &due {
                    self.expire(db, key, *due);
                }
                if due.len() * STALE_PART <= sample.len() {
                    break;
                }
            }
        }
    }
}
