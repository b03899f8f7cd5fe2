use std::net::{Ipv4Addr, TcpListener};

use rand::RngExt;

/// Below the range from which Linux picks the ports of outgoing connections (32768 to 60999 by default).
///
/// A port from that range could be taken by any client while our server is down for a restart; a client that
/// reconnects in a loop can even connect to itself there.
const RANGE: std::ops::Range<u16> = 10_240..32_768;

/// Picks a port that no process listens on. Another process may take it first: callers try again.
pub(super) fn free_port() -> u16 {
    let mut rng = rand::rng();
    loop {
        let port = rng.random_range(RANGE);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}
