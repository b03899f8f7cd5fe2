//! Keys that sign claim tokens.
//!
//! The daemons share one in the ledger, so that each of them verifies the tokens of all, also after a restart. While the
//! ledger has none for it, a daemon signs with one of its own.

use std::sync::OnceLock;

use crate::ledger::{Documents, LedgerError, SharedKey, shared_key};

/// Name of the shared key in the ledger.
const KEY_NAME: &str = "claims";

/// The keys that sign claim tokens.
pub struct ClaimKeys {
    /// Key of this daemon alone.
    own: SharedKey,
    shared: OnceLock<SharedKey>,
}

impl Default for ClaimKeys {
    fn default() -> Self {
        Self {
            own: rand::random(),
            shared: OnceLock::new(),
        }
    }
}

impl ClaimKeys {
    /// The key that signs: the shared one, unless the ledger does not give it.
    pub async fn signing<D: Documents + ?Sized>(&self, ledger: &D) -> SharedKey {
        if let Err(error) = self.read(ledger).await {
            tracing::debug!(%error, "could not read the key of claim tokens: signing with one of this daemon");
        }
        self.shared.get().copied().unwrap_or(self.own)
    }

    /// The keys that verify, as far as they are known.
    pub fn known(&self) -> Vec<SharedKey> {
        let shared = self.shared.get();
        shared.into_iter().chain([&self.own]).copied().collect()
    }

    /// Reads the shared key, unless it is known. Returns true if it was not known before.
    ///
    /// # Errors
    /// The ledger does not give it.
    pub async fn read<D: Documents + ?Sized>(&self, ledger: &D) -> Result<bool, LedgerError> {
        if self.shared.get().is_some() {
            return Ok(false);
        }
        let shared = shared_key(ledger, KEY_NAME).await?;
        // Of two calls at the same time, both have read the same key.
        Ok(self.shared.set(shared).is_ok())
    }
}
