//! Sockets of clients: a peer that is silent is not alive.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;

/// Silence after which the kernel asks a peer whether it is there.
#[cfg(target_os = "linux")]
const ASK_AFTER: Duration = Duration::from_secs(5);

/// Time between two questions.
#[cfg(target_os = "linux")]
const ASK_EVERY: Duration = Duration::from_secs(2);

/// Questions without an answer after which the connection is cut.
#[cfg(target_os = "linux")]
const ASKED_MAX: u32 = 3;

/// Sends small answers at once, and has the kernel cut the connection if its peer takes none of what was sent for `within`,
/// or does not answer the kernel's questions for that long. Without this a peer that vanished without a word, such as one that
/// lost its power, looks alive for two hours.
///
/// # Errors
/// The connection is lost already.
#[cfg(target_os = "linux")]
pub fn cut_silent(stream: &TcpStream, within: Duration) -> io::Result<()> {
    use rustix::net::sockopt;

    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, ASK_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, ASK_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, ASKED_MAX)?;
    let millis = u32::try_from(within.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(stream, millis)?;
    Ok(())
}

/// As on Linux, with the limits of the system.
///
/// # Errors
/// The connection is lost already.
#[cfg(not(target_os = "linux"))]
pub fn cut_silent(stream: &TcpStream, _: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    rustix::net::sockopt::set_socket_keepalive(stream, true)?;
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::net::sockopt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_kernel_cuts_a_peer_that_is_silent_for_seconds() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap());
        let (_peer, accepted) = tokio::join!(peer, listener.accept());
        let (stream, _) = accepted.unwrap();
        cut_silent(&stream, Duration::from_secs(15)).unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        let asked = sockopt::tcp_keepidle(&stream).unwrap()
            + sockopt::tcp_keepintvl(&stream).unwrap() * sockopt::tcp_keepcnt(&stream).unwrap();
        assert!(asked <= Duration::from_secs(15), "{asked:?}");
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 15_000);
        assert!(sockopt::tcp_nodelay(&stream).unwrap());
    }
}
