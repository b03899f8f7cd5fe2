//! Masks: what of a task is not shown.

use std::sync::Arc;

use crate::task::{ClassGlob, HIDDEN, TaskKey};

/// What of a task is not shown. Workers that take a task get all of it. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Masks {
    payloads: Arc<[ClassGlob]>,
    arguments: Arc<[ClassGlob]>,
}

impl Masks {
    /// Hides payloads, results and errors of some classes, and the arguments of some in lists.
    pub fn new(payloads: Vec<ClassGlob>, arguments: Vec<ClassGlob>) -> Self {
        Self {
            payloads: payloads.into(),
            arguments: arguments.into(),
        }
    }

    /// Classes whose payloads, results and errors are not shown.
    pub fn payloads(&self) -> &[ClassGlob] {
        &self.payloads
    }

    /// True if payload, result and errors of the task are not shown.
    pub fn hides_payload(&self, key: &TaskKey) -> bool {
        self.payloads.iter().any(|glob| glob.has(key))
    }

    /// True if the arguments of some class are not shown.
    pub fn hides_any_arguments(&self) -> bool {
        !self.arguments.is_empty()
    }

    /// True if lists do not show the arguments of the task.
    pub fn hides_arguments(&self, key: &TaskKey) -> bool {
        self.arguments.iter().any(|glob| glob.has(key))
    }

    /// True if arguments of this class are not shown; with a method: of that method.
    pub fn hides_arguments_of(&self, class: &str, method: Option<&str>) -> bool {
        self.arguments.iter().any(|glob| match method {
            Some(_) => glob.has_all(class, method),
            None => glob.has_some(class),
        })
    }

    /// True if arguments are not shown of some task whose key begins like this.
    pub fn hides_arguments_below(&self, prefix: &str) -> bool {
        let mut parts = prefix.splitn(3, '@');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(class), Some(method), Some(_)) => self.hides_arguments_of(class, Some(method)),
            (Some(class), Some(_), None) => self.hides_arguments_of(class, None),
            _ => self.hides_any_arguments(),
        }
    }

    /// True if the beginning of a key goes into arguments that are not shown: they could be guessed character by character.
    pub fn hides_prefix(&self, prefix: &str) -> bool {
        let mut parts = prefix.splitn(3, '@');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(class), Some(method), Some(argument)) => {
                !argument.is_empty() && self.hides_arguments_of(class, Some(method))
            }
            _ => false,
        }
    }

    /// A key without the arguments that lists do not show.
    pub fn shown(&self, key: &TaskKey) -> TaskKey {
        match self.hides_arguments(key) && key.args().next().is_some() {
            true => key.without_arguments(),
            false => key.clone(),
        }
    }

    /// A text that may be a key, without the arguments that lists do not show.
    pub fn shown_text(&self, text: String) -> String {
        match TaskKey::parse(&text) {
            Ok(key) => self.shown(&key).to_string(),
            Err(_) => text,
        }
    }

    /// A text that begins like a key, but is none, without what lists do not show.
    pub fn shown_malformed(&self, text: String) -> String {
        let mut parts = text.splitn(3, '@');
        let (class, method) = (parts.next().unwrap_or_default(), parts.next());
        let mut globs = self.arguments.iter();
        match globs.any(|glob| glob.has_all(class, method)) {
            true => format!("{class}@{}@{HIDDEN}", method.unwrap_or_default()),
            false => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn arguments_of_masked_classes_are_not_shown() {
        let text = "access.mask_payloads = 'Mail@send'\naccess.mask_arguments = 'User'";
        let masks = Config::from_toml(text).unwrap().http.masks;
        let key = |text| TaskKey::parse(text).unwrap();
        for (given, shown) in [
            ("User@end@me@you", "User@end@hidden"),
            ("User@end", "User@end"),
            ("Mail@send@me", "Mail@send@me"),
        ] {
            assert_eq!(masks.shown(&key(given)), key(shown));
            assert_eq!(masks.shown_text(given.to_owned()), shown);
        }
        assert_eq!(masks.shown_malformed("User@".to_owned()), "User@@hidden");
        assert_eq!(masks.shown_malformed("Mail@".to_owned()), "Mail@");
        assert!(masks.hides_payload(&key("Mail@send@me")));
        assert!(!masks.hides_payload(&key("Mail@read@me")));
        assert!(masks.hides_arguments_of("User", None));
        assert!(!masks.hides_arguments_of("Mail", None));
        for masked in ["", "U", "User@en", "User@end@"] {
            assert!(masks.hides_arguments_below(masked), "{masked}");
        }
        for open in ["Mail@", "Mail@send@m"] {
            assert!(!masks.hides_arguments_below(open), "{open}");
        }
        for allowed in ["", "User", "User@en", "User@end@", "Mail@send@m"] {
            assert!(!masks.hides_prefix(allowed), "{allowed}");
        }
        for refused in ["User@end@m", "User@end@me@y"] {
            assert!(masks.hides_prefix(refused), "{refused}");
        }
    }

    #[test]
    fn the_keys_of_http_and_of_access_add_up_at_both_servers() {
        let text = "http.mask_payloads = 'Mail'\n[access]\nmask_payloads = ['User']";
        let config = Config::from_toml(text).unwrap();
        let key = |text| TaskKey::parse(text).unwrap();
        for masks in [&config.http.masks, &config.resp.masks] {
            assert!(
                masks.hides_payload(&key("Mail@send")) && masks.hides_payload(&key("User@end"))
            );
            assert!(!masks.hides_payload(&key("Order@close")));
        }
    }
}
