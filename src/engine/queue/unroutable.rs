//! Signals that nothing here can run: counted, and told once for each class and method.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use crate::task::TaskKey;
use crate::telemetry::Metrics;

/// Most classes and methods that are remembered.
const REMEMBERED_MAX: usize = 1_000;

/// What was met so far.
#[derive(Debug)]
pub struct Unroutable {
    told: Mutex<HashSet<String>>,
    metrics: Arc<Metrics>,
}

impl Unroutable {
    /// Nothing yet.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            told: Mutex::default(),
            metrics,
        }
    }

    /// Nothing here can run this.
    pub fn meet(&self, key: &TaskKey) {
        self.metrics.dropped("unroutable", 1);
        let mut told = self.told.lock().expect("nothing panics while holding it");
        if told.len() < REMEMBERED_MAX && told.insert(key.class_method().to_owned()) {
            tracing::warn!(
                task.class_method = key.class_method(),
                "no handler and no route here: rows of these tasks are left to other daemons, keys without a row are ignored"
            );
        }
    }
}
