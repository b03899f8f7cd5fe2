//! Rates: in no span do more tasks start than the rate permits.

use lapsed_core::ledger::row::Row;
use lapsed_core::task::UnixMs;

use super::{Anomaly, Judge};
use crate::plan::FaultKind;

impl Judge {
    /// A fault has begun, and its effects are over at `until`.
    pub fn rates_disturbed(&mut self, kind: FaultKind, from: UnixMs, until: UnixMs) {
        let disturbed = (from, until, kind.may_exceed_rate());
        self.rates.disturbed.push(disturbed);
    }

    /// A task has started.
    pub(super) fn started(&mut self, now: UnixMs, row: &Row) {
        let Some(rate) = self.rates.rate.filter(|_| self.rates.has(row)) else {
            return;
        };
        self.looked.rated += 1;
        self.rates.starts.push(now);
        let starts = self.rates.starts.iter().rev().zip(1u32..);
        let over = starts
            .map(|(from, count)| (*from, count, self.rates.most(rate, *from, now)))
            .find(|(_, count, most)| f64::from(*count) > most.floor());
        if let Some((from, count, most)) = over {
            let text = format!(
                "{count} starts from {} to {}, expected at most {most:.1} at {rate}",
                from.0, now.0
            );
            self.accuse(Anomaly::TooMany, text);
        }
    }

    /// A claim of this time has ended without a start, and does not count: it was given back, or an occurrence was missed.
    pub(super) fn did_not_start(&mut self, claimed_at: UnixMs, row: &Row) {
        if self.rates.has(row)
            && let Some(place) = self.rates.starts.iter().rposition(|at| *at == claimed_at)
        {
            self.rates.starts.remove(place);
        }
    }
}
