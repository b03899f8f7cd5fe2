//! Tasks that were handed to the worker of a connection, until the reply with them is written.

use std::sync::{Arc, Mutex};

use crate::engine::TakenTasks;

/// Tasks whose reply is not written yet. They are given back when the connection ends before that.
#[derive(Clone, Default)]
pub struct Handed(Arc<Mutex<Vec<TakenTasks>>>);

impl Handed {
    /// Adds tasks whose reply follows.
    pub fn add(&self, taken: TakenTasks) {
        let mut handed = self.0.lock().expect("nothing panics while holding it");
        handed.push(taken);
    }

    /// All replies are written: the worker has the tasks.
    pub fn received(&self) {
        let mut handed = self.0.lock().expect("nothing panics while holding it");
        for taken in handed.drain(..) {
            taken.keep();
        }
    }
}
