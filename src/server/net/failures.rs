//! Limit on guesses of tokens and passwords.
//!
//! Counted are the different wrong ones of an address. A program that sends one old token again and again is refused each
//! time, and locks out no other.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use super::login_log::LoginLog;
use super::subnet::subnet;
use lapsed_core::telemetry::Metrics;
use lapsed_core::telemetry::log::LogLimiter;

/// Number of different wrong tokens of an address within [`WINDOW`]. After that, it is locked out for the rest of the window.
const GUESSES_MAX: usize = 20;

/// The length of a window.
pub const WINDOW: Duration = Duration::from_secs(60);

/// Maximum number of addresses.
const ADDRESSES_MAX: usize = 10_000;

/// Time between two log lines about failed logins.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

/// The wrong tokens or passwords of each address, at one server.
pub struct Failures {
    /// `http` or `resp`.
    server: &'static str,
    metrics: Arc<Metrics>,
    lines: LogLimiter,
    log: Option<LoginLog>,
    windows: Mutex<HashMap<IpAddr, Window>>,
}

/// What is known about a password before it is checked.
#[cfg(feature = "resp")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guess {
    /// It is to be checked.
    Unknown,
    /// It is wrong.
    Wrong,
    /// The address has guessed too often: it is not checked.
    LockedOut,
}

type Beginning = [u8; 8];

struct Window {
    began: Instant,
    /// Beginnings of the hashes of tokens; false while one is being checked.
    wrong: HashMap<Beginning, bool>,
    /// Clients that have used their token from this address.
    known: HashSet<usize>,
}

impl Failures {
    /// Counts the failures at a server, `http` or `resp`.
    pub fn new(server: &'static str, metrics: Arc<Metrics>) -> Self {
        Self {
            server,
            metrics,
            lines: LogLimiter::every(LOGGED_EVERY),
            log: None,
            windows: Mutex::default(),
        }
    }

    /// Writes failed logins into the audit log, too.
    pub fn set_log(&mut self, log: LoginLog) {
        self.log = Some(log);
    }

    /// Records a token of an address. `client` is the client whose token it is, if it is one. Returns false if the address is
    /// locked out: the answer must not tell whether the token is right.
    pub fn admit(&self, address: IpAddr, hash: &[u8; 32], client: Option<usize>) -> bool {
        self.within(address, |window| {
            let locked_out = window.wrong.len() >= GUESSES_MAX;
            match client {
                Some(client) if locked_out => window.known.contains(&client),
                Some(client) => {
                    window.known.insert(client);
                    true
                }
                None => {
                    let beginning = beginning_of(hash);
                    if !locked_out {
                        window.wrong.insert(beginning, true);
                    }
                    !locked_out || window.wrong.contains_key(&beginning)
                }
            }
        })
    }

    /// Says what is known about a password whose check is costly. It counts as wrong until it [is right](Self::right), so
    /// that many connections together guess no more often than one.
    #[cfg(feature = "resp")]
    pub fn begin(&self, address: IpAddr, hash: &[u8; 32]) -> Guess {
        self.within(address, |window| {
            let locked_out = window.wrong.len() >= GUESSES_MAX;
            match window.wrong.get(&beginning_of(hash)) {
                Some(true) => Guess::Wrong,
                Some(false) => Guess::Unknown,
                None if locked_out => Guess::LockedOut,
                None => {
                    window.wrong.insert(beginning_of(hash), false);
                    Guess::Unknown
                }
            }
        })
    }

    /// The password that was begun is wrong.
    #[cfg(feature = "resp")]
    pub fn wrong(&self, address: IpAddr, hash: &[u8; 32]) {
        self.within(address, |window| {
            window.wrong.insert(beginning_of(hash), true)
        });
    }

    /// The password that was begun is that of this client.
    #[cfg(feature = "resp")]
    pub fn right(&self, address: IpAddr, hash: &[u8; 32], client: usize) {
        self.within(address, |window| {
            window.wrong.remove(&beginning_of(hash));
            window.known.insert(client);
        });
    }

    /// Counts a login that failed, and logs it: once a minute at most, and as [`LoginLog`] says in the audit log.
    pub fn report(&self, address: Option<IpAddr>) {
        self.metrics.login_failed(self.server);
        if let Some(log) = &self.log {
            log.add(address);
        }
        if let Some(held_back) = self.lines.admit("failed login") {
            let address = address.map(|address| address.to_string());
            tracing::warn!(
                server = self.server,
                client.address = address,
                held_back,
                "a client sent a wrong token or password"
            );
        }
    }

    fn within<T>(&self, address: IpAddr, look: impl FnOnce(&mut Window) -> T) -> T {
        let now = Instant::now();
        let mut windows = self.windows();
        if windows.len() >= ADDRESSES_MAX {
            windows.retain(|_, window| window.began + WINDOW > now);
        }
        if windows.len() >= ADDRESSES_MAX {
            windows.clear();
        }
        let window = windows.entry(subnet(address)).or_insert_with(|| Window {
            began: now,
            wrong: HashMap::new(),
            known: HashSet::new(),
        });
        if window.began + WINDOW <= now {
            window.began = now;
            window.wrong.clear();
        }
        look(window)
    }

    fn windows(&self) -> MutexGuard<'_, HashMap<IpAddr, Window>> {
        self.windows
            .lock()
            .expect("nothing panics while holding it")
    }
}

fn beginning_of(hash: &[u8; 32]) -> Beginning {
    let mut beginning = [0; 8];
    beginning.copy_from_slice(&hash[..8]);
    beginning
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest as _, Sha256};

    fn hash_token(token: &str) -> [u8; 32] {
        Sha256::digest(token).into()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn guess(failures: &Failures, from: &str, token: usize) -> bool {
        failures.admit(address(from), &hash_token(&token.to_string()), None)
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_guesses_is_locked_out_for_a_while() {
        let failures = Failures::new("http", Arc::default());
        let right = hash_token("right");
        let used = |client| failures.admit(address("1.2.3.4"), &right, Some(client));
        assert!(used(1));
        for token in 0..GUESSES_MAX {
            assert!(guess(&failures, "1.2.3.4", token));
        }
        assert!(!guess(&failures, "1.2.3.4", GUESSES_MAX));
        assert!(!used(2), "a right guess is not told from a wrong one");
        assert!(used(1), "this client was here before");
        assert!(guess(&failures, "1.2.3.5", GUESSES_MAX), "another address");
        tokio::time::advance(WINDOW).await;
        assert!(guess(&failures, "1.2.3.4", GUESSES_MAX));
        assert!(used(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_with_an_old_token_locks_out_no_other() {
        let failures = Failures::new("http", Arc::default());
        for _ in 0..1_000 {
            assert!(guess(&failures, "1.2.3.4", 1));
        }
        assert!(failures.admit(address("1.2.3.4"), &hash_token("right"), Some(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn passwords_that_are_being_checked_count_as_guesses() {
        let failures = Failures::new("resp", Arc::default());
        let from = address("1.2.3.4");
        let hash = |number: usize| hash_token(&number.to_string());
        for number in 0..GUESSES_MAX {
            assert_eq!(failures.begin(from, &hash(number)), Guess::Unknown);
        }
        assert_eq!(failures.begin(from, &hash(0)), Guess::Unknown);
        assert_eq!(failures.begin(from, &hash(99)), Guess::LockedOut);
        failures.wrong(from, &hash(0));
        assert_eq!(failures.begin(from, &hash(0)), Guess::Wrong);
        failures.right(from, &hash(1), 7);
        assert!(failures.admit(from, &hash(1), Some(7)));
        assert_eq!(failures.begin(from, &hash(99)), Guess::Unknown);
    }

    #[tokio::test(start_paused = true)]
    async fn the_addresses_of_a_network_count_together() {
        let failures = Failures::new("http", Arc::default());
        for token in 0..GUESSES_MAX {
            let from = format!("2001:db8::{token:x}");
            assert!(guess(&failures, &from, token));
        }
        assert!(!guess(&failures, "2001:db8::ffff", GUESSES_MAX));
        assert!(guess(&failures, "2001:db8:0:1::1", GUESSES_MAX));
    }
}
