//! Checks of secrets: who can read the files that have some, and whether a token can be guessed.

use std::fs;
use std::path::Path;

use toml::{Table, Value};

use lapsed::Config;
use lapsed::config::TOKEN_CHARS_MIN;
use lapsed::diagnosis::Finding;

const SECRETS: &str = "configuration.secrets";

/// Settings whose value is a secret.
const SECRET_KEYS: [&str; 4] = ["tokens", "secret", "secrets", "payload_secret"];

/// The finding, if something is wrong.
pub fn examine_secrets(config: &Config, file: Option<&Path>) -> Option<Finding> {
    let exposed = exposed_secrets(config, file);
    let warning = (!exposed.is_empty()).then(|| Finding::warning(SECRETS, exposed.join("; ")));
    warning.map(|warning| {
        warning.remedy("`chmod o= FILE`, and tokens that `lapsed token` prints; or name files with secrets by the settings that end in `_file`")
    })
}

/// Files with secrets that every user of the machine can read, and short tokens, in sentences without a full stop.
pub fn exposed_secrets(config: &Config, file: Option<&Path>) -> Vec<String> {
    let mut exposed = Vec::new();
    if let Some(tls) = &config.resp.tls
        && is_readable_by_all(&tls.key)
    {
        let key = tls.key.display();
        exposed.push(format!("every user can read `{key}` (`resp.tls_key`)"));
    }
    let Some((file, table)) = file.and_then(|file| Some((file, read(file)?))) else {
        return exposed;
    };
    let (mut has_secret, mut has_short) = (false, false);
    look(&table, &mut |key, text| {
        has_secret |= SECRET_KEYS.contains(&key) || has_password(text);
        has_short |= key == "tokens" && text.chars().count() < TOKEN_CHARS_MIN;
    });
    if has_secret && is_readable_by_all(file) {
        let file = file.display();
        exposed.push(format!("every user can read `{file}`, which has secrets"));
    }
    if has_short {
        exposed.push(format!(
            "a token of `http.tokens` has fewer than {TOKEN_CHARS_MIN} characters: it can be guessed"
        ));
    }
    exposed
}

fn read(file: &Path) -> Option<Table> {
    fs::read_to_string(file).ok()?.parse().ok()
}

/// Calls `see` with each text, and the key that it or its array has.
fn look(table: &Table, see: &mut impl FnMut(&str, &str)) {
    for (key, value) in table {
        look_at(key, value, see);
    }
}

fn look_at(key: &str, value: &Value, see: &mut impl FnMut(&str, &str)) {
    match value {
        Value::String(text) if !text.is_empty() => see(key, text),
        Value::Array(values) => values.iter().for_each(|value| look_at(key, value, see)),
        Value::Table(table) => look(table, see),
        _ => {}
    }
}

/// True for a URL with a password.
pub fn has_password(text: &str) -> bool {
    let rest = text.split_once("://").map(|(_, rest)| rest);
    let user = rest.and_then(|rest| rest.rsplit_once('@'));
    user.is_some_and(|(user, _)| user.split_once(':').is_some_and(|(_, it)| !it.is_empty()))
}

#[cfg(unix)]
fn is_readable_by_all(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;

    fs::metadata(file).is_ok_and(|found| found.permissions().mode() & 0o004 != 0)
}

#[cfg(not(unix))]
fn is_readable_by_all(_: &Path) -> bool {
    false
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn exposed(text: &str, mode: u32) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("lapsed.toml");
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let config = Config::from_toml(text).unwrap();
        let found = exposed_secrets(&config, Some(&file));
        let place = file.display().to_string();
        found.iter().map(|it| it.replace(&place, "FILE")).collect()
    }

    #[test]
    fn a_file_with_secrets_that_every_user_can_read_is_named() {
        const NAMED: [&str; 1] = ["every user can read `FILE`, which has secrets"];
        for text in [
            "http.tokens = ['0123456789abcdef']",
            "redis.url = 'redis://:secret@localhost/0'",
            "[[routes]]\nmatch = '^A@'\nwebhook = { url = 'https://a.example/', secret = 'whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=' }",
        ] {
            assert_eq!(exposed(text, 0o644), NAMED, "{text}");
            assert_eq!(exposed(text, 0o640), [""; 0], "{text}");
        }
        assert_eq!(exposed("redis.url = 'redis://localhost/0'", 0o644), [""; 0]);
    }

    #[test]
    fn a_short_token_is_named() {
        assert_eq!(
            exposed("http.tokens = ['0123456789abcde']", 0o600),
            ["a token of `http.tokens` has fewer than 16 characters: it can be guessed"]
        );
    }

    #[test]
    fn a_key_that_every_user_can_read_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let key = directory.path().join("key.pem");
        fs::write(&key, "").unwrap();
        let text = format!("resp = {{ tls_cert = 'c', tls_key = '{}' }}", key.display());
        let config = Config::from_toml(&text).unwrap();
        let set = |mode| fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        set(0o644);
        assert_eq!(exposed_secrets(&config, None).len(), 1);
        set(0o640);
        assert_eq!(exposed_secrets(&config, None), [""; 0]);
    }
}
