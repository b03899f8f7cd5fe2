//! Users: their passwords and scopes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;

use crate::config::{RespScope, RespUser};

/// The user of a connection without `AUTH`.
pub const DEFAULT_USER: &str = "default";

/// Passwords that are checked at the same time: a check takes 19 MiB and some tens of milliseconds of a processor.
const CHECKS_MAX: usize = 2;

/// Who may call a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Every client, before it has authenticated, too.
    Open,
    /// Every client that has authenticated.
    Login,
    /// Users with the scope `read`.
    Read,
    /// Users with the scope `schedule`.
    Schedule,
    /// Users with the scope `work`.
    Work,
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Its name.
    pub name: String,
    scopes: Vec<RespScope>,
}

impl User {
    /// True if the user may call commands of this scope.
    pub fn may(&self, scope: Scope) -> bool {
        let needed = match scope {
            Scope::Open | Scope::Login => return true,
            Scope::Read => RespScope::Read,
            Scope::Schedule => RespScope::Schedule,
            Scope::Work => RespScope::Work,
        };
        self.scopes.contains(&needed)
    }
}

/// All users.
pub struct Users {
    users: Vec<(Arc<User>, String)>,
    /// Fingerprints of passwords that were right, by user: each connection of a pool sends the same one.
    known: Mutex<HashMap<String, [u8; 32]>>,
    /// Key of the fingerprints, new in each process.
    key: [u8; 32],
    checks: Semaphore,
}

impl Users {
    /// Takes the users of a configuration.
    pub fn new(users: &[RespUser]) -> Self {
        let of = |user: &RespUser| {
            let known = User {
                name: user.name.clone(),
                scopes: user.scopes.clone(),
            };
            (Arc::new(known), user.password.expose().to_owned())
        };
        Self {
            users: users.iter().map(of).collect(),
            known: Mutex::default(),
            key: rand::random(),
            checks: Semaphore::new(CHECKS_MAX),
        }
    }

    /// True if clients must authenticate.
    pub fn are_required(&self) -> bool {
        !self.users.is_empty()
    }

    /// Returns the user of a connection that has not authenticated, if that is not required.
    pub fn without_auth(&self) -> Option<Arc<User>> {
        (!self.are_required()).then(|| {
            Arc::new(User {
                name: DEFAULT_USER.to_owned(),
                scopes: RespScope::ALL.to_vec(),
            })
        })
    }

    /// Returns the user with this name and password. Takes as long for an unknown user as for a wrong password.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn authenticate(&self, name: &[u8], password: Vec<u8>) -> Option<Arc<User>> {
        let name = std::str::from_utf8(name).ok()?;
        let found = self.users.iter().find(|(user, _)| user.name == name);
        let fingerprint = self.fingerprint(&password);
        if found.is_some() && self.is_known(name, &fingerprint) {
            return found.map(|(user, _)| Arc::clone(user));
        }
        let hash = found.or(self.users.first()).map(|(_, hash)| hash.clone())?;
        let _turn = self.checks.acquire().await.ok()?;
        let check = tokio::task::spawn_blocking(move || fits(&hash, &password));
        if !check.await.unwrap_or(false) {
            return None;
        }
        let (user, _) = found?;
        let mut known = self.known.lock().expect("nothing panics while holding it");
        known.insert(user.name.clone(), fingerprint);
        Some(Arc::clone(user))
    }

    fn is_known(&self, name: &str, fingerprint: &[u8; 32]) -> bool {
        let known = self.known.lock().expect("nothing panics while holding it");
        known
            .get(name)
            .is_some_and(|known| bool::from(known.ct_eq(fingerprint)))
    }

    fn fingerprint(&self, password: &[u8]) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("a key may have any length");
        mac.update(password);
        mac.finalize().into_bytes().into()
    }
}

fn fits(hash: &str, password: &[u8]) -> bool {
    let hash = PasswordHash::new(hash);
    hash.is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok())
}

/// Returns the hash of a password for the configuration: Argon2id with a random salt.
///
/// # Errors
/// If the system has no randomness.
pub fn hash_password(password: &[u8]) -> Result<String, String> {
    let hash: Result<PasswordHash, _> = Argon2::default().hash_password(password);
    hash.map(|hash| hash.to_string())
        .map_err(|error| error.to_string())
}

/// True if it is a hash that passwords can be checked against.
pub fn is_hash(text: &str) -> bool {
    PasswordHash::new(text).is_ok_and(|hash| hash.hash.is_some() && hash.salt.is_some())
}
