//! Globs of classes: which tasks a rule is about.

use std::fmt;

use super::TaskKey;

/// Maximum length of a glob, in bytes.
const BYTES_MAX: usize = 255;

/// A glob of a class, or of `Class@method`. `*` stands for any characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassGlob {
    class: String,
    /// `None`: every method.
    method: Option<String>,
}

impl ClassGlob {
    /// Reads a glob such as `Order`, `Report*` or `Mail@send*`.
    ///
    /// # Errors
    /// The text is too long, or no glob.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (class, method) = match text.split_once('@') {
            None => (text, None),
            Some((class, method)) => (class, Some(method)),
        };
        let is_name = |name: &str| {
            !name.is_empty() && !name.contains(|c: char| c == '@' || c.is_whitespace())
        };
        if text.len() > BYTES_MAX || !is_name(class) || !method.is_none_or(is_name) {
            return Err(format!(
                "`{text}` is no class, expected such as `Order`, `Report*` or `Mail@send`"
            ));
        }
        Ok(Self {
            class: class.to_owned(),
            method: method.map(str::to_owned),
        })
    }

    /// The glob of the class.
    pub fn class(&self) -> &str {
        &self.class
    }

    /// The glob of the method; `None` if it has every method.
    pub fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    /// True if the task is one of these.
    pub fn has(&self, key: &TaskKey) -> bool {
        self.has_all(key.class(), Some(key.method()))
    }

    /// True if some tasks of a class are of these.
    pub fn has_some(&self, class: &str) -> bool {
        matches(&self.class, class)
    }

    /// True if every task of a class, or of a class and method, is one of these.
    pub fn has_all(&self, class: &str, method: Option<&str>) -> bool {
        let of_method = match (&self.method, method) {
            (None, _) => true,
            (Some(glob), Some(method)) => matches(glob, method),
            (Some(glob), None) => glob == "*",
        };
        of_method && matches(&self.class, class)
    }
}

impl fmt::Display for ClassGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.class)?;
        match &self.method {
            Some(method) => write!(f, "@{method}"),
            None => Ok(()),
        }
    }
}

/// True if the text fits a glob whose `*` stands for any characters.
pub fn matches(glob: &str, text: &str) -> bool {
    let Some((first, rest)) = glob.split_once('*') else {
        return glob == text;
    };
    let Some(mut text) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (glob, text) in [
            ("Order", "Order"),
            ("*", ""),
            ("*", "Order"),
            ("Order*", "Order"),
            ("Order*", "Orders"),
            ("*der", "Order"),
            ("O*d*r", "Order"),
            ("a*ab", "aab"),
            ("*a*a", "aa"),
            ("任*", "任務"),
        ] {
            assert!(matches(glob, text), "{glob} {text}");
        }
        for (glob, text) in [
            ("Order", "order"),
            ("Order", "Orders"),
            ("Order*", "order"),
            ("a*a", "a"),
            ("a*b*c", "acb"),
            ("*x*", "Order"),
        ] {
            assert!(!matches(glob, text), "{glob} {text}");
        }
    }

    #[test]
    fn a_glob_is_about_whole_names() {
        let glob = |text| ClassGlob::parse(text).unwrap();
        let key = |text| TaskKey::parse(text).unwrap();
        assert!(glob("Order").has(&key("Order@close@1")));
        assert!(!glob("Order").has(&key("Orders@close@1")));
        assert!(glob("Order@cl*").has(&key("Order@close@1")));
        assert!(!glob("Order@close").has(&key("Order@closed@1")));
        assert!(glob("Order").has_all("Order", None));
        assert!(glob("Order@*").has_all("Order", None));
        assert!(!glob("Order@close").has_all("Order", None));
        assert!(glob("Order@close").has_all("Order", Some("close")));
        for refused in ["", "@", "Order@", "@close", "a@b@c", "a b"] {
            assert!(ClassGlob::parse(refused).is_err(), "{refused}");
        }
        assert_eq!(glob("Mail@send*").to_string(), "Mail@send*");
    }

    #[test]
    fn parts_of_a_glob_do_not_share_characters() {
        assert!(matches("*ab*b", "abb"));
        assert!(!matches("*ab*b", "ab"));
    }

    #[test]
    fn a_glob_is_read_into_class_and_method_and_has_a_longest() {
        let read = |text: &str| ClassGlob::parse(text).unwrap();
        let mail = read("Mail@send*");
        assert_eq!((mail.class(), mail.method()), ("Mail", Some("send*")));
        let order = read("Order");
        assert_eq!((order.class(), order.method()), ("Order", None));
        assert_eq!(read(&"x".repeat(BYTES_MAX)).class().len(), 255);
        let error = ClassGlob::parse(&"x".repeat(BYTES_MAX + 1)).unwrap_err();
        assert!(error.ends_with("is no class, expected such as `Order`, `Report*` or `Mail@send`"));
    }
}
