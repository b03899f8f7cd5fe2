//! Users: their passwords.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;

use crate::net::failures::{Failures, Guess};
use crate::net::login_log::LoginLog;
use lapsed_core::access::{Masks, Principal};
use lapsed_core::telemetry::Metrics;

/// The user of a connection without `AUTH`.
pub const DEFAULT_USER: &str = "default";

/// Passwords that are checked at the same time: a check takes 19 MiB and some tens of milliseconds of a processor.
const CHECKS_MAX: usize = 2;

/// All users.
pub struct Users {
    users: Vec<Arc<Principal>>,
    /// The user of connections while there are none.
    anonymous: Arc<Principal>,
    /// Fingerprints of passwords that were right, by user: each connection of a pool sends the same one.
    known: Mutex<HashMap<String, [u8; 32]>>,
    /// Key of the fingerprints, new in each process.
    key: [u8; 32],
    checks: Arc<Semaphore>,
    failures: Failures,
}

/// Why a client is not the user that it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginError {
    /// There is no such user, or the password is wrong.
    Wrong,
    /// Its address has sent too many wrong passwords.
    LockedOut,
}

impl Users {
    /// Takes the users of a configuration, and what is not shown if there are none.
    pub fn new(users: &[Arc<Principal>], masks: Masks, metrics: Arc<Metrics>) -> Self {
        Self {
            users: users.to_vec(),
            anonymous: Arc::new(Principal::anonymous(DEFAULT_USER, masks)),
            known: Mutex::default(),
            key: rand::random(),
            checks: Arc::new(Semaphore::new(CHECKS_MAX)),
            failures: Failures::new("resp", metrics),
        }
    }

    /// Writes failed logins into the audit log.
    pub fn log_failures(&mut self, log: LoginLog) {
        self.failures.set_log(log);
    }

    /// True if clients must authenticate.
    pub fn are_required(&self) -> bool {
        !self.users.is_empty()
    }

    /// Returns the user of a connection that has not authenticated, if that is not required.
    pub fn without_auth(&self) -> Option<Arc<Principal>> {
        (!self.are_required()).then(|| Arc::clone(&self.anonymous))
    }

    /// Returns the user with this name and password. Takes as long for an unknown user as for a wrong password.
    ///
    /// # Errors
    /// [`LoginError`].
    ///
    /// # Cancel safety
    /// Cancel safe. A check that has begun is finished, and counts.
    pub async fn authenticate(
        &self,
        address: IpAddr,
        name: &[u8],
        password: &[u8],
    ) -> Result<Arc<Principal>, LoginError> {
        let result = self.check(address, name, password).await;
        if result.is_err() {
            self.failures.report(Some(address));
        }
        result
    }

    async fn check(
        &self,
        address: IpAddr,
        name: &[u8],
        password: &[u8],
    ) -> Result<Arc<Principal>, LoginError> {
        let fingerprint = self.fingerprint(name, password);
        let name = std::str::from_utf8(name).map_err(|_| LoginError::Wrong)?;
        let place = self.users.iter().position(|user| user.name == name);
        let known = || place.filter(|_| self.is_known(name, &fingerprint));
        if let Some(place) = known() {
            return match self.failures.admit(address, &fingerprint, Some(place)) {
                true => Ok(Arc::clone(&self.users[place])),
                false => Err(LoginError::LockedOut),
            };
        }
        let guess = || match self.failures.begin(address, &fingerprint) {
            Guess::Unknown => Ok(()),
            Guess::Wrong => Err(LoginError::Wrong),
            Guess::LockedOut => Err(LoginError::LockedOut),
        };
        guess()?;
        let turn = Arc::clone(&self.checks).acquire_owned().await;
        let turn = turn.map_err(|_| LoginError::Wrong)?;
        // Another connection may have sent the same meanwhile.
        if let Some(place) = known() {
            self.failures.right(address, &fingerprint, place);
            return Ok(Arc::clone(&self.users[place]));
        }
        guess()?;
        let hash = self.users[place.unwrap_or(0)].password_hash();
        let (hash, password) = (hash.unwrap_or_default().to_owned(), password.to_vec());
        let check = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            fits(&hash, &password)
        });
        let fits = check.await.unwrap_or(false);
        let Some(place) = place.filter(|_| fits) else {
            self.failures.wrong(address, &fingerprint);
            return Err(LoginError::Wrong);
        };
        self.failures.right(address, &fingerprint, place);
        let mut known = self.known.lock().expect("nothing panics while holding it");
        known.insert(name.to_owned(), fingerprint);
        Ok(Arc::clone(&self.users[place]))
    }

    fn is_known(&self, name: &str, fingerprint: &[u8; 32]) -> bool {
        let known = self.known.lock().expect("nothing panics while holding it");
        known
            .get(name)
            .is_some_and(|known| bool::from(known.ct_eq(fingerprint)))
    }

    fn fingerprint(&self, name: &[u8], password: &[u8]) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("a key may have any length");
        mac.update(&(name.len() as u64).to_be_bytes());
        mac.update(name);
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
