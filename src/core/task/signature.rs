//! Task signatures: proof that a holder of the secret chose key and payload.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::TaskKey;

/// Shortest secret, in bytes. A shorter one can be guessed.
pub const SECRET_BYTES_MIN: usize = 16;

/// Name of the scheme, so that others can be added.
const SCHEME: &str = "v1,";

/// Signs a task. The result is `v1,` and the Base64 of the HMAC-SHA256 of `v1`, the key and the payload, separated by
/// line feeds.
///
/// A suffix of the key is omitted, because the producer or the series adds it. White space around the payload is
/// omitted. Without a payload the last line is empty. The signature does not cover the due time.
pub fn sign(secret: &[u8], key: &TaskKey, payload: Option<&str>) -> String {
    let tag = mac(secret, key, payload).finalize().into_bytes();
    format!("{SCHEME}{}", STANDARD.encode(tag))
}

/// True if one of these secrets made this signature. Compares in constant time.
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
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret).expect("HMAC accepts a secret of any length");
    // A key has no line feed, so different tasks never yield the same text.
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
    fn the_signature_equals_that_of_openssl() {
        // printf 'v1\nOrder@close@42\n{"a":1}' | openssl dgst -sha256 -hmac 'sixteen bytes or' -binary | base64
        assert_eq!(
            sign(SECRET, &key("Order@close@42"), Some(r#"{"a":1}"#)),
            "v1,7MmcBZwHdXYV0G4E5mnYszXLx9nIi3XKeEq8Eglwta8="
        );
    }

    #[test]
    fn only_the_secret_and_the_signed_task_match() {
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
    fn an_invalid_signature_matches_nothing() {
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
