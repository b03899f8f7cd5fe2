//! Sessions of browsers: signed cookies that every daemon on the ledger accepts.
//!
//! A session names its client and its end. Its signature depends on a key that the daemons share in the ledger, and on the
//! hash of the client's token in their configuration: a reader of only one of the two can sign nothing, and a session ends
//! when its token is taken out of the configuration. Logging out adds the session to a list in the ledger.
//!
//! While the ledger has no key for it, a daemon signs with one of its own.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use lapsed::ledger::{
    Collection, DocumentRange, Ledger, LedgerError, SharedKey as Key, shared_key,
};
use lapsed::task::UnixMs;

/// Name of the shared key in the ledger.
const KEY_NAME: &str = "sessions";

/// How often the ledger is asked for sessions that were ended, and for the key while there is none.
const ASK_EVERY: Duration = Duration::from_secs(5);

/// How long requests wait for the ledger. They go on with what is known.
const PATIENCE: Duration = Duration::from_secs(1);

/// Maximum number of ended sessions that are known.
const ENDED_MAX: u32 = 10_000;

/// Maximum number of ended sessions in memory, between two reads of those of the ledger.
const KNOWN_MAX: usize = 2 * ENDED_MAX as usize;

/// The beginning of a cookie: the version of its form.
const VERSION: &str = "1";

/// Sessions of browsers.
pub(super) struct Sessions {
    ledger: Arc<dyn Ledger>,
    length: Duration,
    /// Key of this daemon alone.
    own: Key,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    shared: Option<Key>,
    ended: HashSet<String>,
    asked: Option<Instant>,
}

/// What a cookie says.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub(super) struct Session {
    /// Name of the client.
    #[serde(rename = "c")]
    pub client: String,
    /// End of the session, unix milliseconds.
    #[serde(rename = "e")]
    ends: i64,
    /// Identifies the session.
    #[serde(rename = "i")]
    id: String,
}

impl Sessions {
    pub fn new(ledger: Arc<dyn Ledger>, length: Duration) -> Self {
        Self {
            ledger,
            length,
            own: rand::random(),
            known: Mutex::default(),
        }
    }

    /// Opens a session. Returns the value of its cookie.
    pub async fn open(&self, client: &str, token_hash: &[u8; 32]) -> String {
        let (shared, _) = self.known(None).await;
        let session = Session {
            client: client.to_owned(),
            ends: self.ledger.clock().now().plus(self.length).0,
            id: BASE64.encode(rand::random::<[u8; 16]>()),
        };
        let said = serde_json::to_vec(&session).expect("texts and numbers are JSON");
        let said = format!("{VERSION}.{}", BASE64.encode(said));
        let signed = sign(shared.as_ref().unwrap_or(&self.own), token_hash, &said);
        let signature = BASE64.encode(signed.finalize().into_bytes());
        format!("{said}.{signature}")
    }

    /// Returns the session of a cookie, unless it is forged, over or ended. `token_hash` finds the hash of the token of a
    /// client.
    pub async fn find<'a>(
        &self,
        cookie: &str,
        token_hash: impl FnOnce(&str) -> Option<&'a [u8; 32]>,
    ) -> Option<Session> {
        let (said, signature) = cookie.rsplit_once('.')?;
        let body = said.strip_prefix(VERSION)?.strip_prefix('.')?;
        let signature = BASE64.decode(signature).ok()?;
        // Not trusted before its signature is verified.
        let session: Session = serde_json::from_slice(&BASE64.decode(body).ok()?).ok()?;
        let token_hash = token_hash(&session.client)?;
        let (shared, ended) = self.known(Some(&session.id)).await;
        let keys = shared.iter().chain([&self.own]);
        let mut signed = keys.map(|key| sign(key, token_hash, said));
        let is_signed = signed.any(|signed| signed.verify_slice(&signature).is_ok());
        let is_over = UnixMs(session.ends) <= self.ledger.clock().now();
        (is_signed && !is_over && !ended).then_some(session)
    }

    /// Ends a session: in this daemon at once, in the others within seconds.
    ///
    /// # Errors
    /// The ledger did not take it: other daemons accept the session until it is over.
    pub async fn end(&self, session: &Session) -> Result<(), LedgerError> {
        self.known.lock().await.ended.insert(session.id.clone());
        let ended = Collection::EndedSessions;
        self.ledger
            .insert_document(ended, &session.id, "{}")
            .await?;
        let before = UnixMs(self.ledger.clock().now().0 - self.length.as_millis() as i64);
        self.ledger
            .delete_documents(ended, before, ENDED_MAX)
            .await?;
        Ok(())
    }

    /// Keys for another purpose, derived from that of the daemons and from the one of this daemon alone.
    pub async fn derived_keys(&self, purpose: &[u8]) -> Vec<Key> {
        let (shared, _) = self.known(None).await;
        let keys = shared.iter().chain([&self.own]);
        keys.map(|key| {
            let mut derived = hmac(key);
            derived.update(purpose);
            derived.finalize().into_bytes().into()
        })
        .collect()
    }

    /// Returns the shared key, and whether a session was ended. Asks the ledger now and then.
    async fn known(&self, id: Option<&str>) -> (Option<Key>, bool) {
        let mut known = self.known.lock().await;
        if known.asked.is_none_or(|asked| asked.elapsed() >= ASK_EVERY) {
            known.asked = Some(Instant::now());
            match timeout(PATIENCE, self.ask(known.shared)).await {
                Ok(Ok((shared, ended))) => {
                    known.shared = Some(shared);
                    if known.ended.len() >= KNOWN_MAX {
                        // The ledger has the latest ones. Most of the others are over.
                        known.ended.clear();
                    }
                    known.ended.extend(ended);
                }
                Ok(Err(error)) => {
                    tracing::debug!(%error, "could not read the sessions of browsers");
                }
                Err(_) => {
                    tracing::debug!("the ledger did not tell the sessions of browsers in time")
                }
            }
        }
        (known.shared, id.is_some_and(|id| known.ended.contains(id)))
    }

    async fn ask(&self, shared: Option<Key>) -> Result<(Key, Vec<String>), LedgerError> {
        let shared = match shared {
            Some(shared) => shared,
            None => shared_key(&*self.ledger, KEY_NAME).await?,
        };
        let range = DocumentRange {
            since: UnixMs(self.ledger.clock().now().0 - self.length.as_millis() as i64),
            ..DocumentRange::latest(ENDED_MAX)
        };
        let ended = self.ledger.documents(Collection::EndedSessions, &range);
        let ended = ended.await?.into_iter().map(|document| document.name);
        Ok((shared, ended.collect()))
    }
}

fn hmac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("a key may have any length")
}

/// Begins a signature. Its key is derived from the key of the daemons and the hash of the client's token.
fn sign(key: &Key, token_hash: &[u8; 32], said: &str) -> Hmac<Sha256> {
    let mut derived = hmac(key);
    derived.update(b"session of a browser");
    derived.update(token_hash);
    let mut signature = hmac(&derived.finalize().into_bytes());
    signature.update(said.as_bytes());
    signature
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapsed::config::hash_token;
    use lapsed::ledger::memory::MemoryLedger;

    const LENGTH: Duration = Duration::from_secs(3_600);

    fn daemon(ledger: &Arc<MemoryLedger>) -> Sessions {
        Sessions::new(Arc::clone(ledger) as _, LENGTH)
    }

    async fn is_valid(sessions: &Sessions, cookie: &str, token: &str) -> bool {
        let hash = hash_token(token);
        sessions.find(cookie, |_| Some(&hash)).await.is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn every_daemon_accepts_a_session_until_it_is_over() {
        let ledger = Arc::new(MemoryLedger::default());
        let (one, two) = (daemon(&ledger), daemon(&ledger));
        let cookie = one.open("ops", &hash_token("t")).await;
        for daemon in [&one, &two] {
            assert!(is_valid(daemon, &cookie, "t").await);
            assert!(!is_valid(daemon, &cookie, "u").await, "another token");
            assert!(daemon.find(&cookie, |_| None).await.is_none());
        }
        tokio::time::advance(LENGTH).await;
        assert!(!is_valid(&one, &cookie, "t").await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_forged_cookie_is_no_session() {
        let ledger = Arc::new(MemoryLedger::default());
        let sessions = daemon(&ledger);
        let cookie = sessions.open("guest", &hash_token("t")).await;
        let (said, signature) = cookie.rsplit_once('.').unwrap();
        let body = BASE64.decode(&said[2..]).unwrap();
        let other = String::from_utf8(body).unwrap().replace("guest", "admin");
        let other = BASE64.encode(other);
        for forged in [
            format!("1.{other}.{signature}"),
            format!("2.{}.{signature}", &said[2..]),
            format!("{said}."),
            format!("{said}.{}", BASE64.encode([0; 32])),
            said.to_owned(),
            String::new(),
            ".".to_owned(),
            "1..".to_owned(),
        ] {
            assert!(!is_valid(&sessions, &forged, "t").await, "{forged}");
        }
        assert!(is_valid(&sessions, &cookie, "t").await);
        let elsewhere = daemon(&Arc::new(MemoryLedger::default()));
        assert!(!is_valid(&elsewhere, &cookie, "t").await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_was_ended_is_refused_by_every_daemon() {
        let ledger = Arc::new(MemoryLedger::default());
        let (one, two) = (daemon(&ledger), daemon(&ledger));
        let hash = hash_token("t");
        let (cookie, other) = (one.open("ops", &hash).await, one.open("ops", &hash).await);
        assert!(is_valid(&two, &cookie, "t").await);
        let session = one.find(&cookie, |_| Some(&hash)).await.unwrap();
        one.end(&session).await.unwrap();
        assert!(!is_valid(&one, &cookie, "t").await);
        tokio::time::advance(ASK_EVERY).await;
        assert!(!is_valid(&two, &cookie, "t").await);
        assert!(is_valid(&two, &other, "t").await);
    }
}
