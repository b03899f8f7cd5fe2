//! Masks: what of a task is not shown.

use std::sync::Arc;

use crate::config::HttpConfig;
use crate::http::problem::Problem;
use crate::ledger::{ListFilter, MalformedRow, TaskRecord};
use crate::task::{ClassGlob, TaskKey};

pub use crate::task::HIDDEN;

/// What of a task is not shown, to any caller. Workers that take a task get all of it.
#[derive(Clone)]
pub struct Masks(Arc<HttpConfig>);

impl Masks {
    /// Hides what `http.mask_payloads` and `http.mask_arguments` name.
    pub fn new(config: Arc<HttpConfig>) -> Self {
        Self(config)
    }

    /// Classes whose payloads, results and errors are not shown.
    pub fn payloads(&self) -> &[ClassGlob] {
        &self.0.mask_payloads
    }

    /// True if payload, result and errors of the task are not shown.
    pub fn hides_payload(&self, key: &TaskKey) -> bool {
        has(&self.0.mask_payloads, key)
    }

    /// True if the arguments of some class are not shown.
    pub fn hide_arguments(&self) -> bool {
        !self.0.mask_arguments.is_empty()
    }

    /// True if a list with this filter may have tasks whose arguments are not shown. Their order would tell them.
    pub fn hide_arguments_of(&self, filter: &ListFilter) -> bool {
        let of_class = |class: &str, method| {
            let mut globs = self.0.mask_arguments.iter();
            globs.any(|glob| match method {
                Some(_) => glob.has_all(class, method),
                None => glob.has_some(class),
            })
        };
        if let Some(class) = &filter.class {
            return of_class(class, filter.method.as_deref());
        }
        let mut parts = filter.prefix.as_deref().unwrap_or_default().splitn(3, '@');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(class), Some(method), Some(_)) => of_class(class, Some(method)),
            (Some(class), Some(_), None) => of_class(class, None),
            _ => self.hide_arguments(),
        }
    }

    /// True if lists do not show the arguments of the task.
    pub fn hides_arguments(&self, key: &TaskKey) -> bool {
        has(&self.0.mask_arguments, key)
    }

    /// Hides what is not shown of a task whose key the caller knows.
    pub fn apply(&self, task: &mut TaskRecord) {
        if !self.hides_payload(&task.key) {
            return;
        }
        task.hide_payload();
    }

    /// Hides what is not shown of tasks in a list, their arguments included.
    pub fn apply_to_list(&self, tasks: &mut [TaskRecord], malformed: &mut [MalformedRow]) {
        for task in tasks {
            self.apply(task);
            task.key = self.shown(&task.key);
        }
        for row in malformed {
            let mut parts = row.key.splitn(3, '@');
            let (class, method) = (parts.next().unwrap_or_default(), parts.next());
            let mut globs = self.0.mask_arguments.iter();
            if globs.any(|glob| glob.has_all(class, method)) {
                row.key = format!("{class}@{}@{HIDDEN}", method.unwrap_or_default());
            }
        }
    }

    /// A key without the arguments that lists do not show.
    pub fn shown(&self, key: &TaskKey) -> TaskKey {
        match self.hides_arguments(key) && key.args().next().is_some() {
            true => key.without_arguments(),
            false => key.clone(),
        }
    }

    /// Refuses the beginning of a key that goes into arguments that are not shown: they could be guessed character by character.
    ///
    /// # Errors
    /// It does.
    pub fn check_prefix(&self, prefix: &str) -> Result<(), Problem> {
        let mut parts = prefix.splitn(3, '@');
        let (Some(class), method, Some(argument)) = (parts.next(), parts.next(), parts.next())
        else {
            return Ok(());
        };
        let mut globs = self.0.mask_arguments.iter();
        match !argument.is_empty() && globs.any(|glob| glob.has_all(class, method)) {
            true => Err(Problem::invalid(
                "`prefix`: arguments of this class are masked, expected a whole key, or a class and method without arguments",
            )),
            false => Ok(()),
        }
    }

    /// Hides arguments that are not shown in a text that may be a key.
    pub fn subject(&self, text: String) -> String {
        match TaskKey::parse(&text) {
            Ok(key) => self.shown(&key).to_string(),
            Err(_) => text,
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
        for (given, shown) in [
            ("User@end@me@you", "User@end@hidden"),
            ("User@end", "User@end"),
            ("Mail@send@me", "Mail@send@me"),
        ] {
            assert_eq!(masks.shown(&key(given)), key(shown));
        }
        assert!(masks.hides_payload(&key("Mail@send@me")));
        assert!(!masks.hides_payload(&key("Mail@read@me")));
        let list = |class: Option<&str>, prefix: Option<&str>| {
            masks.hide_arguments_of(&ListFilter {
                class: class.map(str::to_owned),
                prefix: prefix.map(str::to_owned),
                ..ListFilter::default()
            })
        };
        for (class, prefix) in [
            (None, None),
            (Some("User"), None),
            (None, Some("U")),
            (None, Some("User@en")),
            (None, Some("User@end@")),
        ] {
            assert!(list(class, prefix), "{class:?} {prefix:?}");
        }
        for (class, prefix) in [
            (Some("Mail"), None),
            (None, Some("Mail@")),
            (None, Some("Mail@send@m")),
        ] {
            assert!(!list(class, prefix), "{class:?} {prefix:?}");
        }
        for allowed in ["", "User", "User@en", "User@end@", "Mail@send@m"] {
            assert!(masks.check_prefix(allowed).is_ok(), "{allowed}");
        }
        for refused in ["User@end@m", "User@end@me@y"] {
            assert!(masks.check_prefix(refused).is_err(), "{refused}");
        }
    }
}
