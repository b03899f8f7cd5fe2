//! Masks: what of a task is not shown.

use std::borrow::Cow;
use std::sync::Arc;

use crate::config::{ClassGlob, HttpConfig};
use crate::ledger::TaskRecord;
use crate::task::TaskKey;

/// Stands for what is not shown.
const HIDDEN: &str = "[hidden]";

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

    /// Returns the record without what is not shown.
    pub fn apply(&self, mut record: TaskRecord) -> TaskRecord {
        if !self.hides_payload(&record.key) {
            return record;
        }
        let hidden = || HIDDEN.to_owned();
        let json = || format!("\"{HIDDEN}\"");
        record.payload = record.payload.map(|_| json());
        record.result = record.result.map(|_| json());
        record.last_error = record.last_error.map(|_| hidden());
        for mishap in &mut record.history {
            mishap.error = hidden();
        }
        record
    }

    /// Returns the key as lists show it: without arguments that are not shown.
    pub fn key_text<'a>(&self, key: &'a TaskKey) -> Cow<'a, str> {
        match has(&self.0.mask_arguments, key) && key.args().next().is_some() {
            true => Cow::Owned(format!("{}@{}@{HIDDEN}", key.class(), key.method())),
            false => Cow::Borrowed(key.as_str()),
        }
    }
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
        assert_eq!(masks.key_text(&key("User@end@me")), "User@end@[hidden]");
        assert_eq!(masks.key_text(&key("User@end")), "User@end");
        assert_eq!(masks.key_text(&key("Mail@send@me")), "Mail@send@me");
        assert!(masks.hides_payload(&key("Mail@send@me")));
        assert!(!masks.hides_payload(&key("Mail@read@me")));
    }
}
