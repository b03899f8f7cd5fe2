//! Tasks taken on this connection whose reply is not yet flushed. Released if the connection closes first.

use std::sync::{Arc, Mutex};

use lapsed::engine::TakenTasks;

/// Taken tasks whose reply is not written yet. Dropping the last clone releases them.
#[derive(Clone, Default)]
pub struct UnsentDeliveries(Arc<Mutex<Vec<TakenTasks>>>);

impl UnsentDeliveries {
    /// Adds tasks whose reply follows.
    pub fn add(&self, taken: TakenTasks) {
        let mut unsent = self.0.lock().expect("nothing panics while holding it");
        unsent.push(taken);
    }

    /// All replies are written: the worker has the tasks.
    pub fn sent(&self) {
        let mut unsent = self.0.lock().expect("nothing panics while holding it");
        for taken in unsent.drain(..) {
            taken.keep();
        }
    }
}
