//! Keys that the daemons share in the ledger.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;

use super::{Collection, Documents, LedgerError};

/// A key that the daemons share: 32 random bytes.
pub type SharedKey = [u8; 32];

/// Reads the shared key of this name, or makes one. The first daemon wins.
///
/// # Errors
/// The ledger does not answer, has no table of documents, or has a document of this name that is no key.
pub async fn shared_key<D: Documents + ?Sized>(
    ledger: &D,
    name: &str,
) -> Result<SharedKey, LedgerError> {
    let of = Collection::SharedKeys;
    let text = match ledger.find_document(of, name).await? {
        Some(found) => found.body,
        None => {
            let new = serde_json::json!(BASE64.encode(rand::random::<SharedKey>())).to_string();
            let existing = ledger.insert_document(of, name, &new).await?;
            existing.map_or(new, |existing| existing.body)
        }
    };
    let text: Option<String> = serde_json::from_str(&text).ok();
    let key = text.and_then(|text| BASE64.decode(text).ok());
    key.and_then(|key| key.try_into().ok())
        .ok_or_else(|| LedgerError::Refused {
            message: format!("the document `{name}` is no key; delete it"),
            source: None,
        })
}
