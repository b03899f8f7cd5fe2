use std::net::{Ipv4Addr, TcpListener};

use rand::RngExt;

use super::SandboxError;

/// Number of ports that are tried.
const TRIES: usize = 5;

/// Below the range from which Linux picks the ports of outgoing connections (32768 to 60999 by default).
///
/// A port from that range could be taken by any client while our server is down for a restart; a client that
/// reconnects in a loop can even connect to itself there.
const RANGE: std::ops::Range<u16> = 10_240..32_768;

/// Launches a server on a free port; on another one, if another process has taken it meanwhile.
///
/// # Errors
/// That of `launch`.
pub(super) async fn on_free_port(
    mut launch: impl AsyncFnMut(u16) -> Result<(), SandboxError>,
) -> Result<(), SandboxError> {
    for _ in 1..TRIES {
        match launch(free_port()).await {
            Err(SandboxError::Ended { log, .. }) if log.contains("Address already in use") => {}
            launched => return launched,
        }
    }
    launch(free_port()).await
}

/// Picks a port that no process listens on.
fn free_port() -> u16 {
    let mut rng = rand::rng();
    loop {
        let port = rng.random_range(RANGE);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}
