//! The settings that all connections share.

use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{ConnectionAddr, IntoConnectionInfo};

use super::RedisError;

/// A connection with unacknowledged data breaks after this time, independent of the kernel's retransmission limit.
const USER_TIMEOUT: Duration = Duration::from_secs(10);

/// Library name that connections report with `CLIENT SETINFO`.
pub const LIBRARY: &str = "lapsed";

/// Parses the URL of a server.
pub(super) fn client(url: &str) -> Result<redis::Client, RedisError> {
    let info = url.into_connection_info().map_err(RedisError::Url)?;
    if let ConnectionAddr::TcpTls { .. } = info.addr() {
        // rustls has one cryptography provider for each process. An installed one is kept.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(3))
        .with_retries(3);
    let tcp = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(keepalive)
        .set_user_timeout(USER_TIMEOUT);
    let settings = info.redis_settings().clone();
    // `CLIENT LIST` shows the name (Redis 7.2 and later), by which `doctor` recognizes the connections of daemons.
    let settings = settings
        .set_protocol(redis::ProtocolVersion::RESP2)
        .set_lib_name(LIBRARY, env!("CARGO_PKG_VERSION"));
    let info = info.set_tcp_settings(tcp).set_redis_settings(settings);
    redis::Client::open(info).map_err(RedisError::Url)
}
