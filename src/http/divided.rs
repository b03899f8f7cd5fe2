//! Figures about the classes of one caller.
//!
//! Every figure that a limited caller gets is exact, so that none depends on tasks of other classes. What cannot be divided by
//! class is refused.

use std::borrow::Cow;

use super::access::Caller;
use super::problem::Problem;
use crate::ledger::{DetailedStats, MethodStats, Stats};
use crate::task::TaskKey;

/// The counts of the classes that a caller may touch. Tasks that are done or cancelled are not counted by class.
///
/// # Errors
/// The table is so large that not all of its tasks were counted by class.
pub fn stats_of<'a>(
    stats: &'a DetailedStats,
    caller: &Caller,
) -> Result<Cow<'a, DetailedStats>, Problem> {
    if !caller.is_limited() {
        return Ok(Cow::Borrowed(stats));
    }
    if stats.methods_of.is_some() || stats.methods_of_dead.is_some() {
        return Err(Problem::forbidden(
            "there are too many tasks to count those of some classes alone: expected a caller without `classes`",
        ));
    }
    let is_own = |method: &&MethodStats| {
        let key = TaskKey::parse(&method.name);
        key.is_ok_and(|key| caller.may_touch(&key))
    };
    let methods = stats.methods.iter().filter(is_own);
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
    Ok(Cow::Owned(DetailedStats {
        counts,
        at_least: vec!["done", "cancelled"],
        methods,
        ..DetailedStats::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn method(name: &str, pending: u64) -> MethodStats {
        MethodStats {
            name: name.to_owned(),
            pending,
            ..MethodStats::default()
        }
    }

    #[test]
    fn the_figures_of_some_classes_are_exact_or_refused() {
        let shop = Caller::configured("['Order']", "'read'");
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
        let own = stats_of(&all, &shop).unwrap();
        let only = Stats {
            pending: 4,
            ..Stats::default()
        };
        assert_eq!(own.counts, only);
        assert_eq!(own.methods, [method("Order@close", 4)]);
        assert_eq!(
            *stats_of(&all, &Caller::configured("[]", "'read'")).unwrap(),
            all
        );
        for (methods_of, methods_of_dead) in [(Some(10_000), None), (None, Some(5_000))] {
            let part = DetailedStats {
                methods_of,
                methods_of_dead,
                ..all.clone()
            };
            assert!(stats_of(&part, &shop).is_err());
        }
    }
}
