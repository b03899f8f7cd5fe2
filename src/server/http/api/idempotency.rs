//! `Idempotency-Key`: a request that is repeated with the same key is carried out once, and gets the same answer.
//!
//! The answers are documents of the ledger, so that every daemon gives them.

use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::http::access::Caller;
use crate::http::app_state::AppState;
use crate::http::problem::{Problem, ProblemKind};
use lapsed::ledger::{Collection, DOCUMENT_BYTES_MAX};

/// How long answers are kept.
const KEPT: Duration = Duration::from_secs(24 * 3_600);

/// A request that has not been answered for this long was interrupted: it is carried out again.
const INTERRUPTED_AFTER: Duration = Duration::from_secs(60);

/// Old answers deleted with a request.
const PRUNED: u32 = 20;

/// Maximum length of a key.
const KEY_BYTES_MAX: usize = 255;

const HEADER: &str = "idempotency-key";

/// The header `Idempotency-Key`, if the request has one.
pub struct IdempotencyKey(pub Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let mut given = parts.headers.get_all(HEADER).iter();
        let (Some(value), None) = (given.next(), given.next()) else {
            return match parts.headers.contains_key(HEADER) {
                true => Err(unreadable()),
                false => Ok(Self(None)),
            };
        };
        let key = value.to_str().map_err(|_| unreadable())?;
        match (1..=KEY_BYTES_MAX).contains(&key.len()) {
            true => Ok(Self(Some(key.to_owned()))),
            false => Err(unreadable()),
        }
    }
}

fn unreadable() -> Problem {
    Problem::invalid(format!(
        "expected one `Idempotency-Key` of 1 to {KEY_BYTES_MAX} visible ASCII characters"
    ))
}

fn in_use() -> Problem {
    Problem::of(
        ProblemKind::KeyInUse,
        "the first request with this key has not been answered yet",
    )
}

/// What is kept of a request.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// SHA-256 of the body, base64.
    body: String,
    /// `None` while it is carried out.
    answer: Option<String>,
}

/// What to do with a request.
pub enum IdempotencyCheck {
    /// Carry it out, and [finish](Once::finish) it.
    New(Once),
    /// It was carried out before, with this answer.
    Before(String),
}

/// A request that is carried out once.
pub struct Once {
    name: String,
    body: String,
}

impl Once {
    /// Begins a request with this key and body. Keys of different callers do not meet.
    ///
    /// # Errors
    /// The key belongs to another body, or to a request that has not ended; or the ledger fails.
    pub async fn begin(
        app: &AppState,
        caller: &Caller,
        key: &str,
        body: &[u8],
    ) -> Result<IdempotencyCheck, Problem> {
        let digest = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(Sha256::digest(bytes));
        let name = digest(format!("{}\n{key}", caller.name).as_bytes());
        let body = digest(body);
        let ledger = app.tasks.ledger();
        let before = app.tasks.now().await?.minus(KEPT);
        ledger
            .delete_documents(Collection::Idempotency, before, PRUNED)
            .await?;
        let once = Self { name, body };
        let kept = once.kept(None);
        let found = ledger.insert_document(Collection::Idempotency, &once.name, &kept);
        let Some(found) = found.await? else {
            return Ok(IdempotencyCheck::New(once));
        };
        let found_kept = serde_json::from_str(&found.body);
        let Kept { body, answer } = found_kept.map_err(|_| in_use())?;
        if body != once.body {
            return Err(Problem::of(
                ProblemKind::KeyReused,
                "the body differs from that of the first request with this key",
            ));
        }
        match answer {
            Some(answer) => Ok(IdempotencyCheck::Before(answer)),
            None if app.tasks.now().await?.since(found.at) > INTERRUPTED_AFTER => {
                let ledger = app.tasks.ledger();
                ledger
                    .delete_document(Collection::Idempotency, &once.name)
                    .await?;
                let found = ledger.insert_document(Collection::Idempotency, &once.name, &kept);
                match found.await? {
                    None => Ok(IdempotencyCheck::New(once)),
                    Some(_) => Err(in_use()),
                }
            }
            None => Err(in_use()),
        }
    }

    /// Keeps the answer. Without one the request has failed as a whole, and may be repeated.
    pub async fn finish(self, app: &AppState, answer: Option<&str>) {
        let ledger = app.tasks.ledger();
        let kept = answer.map(|answer| self.kept(Some(answer)));
        let kept = kept.filter(|kept| kept.len() <= DOCUMENT_BYTES_MAX);
        let written = match kept {
            Some(kept) => ledger
                .replace_document(Collection::Idempotency, &self.name, &kept)
                .await
                .map(drop),
            None => ledger
                .delete_document(Collection::Idempotency, &self.name)
                .await
                .map(drop),
        };
        if let Err(error) = written {
            tracing::warn!(%error, "could not keep the answer of a batch: repeating it may carry it out again");
        }
    }

    fn kept(&self, answer: Option<&str>) -> String {
        let kept = Kept {
            body: self.body.clone(),
            answer: answer.map(str::to_owned),
        };
        serde_json::to_string(&kept).expect("texts can be written as JSON")
    }
}
