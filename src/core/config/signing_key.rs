//! Signing keys of webhooks.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Prefix of a key in the Standard Webhooks specification.
const PREFIX: &str = "whsec_";

/// Accepts base64 with and without padding: both are in use.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Signing key of a webhook, 24 to 64 bytes. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey(Arc<[u8]>);

impl SigningKey {
    /// Parses `whsec_` followed by base64.
    ///
    /// # Errors
    /// A message with the expected format, without the text itself.
    pub fn parse(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "expected `whsec_` and base64 of 24 to 64 bytes";
        let coded = text
            .strip_prefix(PREFIX)
            .ok_or_else(|| format!("{EXPECTED}, found a value without that prefix"))?;
        let bytes = BASE64
            .decode(coded)
            .map_err(|_| format!("{EXPECTED}, found a value that is not base64 after it"))?;
        match bytes.len() {
            24..=64 => Ok(Self(Arc::from(bytes))),
            count => Err(format!("{EXPECTED}, found {count} bytes")),
        }
    }

    /// The bytes of the key.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_with_and_without_padding_and_never_shown() {
        let key = SigningKey::parse("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD").unwrap();
        assert_eq!(key.expose().len(), 24);
        assert_eq!(format!("{key:?}"), "[redacted]");
        let padded = format!("whsec_{}==", "A".repeat(42));
        let bare = format!("whsec_{}", "A".repeat(42));
        assert_eq!(SigningKey::parse(&padded), SigningKey::parse(&bare));
        assert_eq!(SigningKey::parse(&bare).unwrap().expose().len(), 31);
    }

    #[test]
    fn what_is_no_key_is_refused_without_being_repeated() {
        let short = format!("whsec_{}", "QUFB".repeat(7));
        let long = format!("whsec_{}", "QUFB".repeat(22));
        let refused = [
            ("QUFB", "without that prefix"),
            ("whsec_%%QUFB", "not base64"),
            (&short[..], "found 21 bytes"),
            (&long[..], "found 66 bytes"),
        ];
        for (text, why) in refused {
            let error = SigningKey::parse(text).unwrap_err();
            assert!(error.contains(why) && !error.contains("QUFB"), "{error}");
        }
    }
}
