//! The rules of the auction house, in both demos.

use std::time::Duration;

use lapsed::task::UnixMs;

/// Class of all tasks.
pub(crate) const CLASS: &str = "AuctionCutDown";

pub(crate) const AUCTIONS: u64 = 60;

/// Interval between openings. Auctions last 4 to 11 s, so their ends spread over some 20 s.
pub(crate) const OPEN_EVERY: Duration = Duration::from_millis(260);

/// Interval of the moments at which auctions end.
const BELL: Duration = Duration::from_secs(2);

/// How long the highest bidder has to pay.
pub(crate) const PAY_WITHIN: Duration = Duration::from_secs(5);

/// How long it takes to tell the winner.
pub(crate) const MAIL_TAKES: Duration = Duration::from_millis(40);

/// When the daemon is killed, and how long there is none.
pub(crate) const KILL_AFTER: Duration = Duration::from_secs(10);
pub(crate) const DOWN_FOR: Duration = Duration::from_secs(2);

/// When the second fault happens.
pub(crate) const SECOND_FAULT_AFTER: Duration = Duration::from_secs(17);

/// Time after which an unfinished task counts as lost.
pub(crate) const PATIENCE: Duration = Duration::from_secs(50);

/// An auction whose end is scheduled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opened {
    pub(crate) id: u64,
    /// How its end was scheduled, as the report names it.
    pub(crate) producer: &'static str,
    /// Its end must not happen earlier.
    pub(crate) due: UnixMs,
}

/// How long an auction lasts.
pub(crate) fn lasts(id: u64) -> Duration {
    Duration::from_millis(4_000 + id * 1_237 % 5_000)
}

/// The rest of the time until several auctions end at once, as people set them.
pub(crate) fn until_bell(moment: Duration) -> Duration {
    let strokes = moment.div_duration_f64(BELL).ceil();
    BELL.mul_f64(strokes) - moment
}
