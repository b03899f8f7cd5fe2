//! Where alarms are kept in Redis until they are due: expiring keys, sorted sets, the slots of a wheel.
//!
//! A producer needs nothing else of a timer. The timers write by the same types.

mod expiring_keys;
pub(crate) mod score;
pub(crate) mod set_entries;
mod wheel_slots;

pub use expiring_keys::ExpiringKeys;
pub use score::{OWN_FROM, Score, own_score};
pub use set_entries::SetEntries;
pub use wheel_slots::WheelSlots;
