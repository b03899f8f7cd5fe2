//! Encrypted pagination cursors: opaque and tamper-proof.
//!
//! A place may be that of a row that the caller must not see, since a search stops where its time is over. The key depends on
//! the one that the daemons share in the ledger, so each of them opens the cursors of all.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use super::Access;
use super::caller::Caller;
use crate::http::problem::Problem;
use lapsed::ledger::ListCursor;

/// The beginning of a sealed cursor: the version of its form.
const VERSION: &str = "s1.";

/// Least length of what is sealed, in bytes: the length of a cursor must not tell that of a key.
const BYTES_MIN: usize = 288;

/// Reads and writes the cursors of a caller.
pub struct Cursors {
    /// Keys that open them; the first one seals. `None`: they are not sealed.
    keys: Option<Vec<LessSafeKey>>,
    caller: String,
}

impl Access {
    /// The cursors of a caller, sealed or plain.
    pub async fn cursors(&self, caller: &Caller, sealed: bool) -> Cursors {
        let keys = match sealed {
            true => Some(self.sessions.derived_keys(b"cursors of lists").await),
            false => None,
        };
        Cursors {
            keys: keys.map(|keys| keys.iter().map(key).collect()),
            caller: caller.name.clone(),
        }
    }
}

impl Cursors {
    /// Writes a place.
    pub fn text(&self, place: &ListCursor) -> String {
        let Some(key) = self.keys.as_ref().and_then(|keys| keys.first()) else {
            return place.to_string();
        };
        let nonce: [u8; NONCE_LEN] = rand::random();
        let mut sealed = format!("{:BYTES_MIN$}", place.to_string()).into_bytes();
        let as_nonce = Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_append_tag(as_nonce, self.aad(), &mut sealed)
            .expect("a cursor is shorter than the limit of the cipher");
        format!("{VERSION}{}", BASE64.encode([&nonce[..], &sealed].concat()))
    }

    /// Reads a place.
    ///
    /// # Errors
    /// It was not written for this caller.
    pub fn place(&self, text: &str) -> Result<ListCursor, Problem> {
        let place = match &self.keys {
            None => text.parse().ok(),
            Some(keys) => keys.iter().find_map(|key| self.open(key, text)),
        };
        place.ok_or_else(|| Problem::invalid("`cursor`: expected `next` of the previous page"))
    }

    fn open(&self, key: &LessSafeKey, text: &str) -> Option<ListCursor> {
        let sealed = BASE64.decode(text.strip_prefix(VERSION)?).ok()?;
        let (nonce, sealed) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut sealed = sealed.to_vec();
        let opened = key.open_in_place(nonce, self.aad(), &mut sealed).ok()?;
        std::str::from_utf8(opened).ok()?.trim_end().parse().ok()
    }

    fn aad(&self) -> Aad<&[u8]> {
        Aad::from(self.caller.as_bytes())
    }
}

fn key(bytes: &[u8; 32]) -> LessSafeKey {
    let key = UnboundKey::new(&CHACHA20_POLY1305, bytes);
    LessSafeKey::new(key.expect("the cipher takes keys of 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursors(bytes: u8, caller: &str) -> Cursors {
        Cursors {
            keys: Some(vec![key(&[bytes; 32])]),
            caller: caller.to_owned(),
        }
    }

    #[test]
    fn a_sealed_cursor_is_read_by_its_caller_only_and_tells_no_length() {
        let place = |key: &str| ListCursor::Key(key.to_owned());
        let shop = cursors(1, "shop");
        let (short, long) = (place("A@b@c"), place(&format!("A@b@{}", "c".repeat(200))));
        assert_eq!(shop.text(&short).len(), shop.text(&long).len());
        let text = shop.text(&short);
        assert_eq!(shop.place(&text).unwrap(), short);
        assert!(!text.contains("A@b"));
        let mut forged = text.clone();
        forged.replace_range(40..41, if &text[40..41] == "A" { "B" } else { "A" });
        for refused in [&forged, "", "s1.", "s1.AAAA", "42", "key.A@b@c"] {
            assert!(shop.place(refused).is_err(), "{refused}");
        }
        assert!(cursors(1, "other").place(&text).is_err());
        assert!(cursors(2, "shop").place(&text).is_err());
    }
}
