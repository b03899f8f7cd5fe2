//! Claim tokens: what a worker presents to settle or renew its claim.
//!
//! A token holds all that a settlement needs. So every daemon of the ledger accepts it, also after a restart, and no
//! daemon remembers it. A signature covers the whole of it, with a [key](super::keys) that the daemons share in the
//! ledger: nothing that a client sends is believed before it is verified. The owner in it is 16 random bytes: the statement
//! that settles the task compares them, so an old token settles nothing.

mod rest;

use std::fmt;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tokio::time::Instant;

use self::rest::Rest;
use crate::format::{from_hex, hex};
use crate::ledger::{Claim, Lease, Owner, SharedKey};
use crate::task::{Arming, Recurrence, TaskKey, UnixMs};

/// Longest text of a token, in bytes. A key has 255 bytes, a recurrence some hundred.
const TEXT_BYTES_MAX: usize = 4_096;

/// A shorter text is not a token at all: a row id, a due time and an owner have more.
const TEXT_BYTES_MIN: usize = 36;

/// Bytes of the signature in a token.
pub(super) const SIGNATURE_BYTES: usize = 16;

/// A worker's claim of a pulled task. It was made here, or its signature is verified.
///
/// Its text is `<row id>-<due ms>-<owner as 32 hexadecimal digits>.<the rest and the signature, base64url>`. Programs may
/// rely on the part before the dot: it has the values of the columns `id`, `end_time` (in milliseconds) and `owner`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimToken {
    /// Row, arming and owner.
    pub(super) lease: Lease,
    rest: Rest,
    signature: [u8; SIGNATURE_BYTES],
}

impl ClaimToken {
    /// The token for a claim that `worker` gets at `handed`.
    pub(super) fn new(
        claim: &Claim,
        worker: &str,
        handed: UnixMs,
        visibility: Duration,
        key: &SharedKey,
    ) -> Self {
        let Claim {
            lease,
            key: task,
            attempt,
            created,
            due_at,
            payload: _,
            oversize: _,
            tag: _,
            recurrence,
            claimed: _,
            // A worker reports with its renewals.
            progress: _,
        } = claim;
        let recurrence = recurrence.as_deref().and_then(|known| known.as_ref().ok());
        let rest = Rest {
            key: task.clone(),
            attempt: *attempt,
            created: *created,
            due_at: *due_at,
            recurrence: recurrence.map(ToString::to_string),
            handed,
            visibility_ms: u64::try_from(visibility.as_millis()).unwrap_or(u64::MAX),
            worker: worker.to_owned(),
        };
        let signed = signed(key, &fence(lease), &rest.packed(lease.arming.due));
        let (signature, _) = signed
            .split_first_chunk()
            .expect("the signature is a part of the hash");
        Self {
            lease: *lease,
            rest,
            signature: *signature,
        }
    }

    /// The claim, without payload and tag, seen at `now` on the ledger's clock.
    pub(super) fn claim(&self, now: UnixMs) -> Claim {
        let Rest {
            key,
            attempt,
            created,
            due_at,
            recurrence,
            handed,
            visibility_ms: _,
            worker: _,
        } = &self.rest;
        let recurrence = recurrence.as_deref().map(Recurrence::from_str);
        let present = Instant::now();
        Claim {
            lease: self.lease,
            key: key.clone(),
            attempt: *attempt,
            created: *created,
            due_at: *due_at,
            payload: None,
            oversize: None,
            tag: None,
            recurrence: recurrence.map(Arc::new),
            claimed: present.checked_sub(now.since(*handed)).unwrap_or(present),
            progress: Arc::default(),
        }
    }

    /// The key of the task.
    pub fn key(&self) -> &TaskKey {
        &self.rest.key
    }

    /// Row and due time of the task.
    pub fn arming(&self) -> Arming {
        self.lease.arming
    }

    /// How long the worker has had the task at `now`.
    pub(super) fn age(&self, now: UnixMs) -> Duration {
        now.since(self.rest.handed)
    }

    /// The length of its lease: the visibility of its route when the worker got the task.
    pub fn visibility(&self) -> Duration {
        Duration::from_millis(self.rest.visibility_ms)
    }

    /// The name of the worker; empty if it gave none.
    pub(super) fn worker(&self) -> &str {
        &self.rest.worker
    }

    /// Reads a token whose signature was made with one of `keys`. `None` for any other text.
    pub(super) fn open(text: &str, keys: &[SharedKey]) -> Option<Self> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let (fence, rest) = text.split_once('.')?;
        let rest = URL_SAFE_NO_PAD.decode(rest).ok()?;
        let (packed, signature) = rest.split_last_chunk::<SIGNATURE_BYTES>()?;
        let mut made = keys.iter().map(|key| mac_of(key, fence, packed));
        if !made.any(|made| made.verify_truncated_left(signature).is_ok()) {
            return None;
        }
        let lease = lease_of(fence)?;
        Some(Self {
            lease,
            rest: Rest::unpacked(packed, lease.arming.due)?,
            signature: *signature,
        })
    }

    /// False if a text is too short to have ever been a token.
    pub(super) fn may_be(text: &str) -> bool {
        text.len() >= TEXT_BYTES_MIN
    }
}

impl fmt::Display for ClaimToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.rest.packed(self.lease.arming.due);
        rest.extend_from_slice(&self.signature);
        write!(f, "{}.{}", fence(&self.lease), URL_SAFE_NO_PAD.encode(rest))
    }
}

/// The part before the dot.
fn fence(lease: &Lease) -> String {
    format!("{}-{}", lease.arming, hex(lease.owner.0))
}

/// Begins the signature of a token.
fn mac_of(key: &SharedKey, fence: &str, packed: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key may have any length");
    mac.update(fence.as_bytes());
    mac.update(b".");
    mac.update(packed);
    mac
}

pub(super) fn signed(key: &SharedKey, fence: &str, packed: &[u8]) -> [u8; 32] {
    mac_of(key, fence, packed).finalize().into_bytes().into()
}

fn lease_of(fence: &str) -> Option<Lease> {
    let (arming, owner) = fence.rsplit_once('-')?;
    let (row, due) = arming.split_once('-')?;
    Some(Lease {
        arming: Arming {
            row: row.parse().ok()?,
            due: UnixMs(due.parse().ok()?),
        },
        owner: Owner(from_hex(owner.as_bytes())?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Attempt;
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
            progress: Arc::default(),
        }
    }

    const KEY: SharedKey = [7; 32];

    fn token(recurrence: Option<&str>) -> ClaimToken {
        let handed = UnixMs(1_800_000_001_000);
        let visibility = Duration::from_secs(30);
        ClaimToken::new(&claim(recurrence), "w-1", handed, visibility, &KEY)
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_has_all_that_a_settlement_needs() {
        for recurrence in [None, Some(r#"{"every":"1m"}"#)] {
            let (given, token) = (claim(recurrence), token(recurrence));
            let text = token.to_string();
            assert!(text.starts_with("42-1800000000123-0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f."));
            assert!(text.len() < 200, "{} bytes", text.len());
            let read = ClaimToken::open(&text, &[[1; 32], KEY]).unwrap();
            assert_eq!(read, token);
            let now = UnixMs(1_800_000_001_000 + 700);
            let back = read.claim(now);
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
            assert_eq!(read.age(now), Duration::from_millis(700));
            assert_eq!(
                (read.worker(), read.visibility()),
                ("w-1", Duration::from_secs(30))
            );
        }
    }

    #[test]
    fn a_token_with_a_forged_field_is_refused() {
        let text = token(Some(r#"{"every":"1m"}"#)).to_string();
        let (fence, rest) = text.split_once('.').unwrap();
        let rest = URL_SAFE_NO_PAD.decode(rest).unwrap();
        let (packed, signature) = rest.split_last_chunk::<SIGNATURE_BYTES>().unwrap();
        let of = |fence: &str, packed: &serde_json::Value| {
            let rest = [packed.to_string().as_bytes(), signature].concat();
            format!("{fence}.{}", URL_SAFE_NO_PAD.encode(rest))
        };
        let fields: Vec<serde_json::Value> = serde_json::from_slice(packed).unwrap();
        assert_eq!(of(fence, &fields.clone().into()), text);
        for place in 0..fields.len() {
            for value in [
                "Admin@wipe@all".into(),
                3_153_600_000_000_u64.into(),
                0.into(),
            ] {
                let mut forged = fields.clone();
                if forged[place] == value {
                    continue;
                }
                forged[place] = value;
                let forged = of(fence, &forged.into());
                assert_eq!(ClaimToken::open(&forged, &[KEY]), None, "field {place}");
            }
        }
        for forged in [
            "43-1800000000123-0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f",
            "42-1800000000124-0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f",
            "42-1800000000123-1f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f",
            "042-1800000000123-0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f",
            "42-1800000000123-0F0F0F0F0F0F0F0F0F0F0F0F0F0F0F0F",
        ] {
            let forged = of(forged, &fields.clone().into());
            assert_eq!(ClaimToken::open(&forged, &[KEY]), None, "{forged}");
        }
        assert_eq!(ClaimToken::open(&text, &[[8; 32]]), None, "another ledger");
        assert_eq!(ClaimToken::open(&text, &[]), None);
    }

    #[test]
    fn a_token_with_any_other_character_is_refused() {
        let good = token(None).to_string();
        for place in 0..good.len() {
            for other in ["A", "0", "-", ".", "_", ""] {
                let mut bad = good.clone();
                bad.replace_range(place..=place, other);
                assert!(
                    bad == good || ClaimToken::open(&bad, &[KEY]).is_none(),
                    "{bad}"
                );
            }
        }
        for bad in [
            format!("{good}A"),
            format!("{good}="),
            format!("{good}.{good}"),
        ] {
            assert_eq!(ClaimToken::open(&bad, &[KEY]), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in ".{0,200}", cut in 0usize..200) {
            let _ = ClaimToken::open(&text, &[KEY]);
            let good = token(None).to_string();
            let cut = cut.min(good.len() - 1);
            prop_assert_eq!(ClaimToken::open(&good[..cut], &[KEY]), None);
        }
    }
}
