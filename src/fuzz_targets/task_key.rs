//! Names of keys, as Redis announces them and as clients write them.

use lapsed_core::task::{KEY_BYTES_MAX, KeyName, SENTINEL_PREFIX, TaskKey};

use crate::refusal;

pub fn run(input: &[u8]) {
    let name = KeyName::parse(input);
    let Ok(text) = std::str::from_utf8(input) else {
        assert!(matches!(name, KeyName::Foreign(_)), "{name:?}");
        return;
    };
    let key = match TaskKey::parse(text) {
        Ok(key) => key,
        Err(error) => {
            refusal::check(&error, &["expected", "contains", "ends in a space"]);
            assert!(!matches!(name, KeyName::Task(_)), "{name:?}: {error}");
            return;
        }
    };
    if !text.starts_with(SENTINEL_PREFIX) {
        assert_eq!(name, KeyName::Task(key.clone()), "both readers agree");
    }
    assert_eq!(key.as_str(), text, "a key is its text");
    assert!(text.len() <= KEY_BYTES_MAX);
    check_parts(&key);
    let hidden = key.without_arguments();
    assert_eq!(hidden.class_method(), key.class_method());
    assert_eq!(hidden.without_arguments(), hidden);
}

/// The parts of a key make the key, and the suffix is not one of them.
fn check_parts(key: &TaskKey) {
    let args: Vec<&str> = key.args().collect();
    let built = TaskKey::build(key.class(), key.method(), &args).expect("parts of a key fit");
    let parts = match key.suffix() {
        // The argument before a suffix may look like one.
        None => built.as_str().to_owned(),
        Some(suffix) => {
            let random = suffix.strip_prefix('~').expect("a suffix begins with `~`");
            assert_eq!(key.with_suffix(random).as_ref(), Ok(key));
            format!("{}@{suffix}", key.without_suffix())
        }
    };
    assert_eq!(parts, key.as_str());
    assert_eq!(built.as_str(), key.without_suffix());
}
