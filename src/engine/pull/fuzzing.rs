//! What fuzz targets call: the reader of claim tokens.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::token::{ClaimToken, SIGNATURE_BYTES, signed};

/// Reads a token that was signed with this key.
pub fn open_token(text: &str, key: &[u8; 32]) -> Option<ClaimToken> {
    ClaimToken::open(text, &[*key])
}

/// Signs anything in the place of a token.
pub fn sign_token(fence: &str, packed: &[u8], key: &[u8; 32]) -> String {
    let signature = signed(key, fence, packed);
    let rest = [packed, &signature[..SIGNATURE_BYTES]].concat();
    format!("{fence}.{}", URL_SAFE_NO_PAD.encode(rest))
}
