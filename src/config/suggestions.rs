//! Suggestions for misspelled settings ("did you mean").

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::source::{ENV_PREFIX, defaults};

/// The keys of a route.
pub(super) const ROUTE_KEYS: [&str; 22] = [
    "match",
    "exec",
    "webhook",
    "stream",
    "list",
    "publish",
    "log",
    "pull",
    "allow_dash",
    "env",
    "keep_result",
    "timeout",
    "concurrency",
    "rate",
    "burst",
    "priority",
    "retry",
    "adopt",
    "expire_after",
    "slow_after",
    "payload_secret",
    "payload_secret_file",
];

/// The keys of the other sections that have no defaults, without the numbers of their entries.
pub(super) const SECTION_KEYS: [(&str, &[&str]); 8] = [
    ("routes.pull", &["queue", "visibility"]),
    (
        "routes.webhook",
        &[
            "url",
            "url_file",
            "secret",
            "secret_file",
            "headers",
            "allow",
            "ca_file",
            "connect_timeout",
            "max_response",
        ],
    ),
    ("routes.stream", &["key", "maxlen", "url", "url_file"]),
    ("routes.list", &["key", "url", "url_file"]),
    (
        "routes.publish",
        &["channel", "require_receivers", "url", "url_file"],
    ),
    (
        "routes.retry",
        &[
            "backoff",
            "ladder",
            "base",
            "max",
            "delay",
            "max_attempts",
            "jitter",
            "deadline",
        ],
    ),
    (
        "http.clients",
        &[
            "name",
            "token_sha256",
            "token_sha256_file",
            "user",
            "scopes",
            "classes",
        ],
    ),
    (
        "resp.users",
        &["name", "password", "password_file", "scopes"],
    ),
];

/// Prefix of all variables of lapsed, including those of the examples.
const PREFIX: &str = "LAPSED_";

/// An environment variable that is ignored although it is nearly the name of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MisspelledVariable {
    /// Name as set: `LAPSED_REDIS_URL`.
    pub name: String,
    /// Name of the setting: `LAPSED__REDIS__URL`.
    pub meant: String,
}

/// Finds variables with misplaced underscores: `LAPSED_REDIS_URL` instead of `LAPSED__REDIS__URL`.
pub fn misspelled_variables<'a>(
    names: impl IntoIterator<Item = &'a str>,
) -> Vec<MisspelledVariable> {
    let flat = |name: &str| name.replace("__", "_").to_uppercase();
    let settings: BTreeMap<String, String> = variables()
        .into_iter()
        .map(|variable| (flat(&variable), variable))
        .collect();
    let found = names.into_iter().filter_map(|name| {
        // Variables with the prefix are read or refused.
        if !name.starts_with(PREFIX) || name.starts_with(ENV_PREFIX) {
            return None;
        }
        let meant = settings.get(&flat(name))?.clone();
        Some(MisspelledVariable {
            name: name.to_owned(),
            meant,
        })
    });
    found.collect()
}

/// Suggests a name for an unknown `LAPSED__..` variable.
pub(super) fn variable(name: &str) -> Option<String> {
    let known = variables();
    let flat = |name: &str| name.replace("__", "_");
    let same = known.iter().find(|known| flat(known) == flat(name));
    same.cloned()
        .or_else(|| closest(name, known.iter().map(String::as_str)))
}

/// Suggests a key of this section for an unknown key.
pub(super) fn key(section: &str, key: &str) -> Option<String> {
    if section.contains('[') {
        let section = without_numbers(section);
        if section == "routes" {
            return closest(key, ROUTE_KEYS);
        }
        let (_, keys) = SECTION_KEYS.iter().find(|(known, _)| *known == section)?;
        return closest(key, keys.iter().copied());
    }
    let defaults = defaults();
    let mut table = &defaults;
    for part in section.split('.').filter(|part| !part.is_empty()) {
        table = table.get(part)?.as_table()?;
    }
    let lists = ["routes", "recurring", "import"].into_iter();
    let lists = lists.filter(|_| section.is_empty());
    closest(key, table.keys().map(String::as_str).chain(lists))
}

/// `routes.webhook` for `routes[3].webhook`.
fn without_numbers(section: &str) -> String {
    let parts = section.split('.');
    let names: Vec<&str> = parts
        .map(|part| part.split('[').next().unwrap_or(part))
        .collect();
    names.join(".")
}

fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let near = known
        .into_iter()
        .map(|known| (strsim::damerau_levenshtein(word, known), known));
    let (distance, closest) = near.min_by_key(|(distance, _)| *distance)?;
    let most = 1.max(closest.len() / 4);
    // A correct key may be left over for another reason: it is not suggested for itself.
    (1..=most).contains(&distance).then(|| closest.to_owned())
}

/// Names of all variables that are read, including those that end with `_FILE`.
fn variables() -> Vec<String> {
    fn walk(table: &Table, path: &str, names: &mut Vec<String>) {
        for (key, value) in table {
            let path = format!("{path}__{}", key.to_uppercase());
            match value {
                Value::Table(table) => walk(table, &path, names),
                _ => names.extend([format!("{path}_FILE"), path]),
            }
        }
    }
    let mut names = Vec::new();
    walk(&defaults(), "LAPSED", &mut names);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_with_other_underscores_is_told_from_those_of_others() {
        let names = [
            "LAPSED_REDIS_URL",
            "LAPSED_LEDGER__URL_FILE",
            "LAPSED_CONFIG",
            "LAPSED_LOG",
            "LAPSED_PHP_REDIS",
            "LAPSED_REDIS_SERVICE_HOST",
            "LAPSED__REDIS__URL",
            "REDIS_URL",
        ];
        let found = misspelled_variables(names);
        let found: Vec<_> = found
            .iter()
            .map(|found| (&found.name[..], &found.meant[..]))
            .collect();
        assert_eq!(
            found,
            [
                ("LAPSED_REDIS_URL", "LAPSED__REDIS__URL"),
                ("LAPSED_LEDGER__URL_FILE", "LAPSED__LEDGER__URL_FILE"),
            ]
        );
    }

    #[test]
    fn a_key_that_is_nearly_one_of_its_section_is_told() {
        let told = [
            ("", "engin", Some("engine")),
            ("", "route", Some("routes")),
            ("engine", "concurency", Some("concurrency")),
            ("routes[3]", "mach", Some("match")),
            ("engine", "speed", None),
            ("engine", "match", None),
            ("routes[3].webhook", "mach", None),
            ("routes[3].pull", "visibilty", Some("visibility")),
            ("routes[3].nowhere", "match", None),
            ("http.clients[0]", "scope", Some("scopes")),
        ];
        for (section, wrong, meant) in told {
            assert_eq!(key(section, wrong).as_deref(), meant, "{section} {wrong}");
        }
    }
}
