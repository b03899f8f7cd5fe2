//! Who may say what a task does: a signature over its key and its payload.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::TaskKey;

/// A shorter secret can be guessed; in bytes.
pub const SECRET_BYTES_MIN: usize = 16;

/// Names the scheme, so that there can be another one.
const SCHEME: &str = "v1,";

/// Signs a task: `v1,` and the Base64 of the HMAC-SHA256 of `v1`, the key and the payload, with a line feed between them.
///
/// A suffix of the key is left out, since it is made up when the task is: by the producer, or for each occurrence of a
/// series. White space around the payload is left out; a task without one is signed with an empty last line. The
/// signature says nothing about when the task is due.
pub fn sign(secret: &[u8], key: &TaskKey, payload: Option<&str>) -> String {
    let tag = mac(secret, key, payload).finalize().into_bytes();
    format!("{SCHEME}{}", STANDARD.encode(tag))
}

/// Whether one of these secrets made this signature. Takes the same time wherever they differ.
pub fn is_authentic<'a>(
    secrets: impl IntoIterator<Item = &'a [u8]>,
    key: &TaskKey,
    payload: Option<&str>,
    signature: &str,
) -> bool {
    let tag = signature
        .strip_prefix(SCHEME)
        .and_then(|text| STANDARD.decode(text).ok());
    tag.is_some_and(|tag| {
        secrets
            .into_iter()
            .any(|secret| mac(secret, key, payload).verify_slice(&tag).is_ok())
    })
}

fn mac(secret: &[u8], key: &TaskKey, payload: Option<&str>) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key of HMAC has any length");
    // A key has no line feed, so no two tasks are signed as the same text.
    for part in [
        "v1\n",
        key.without_suffix(),
        "\n",
        payload.unwrap_or_default().trim(),
    ] {
        mac.update(part.as_bytes());
    }
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"sixteen bytes or";

    fn key(text: &str) -> TaskKey {
        TaskKey::parse(text).unwrap()
    }

    #[test]
    fn what_other_languages_have_to_make() {
        // printf 'v1\nOrder@close@42\n{"a":1}' | openssl dgst -sha256 -hmac 'sixteen bytes or' -binary | base64
        assert_eq!(
            sign(SECRET, &key("Order@close@42"), Some(r#"{"a":1}"#)),
            "v1,7MmcBZwHdXYV0G4E5mnYszXLx9nIi3XKeEq8Eglwta8="
        );
    }

    #[test]
    fn only_the_secret_and_the_very_task_fit() {
        let signature = sign(SECRET, &key("C@m@1"), Some("[1]"));
        let fits = |secret: &[u8], name: &str, payload| {
            is_authentic(
                [b"another secret..".as_slice(), secret],
                &key(name),
                payload,
                &signature,
            )
        };
        assert!(fits(SECRET, "C@m@1", Some("[1]")));
        assert!(fits(SECRET, "C@m@1", Some(" [1]\n")));
        assert!(!fits(b"sixteen bytes OR", "C@m@1", Some("[1]")));
        assert!(!fits(SECRET, "C@m@2", Some("[1]")));
        assert!(!fits(SECRET, "C@m@1", Some("[2]")));
        assert!(!fits(SECRET, "C@m@1", None));
    }

    #[test]
    fn what_is_no_signature_fits_nothing() {
        let whole = sign(SECRET, &key("C@m"), None);
        for text in [
            "",
            "v1,",
            "v1,AAAA",
            "v1,%",
            &whole[3..],
            &whole[..whole.len() - 1],
        ] {
            assert!(!is_authentic([SECRET], &key("C@m"), None, text), "{text}");
        }
        assert!(is_authentic([SECRET], &key("C@m"), None, &whole));
        assert!(!is_authentic([], &key("C@m"), None, &whole));
    }
}
