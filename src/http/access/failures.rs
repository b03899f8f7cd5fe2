//! Limit on guesses of tokens.
//!
//! Counted are the different wrong tokens of an address. A program that sends one old token again and again is refused each
//! time, and locks out no other.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

/// Number of different wrong tokens of an address within [`WINDOW`]. After that, it is locked out for the rest of the window.
const GUESSES_MAX: usize = 20;

/// The length of a window.
pub(super) const WINDOW: Duration = Duration::from_secs(60);

/// Maximum number of addresses.
const ADDRESSES_MAX: usize = 10_000;

/// The wrong tokens of each address.
#[derive(Default)]
pub(super) struct Failures(Mutex<HashMap<IpAddr, Window>>);

struct Window {
    began: Instant,
    /// Beginnings of the hashes of tokens.
    wrong: HashSet<[u8; 8]>,
    /// Clients that have used their token from this address.
    known: HashSet<usize>,
}

impl Failures {
    /// Records a token of an address. `client` is the client whose token it is, if it is one. Returns false if the address is
    /// locked out: the answer must not tell whether the token is right.
    pub fn admit(&self, address: IpAddr, hash: &[u8; 32], client: Option<usize>) -> bool {
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
            wrong: HashSet::new(),
            known: HashSet::new(),
        });
        if window.began + WINDOW <= now {
            window.began = now;
            window.wrong.clear();
        }
        let locked_out = window.wrong.len() >= GUESSES_MAX;
        match client {
            Some(client) if locked_out => window.known.contains(&client),
            Some(client) => {
                window.known.insert(client);
                true
            }
            None => {
                let mut beginning = [0; 8];
                beginning.copy_from_slice(&hash[..8]);
                if !locked_out {
                    window.wrong.insert(beginning);
                }
                !locked_out || window.wrong.contains(&beginning)
            }
        }
    }

    fn windows(&self) -> MutexGuard<'_, HashMap<IpAddr, Window>> {
        self.0.lock().expect("nothing panics while holding it")
    }
}

/// The network that one client of IPv6 usually has.
fn subnet(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !(u128::MAX >> 64)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::hash_token;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn guess(failures: &Failures, from: &str, token: usize) -> bool {
        failures.admit(address(from), &hash_token(&token.to_string()), None)
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_guesses_is_locked_out_for_a_while() {
        let failures = Failures::default();
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
        let failures = Failures::default();
        for _ in 0..1_000 {
            assert!(guess(&failures, "1.2.3.4", 1));
        }
        assert!(failures.admit(address("1.2.3.4"), &hash_token("right"), Some(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_addresses_of_a_network_count_together() {
        let failures = Failures::default();
        for token in 0..GUESSES_MAX {
            let from = format!("2001:db8::{token:x}");
            assert!(guess(&failures, &from, token));
        }
        assert!(!guess(&failures, "2001:db8::ffff", GUESSES_MAX));
        assert!(guess(&failures, "2001:db8:0:1::1", GUESSES_MAX));
    }
}
