use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Mutex;

use rand::RngExt;

/// Below the range from which Linux picks the ports of outgoing connections (32768 to 60999 by default).
///
/// A port from that range could be taken by any client while our server is down for a restart; a client that
/// reconnects in a loop can even connect to itself there.
const RANGE: std::ops::Range<u16> = 10_240..32_768;

/// The ports that this process has picked. A server that is killed gets its port back: no other takes it meanwhile.
static PICKED: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Picks a port that no process listens on, and that was not picked before. Another process may take it first: callers try
/// again.
pub(super) fn free_port() -> u16 {
    let mut rng = rand::rng();
    loop {
        let port = rng.random_range(RANGE);
        let is_new = PICKED
            .lock()
            .expect("nothing panics while holding it")
            .insert(port);
        if is_new && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}
