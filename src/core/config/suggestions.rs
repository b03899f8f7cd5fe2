//! Suggestions for misspelled settings ("did you mean").

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::source::{ENV_PREFIX, defaults};

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

/// Finds the known name that is nearly this word.
pub(super) fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
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
}
