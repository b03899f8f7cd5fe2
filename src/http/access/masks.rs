//! Masks: what of a task is not shown.

use std::sync::Arc;

use crate::config::{ClassGlob, HttpConfig};
use crate::ledger::TaskRecord;
use crate::task::TaskKey;

/// Stands for what is not shown. Valid as an argument of a key.
const HIDDEN: &str = "hidden";

/// What of a task is not shown, to any caller. Workers that take a task get all of it.
#[derive(Clone)]
pub struct Masks(Arc<HttpConfig>);

impl Masks {
    /// Hides what `http.mask_payloads` and `http.mask_arguments` name.
    pub fn new(config: Arc<HttpConfig>) -> Self {
        Self(config)
    }

    /// True if payload, result and errors of the task are not shown.
    pub fn hides_payload(&self, key: &TaskKey) -> bool {
        has(&self.0.mask_payloads, key)
    }

    /// Hides what is not shown of a task whose key the caller knows.
    pub fn apply(&self, task: &mut TaskRecord) {
        if !self.hides_payload(&task.key) {
            return;
        }
        task.payload = None;
        task.result = None;
        task.last_error = task.last_error.take().map(|_| HIDDEN.to_owned());
        for mishap in &mut task.history {
            mishap.error = HIDDEN.to_owned();
        }
    }

    /// Hides what is not shown of tasks in a list, their arguments included.
    pub fn apply_to_list(&self, tasks: &mut [TaskRecord]) {
        for task in tasks {
            self.apply(task);
            if has(&self.0.mask_arguments, &task.key) && task.key.args().next().is_some() {
                task.key = without_arguments(&task.key);
            }
        }
    }

    /// True if the key of a task in a list lacks its arguments: it names no task.
    pub fn is_cut(&self, key: &TaskKey) -> bool {
        has(&self.0.mask_arguments, key) && key.args().eq([HIDDEN])
    }

    /// Hides arguments that are not shown in a text that may be a key.
    pub fn subject(&self, text: String) -> String {
        match TaskKey::parse(&text) {
            Ok(key) if has(&self.0.mask_arguments, &key) => without_arguments(&key).to_string(),
            _ => text,
        }
    }
}

fn without_arguments(key: &TaskKey) -> TaskKey {
    let hidden = TaskKey::build(key.class(), key.method(), [HIDDEN]);
    // A key of the maximum length may have an argument that is shorter.
    let none = || TaskKey::build(key.class(), key.method(), Vec::<&str>::new());
    hidden
        .or_else(|_| none())
        .expect("the beginning of a key is a key")
}

fn has(globs: &[ClassGlob], key: &TaskKey) -> bool {
    globs.iter().any(|glob| glob.has(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn arguments_of_masked_classes_are_not_shown() {
        let text = "http.mask_payloads = 'Mail@send'\nhttp.mask_arguments = 'User'";
        let masks = Masks::new(Arc::new(Config::from_toml(text).unwrap().http));
        let key = |text| TaskKey::parse(text).unwrap();
        assert!(has(&masks.0.mask_arguments, &key("User@end@me")));
        assert_eq!(
            without_arguments(&key("User@end@me@you")),
            key("User@end@hidden")
        );
        assert!(masks.hides_payload(&key("Mail@send@me")));
        assert!(!masks.hides_payload(&key("Mail@read@me")));
    }
}
