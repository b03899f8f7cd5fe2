//! Per-class statistics for a restricted principal. Counts are exact or refused, so that they reveal nothing about other classes.

use std::borrow::Cow;

use super::{DetailedStats, MethodStats, Stats};
use crate::access::{Denied, Principal};
use crate::task::TaskKey;

impl DetailedStats {
    /// The counts of the classes that a principal may touch. Tasks that are done or cancelled are not counted by class.
    ///
    /// # Errors
    /// [`Denied::TooManyToCount`]
    pub fn seen_by(&self, principal: &Principal) -> Result<Cow<'_, Self>, Denied> {
        if !principal.is_restricted() {
            return Ok(Cow::Borrowed(self));
        }
        if self.methods_of.is_some() || self.methods_of_dead.is_some() {
            return Err(Denied::TooManyToCount);
        }
        let is_own = |method: &&MethodStats| {
            let key = TaskKey::parse(&method.name);
            key.is_ok_and(|key| principal.may_touch(&key))
        };
        let methods = self.methods.iter().filter(is_own);
        let methods = methods.map(|method| MethodStats {
            // They are of the tasks of all classes that were done last.
            due_to_done: None,
            ..method.clone()
        });
        let methods: Vec<MethodStats> = methods.collect();
        let mut counts = Stats::default();
        for method in &methods {
            counts.pending += method.pending;
            counts.waiting += method.waiting;
            counts.running += method.running;
            counts.dead += method.dead;
            counts.overdue += method.overdue;
            counts.overdue_ms_max = counts.overdue_ms_max.max(method.overdue_ms_max);
        }
        Ok(Cow::Owned(Self {
            counts,
            at_least: vec!["done", "cancelled"],
            methods,
            ..Self::default()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Masks;
    use crate::task::ClassGlob;

    fn method(name: &str, pending: u64) -> MethodStats {
        MethodStats {
            name: name.to_owned(),
            pending,
            ..MethodStats::default()
        }
    }

    #[test]
    fn the_figures_of_some_classes_are_exact_or_refused() {
        let all_classes = Principal::anonymous("all", Masks::default());
        let shop = Principal {
            classes: vec![ClassGlob::parse("Order").unwrap()],
            ..all_classes.clone()
        };
        let all = DetailedStats {
            counts: Stats {
                pending: 7,
                done: 9,
                malformed: 2,
                ..Stats::default()
            },
            methods: vec![method("Mail@send", 3), method("Order@close", 4)],
            ..DetailedStats::default()
        };
        let own = all.seen_by(&shop).unwrap();
        let only = Stats {
            pending: 4,
            ..Stats::default()
        };
        assert_eq!(own.counts, only);
        assert_eq!(own.methods, [method("Order@close", 4)]);
        assert_eq!(*all.seen_by(&all_classes).unwrap(), all);
        for (methods_of, methods_of_dead) in [(Some(10_000), None), (None, Some(5_000))] {
            let part = DetailedStats {
                methods_of,
                methods_of_dead,
                ..all.clone()
            };
            assert_eq!(part.seen_by(&shop), Err(Denied::TooManyToCount));
        }
    }
}
