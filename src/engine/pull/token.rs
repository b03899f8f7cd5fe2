//! Claim tokens: what a worker presents to settle or renew its claim.
//!
//! A token holds all that a settlement needs. So every daemon of the ledger accepts it, also after a restart, and no
//! daemon remembers it. The owner in it is 16 random bytes that only the ledger and the worker know: the statement
//! that settles the task compares them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::ledger::{Claim, Lease, Owner};
use crate::task::{Arming, Attempt, Recurrence, TaskKey, UnixMs};

/// Longest text of a token, in bytes. A key has 255 bytes, a recurrence some hundred.
const TEXT_BYTES_MAX: usize = 4_096;

/// A worker's claim of a pulled task.
///
/// Its text is `<row id>-<due ms>-<owner as 32 hexadecimal digits>.<the rest, base64url>`. Programs may rely on the
/// part before the dot: it has the values of the columns `id`, `end_time` (in milliseconds) and `owner`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimToken {
    /// Row, arming and owner.
    pub(super) lease: Lease,
    rest: Rest,
}

/// What a settlement needs beside the lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Rest {
    #[serde(rename = "k")]
    key: String,
    #[serde(rename = "n")]
    attempt: u16,
    #[serde(rename = "c", default, skip_serializing_if = "is_zero")]
    crashes: u8,
    #[serde(rename = "m", default, skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u16>,
    #[serde(rename = "s")]
    since: i64,
    #[serde(rename = "z", default, skip_serializing_if = "is_zero")]
    snoozes: u16,
    #[serde(rename = "b")]
    created: i64,
    #[serde(rename = "d")]
    due_at: i64,
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    recurrence: Option<String>,
    /// When the worker got the task, on the ledger's clock.
    #[serde(rename = "h")]
    handed: i64,
    /// Milliseconds.
    #[serde(rename = "v")]
    visibility_ms: u64,
    #[serde(rename = "w", default, skip_serializing_if = "String::is_empty")]
    worker: String,
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Error of a text that is not a claim token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a claim token: expected the text that came with the task")]
pub struct TokenError;

impl ClaimToken {
    /// The token for a claim that `worker` gets at `handed`.
    pub(super) fn new(claim: &Claim, worker: &str, handed: UnixMs, visibility: Duration) -> Self {
        let Claim {
            lease,
            key,
            attempt,
            created,
            due_at,
            payload: _,
            oversize: _,
            tag: _,
            recurrence,
            claimed: _,
        } = claim;
        let recurrence = recurrence.as_deref().and_then(|known| known.as_ref().ok());
        Self {
            lease: *lease,
            rest: Rest {
                key: key.as_str().to_owned(),
                attempt: attempt.number,
                crashes: attempt.crashes,
                max_attempts: attempt.max_attempts,
                since: attempt.since.0,
                snoozes: attempt.snoozes,
                created: created.0,
                due_at: due_at.0,
                recurrence: recurrence.map(ToString::to_string),
                handed: handed.0,
                visibility_ms: u64::try_from(visibility.as_millis()).unwrap_or(u64::MAX),
                worker: worker.to_owned(),
            },
        }
    }

    /// The claim, without payload and tag, seen at `now` on the ledger's clock.
    pub(super) fn claim(&self, now: UnixMs) -> Result<Claim, TokenError> {
        let rest = &self.rest;
        let recurrence = rest.recurrence.as_deref().map(Recurrence::from_str);
        let held = now.since(UnixMs(rest.handed));
        let present = Instant::now();
        Ok(Claim {
            lease: self.lease,
            key: TaskKey::parse(&rest.key).map_err(|_| TokenError)?,
            attempt: Attempt {
                number: rest.attempt,
                crashes: rest.crashes,
                max_attempts: rest.max_attempts,
                since: UnixMs(rest.since),
                snoozes: rest.snoozes,
            },
            created: UnixMs(rest.created),
            due_at: UnixMs(rest.due_at),
            payload: None,
            oversize: None,
            tag: None,
            recurrence: recurrence.map(Arc::new),
            claimed: present.checked_sub(held).unwrap_or(present),
        })
    }

    /// How long the worker has had the task at `now`.
    pub(super) fn held(&self, now: UnixMs) -> Duration {
        now.since(UnixMs(self.rest.handed))
    }

    /// The length of its lease.
    pub fn visibility(&self) -> Duration {
        Duration::from_millis(self.rest.visibility_ms)
    }

    /// The name of the worker; empty if it gave none.
    pub(super) fn worker(&self) -> &str {
        &self.rest.worker
    }
}

impl fmt::Display for ClaimToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-", self.lease.arming)?;
        for byte in self.lease.owner.0 {
            write!(f, "{byte:02x}")?;
        }
        let rest = serde_json::to_vec(&self.rest).map_err(|_| fmt::Error)?;
        write!(f, ".{}", URL_SAFE_NO_PAD.encode(rest))
    }
}

impl FromStr for ClaimToken {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        Self::parse(text).ok_or(TokenError)
    }
}

impl ClaimToken {
    fn parse(text: &str) -> Option<Self> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let (fence, rest) = text.split_once('.')?;
        let (arming, owner) = fence.rsplit_once('-')?;
        let (row, due) = arming.split_once('-')?;
        let rest: Rest = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(rest).ok()?).ok()?;
        Some(Self {
            lease: Lease {
                arming: Arming {
                    row: row.parse().ok()?,
                    due: UnixMs(due.parse().ok()?),
                },
                owner: owner_of(owner)?,
            },
            rest,
        })
    }
}

fn owner_of(text: &str) -> Option<Owner> {
    let digits = text.as_bytes();
    if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut owner = [0; 16];
    for (byte, pair) in owner.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(Owner(owner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(recurrence: Option<&str>) -> Claim {
        Claim {
            lease: Lease {
                arming: Arming {
                    row: 42,
                    due: UnixMs(1_800_000_000_123),
                },
                owner: Owner([0x0f; 16]),
            },
            key: TaskKey::parse("Mail@send@7").unwrap(),
            attempt: Attempt {
                number: 2,
                crashes: 1,
                max_attempts: Some(5),
                since: UnixMs(1_800_000_000_123),
                snoozes: 3,
            },
            created: UnixMs(1_799_999_000_000),
            due_at: UnixMs(1_800_000_000_500),
            payload: Some("[1]".to_owned()),
            oversize: None,
            tag: Some("t".to_owned()),
            recurrence: recurrence.map(|text| Arc::new(text.parse())),
            claimed: Instant::now(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_has_all_that_a_settlement_needs() {
        for recurrence in [None, Some(r#"{"every":"1m"}"#)] {
            let given = claim(recurrence);
            let handed = UnixMs(1_800_000_001_000);
            let token = ClaimToken::new(&given, "w-1", handed, Duration::from_secs(30));
            let text = token.to_string();
            assert!(text.starts_with("42-1800000000123-0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f."));
            let read: ClaimToken = text.parse().unwrap();
            assert_eq!(read, token);
            let now = UnixMs(handed.0 + 700);
            let back = read.claim(now).unwrap();
            assert_eq!(
                (back.lease, &back.key, back.attempt),
                (given.lease, &given.key, given.attempt)
            );
            assert_eq!((back.created, back.due_at), (given.created, given.due_at));
            let texts = [&back, &given].map(|claim| {
                let known = claim.recurrence.as_deref();
                known.map(|known| known.as_ref().unwrap().to_string())
            });
            assert_eq!(texts[0], texts[1]);
            assert_eq!(read.held(now), Duration::from_millis(700));
            assert_eq!(
                (read.worker(), read.visibility()),
                ("w-1", Duration::from_secs(30))
            );
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let good = ClaimToken::new(&claim(None), "", UnixMs(1), Duration::from_secs(1)).to_string();
        let (fence, rest) = good.split_once('.').unwrap();
        for bad in [
            "",
            ".",
            fence,
            rest,
            &format!("{fence}."),
            &format!("{fence}.e30"),
            &format!("{fence}x.{rest}"),
            &format!("-{fence}.{rest}"),
            &format!("{good}!"),
            &"9".repeat(TEXT_BYTES_MAX + 1),
        ] {
            assert_eq!(bad.parse::<ClaimToken>(), Err(TokenError), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in ".{0,200}", cut in 0usize..200) {
            let _ = text.parse::<ClaimToken>();
            let good = ClaimToken::new(&claim(None), "ä", UnixMs(1), Duration::from_secs(1)).to_string();
            let _ = good[..cut.min(good.len())].parse::<ClaimToken>();
        }
    }
}
