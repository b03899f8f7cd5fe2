//! Signatures by the Standard Webhooks specification, version 1.0.0: <https://www.standardwebhooks.com>.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::config::SigningKey;

/// Returns the value of the header: a signature by each key, so that the receiver needs to know only one of them.
pub(super) fn sign(keys: &[SigningKey], id: &str, timestamp: &str, body: &[u8]) -> String {
    let signatures = keys.iter().map(|key| {
        let mut mac = Hmac::<Sha256>::new_from_slice(key.expose()).expect("any length does");
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            mac.update(part);
        }
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    });
    signatures.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_specifications_own_examples_come_out() {
        let key = |text| SigningKey::parse(text).unwrap();
        let signed = sign(
            &[key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")],
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "1614265330",
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        let signed = sign(
            &[key("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")],
            "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk",
            "1649367553",
            br#"{"email":"test@example.com","username":"test_user"}"#,
        );
        assert_eq!(signed, "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=");
    }

    #[test]
    fn each_key_makes_a_signature() {
        let keys = [
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
        ]
        .map(|key| SigningKey::parse(key).unwrap());
        let both = sign(&keys, "1-2", "3", b"{}");
        let each = keys.map(|key| sign(&[key], "1-2", "3", b"{}"));
        assert_eq!(both, each.join(" "));
        assert_ne!(each[0], each[1]);
    }
}
