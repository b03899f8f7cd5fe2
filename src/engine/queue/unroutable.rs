//! Unroutable signals: counted, and logged once per class and method.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use crate::task::TaskKey;
use crate::telemetry::{DropReason, Metrics};

/// Maximum number of classes and methods remembered.
const REMEMBERED_MAX: usize = 1_000;

/// Counts and logs signals that no handler or route of this daemon runs.
#[derive(Debug)]
pub struct Unroutable {
    logged: Mutex<HashSet<String>>,
    metrics: Arc<Metrics>,
}

impl Unroutable {
    /// Creates an empty record.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            logged: Mutex::default(),
            metrics,
        }
    }

    /// Counts an unroutable signal, and logs the first one of its class and method.
    pub fn record(&self, key: &TaskKey) {
        self.metrics.dropped(DropReason::Unroutable, 1);
        let mut logged = self.logged.lock().expect("nothing panics while holding it");
        if logged.len() < REMEMBERED_MAX && logged.insert(key.class_method().to_owned()) {
            tracing::warn!(
                task.class_method = key.class_method(),
                "no handler and no route here: rows of these tasks are left to other daemons, keys without a row are ignored"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_and_method_is_remembered_up_to_a_limit() {
        let unroutable = Unroutable::new(Arc::default());
        let remembered = || unroutable.logged.lock().unwrap().len();
        let record = |class: &str, arg: &str| {
            let key = TaskKey::build(class, "m", [arg]).unwrap();
            unroutable.record(&key);
        };
        record("C", "1");
        record("C", "2");
        assert_eq!(remembered(), 1);
        (0..=REMEMBERED_MAX).for_each(|n| record(&format!("C{n}"), "1"));
        assert_eq!(remembered(), REMEMBERED_MAX);
    }
}
