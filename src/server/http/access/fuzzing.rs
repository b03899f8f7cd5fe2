//! What fuzz targets call: who a request is from, and which host it is for.

use std::net::IpAddr;
use std::sync::LazyLock;

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use super::host::is_ours;
use super::peer::Peer;
use lapsed_core::config::Config;

/// The proxies of 10.0.0.0/8 are trusted, and name the user in `x-user`. The daemon has the name `lapsed.example.com`.
static CONFIG: LazyLock<Config> = LazyLock::new(|| {
    let text = "http.proxy = { networks = ['10.0.0.0/8'], user_header = 'X-User' }\n\
    http.hosts = 'lapsed.example.com'\n\
    [[http.clients]]\nname = 'people'\nuser = '*'\nscopes = 'read'";
    Config::from_toml(text).expect("a test reads it")
});

/// Where a request comes from.
#[derive(Debug, PartialEq, Eq)]
pub struct ReadPeer {
    /// The address of the client.
    pub address: Option<IpAddr>,
    /// The user whom a proxy names.
    pub user: Option<String>,
    /// True if it comes from this machine, through no proxy.
    pub is_local: bool,
    /// True if a proxy received it over HTTPS.
    pub https: bool,
}

/// Reads where a request comes from, and removes from the headers what is not to be believed.
///
/// # Errors
/// The proxy names the user twice.
pub fn read_peer(connected: IpAddr, headers: &mut HeaderMap) -> Result<ReadPeer, String> {
    let peer = Peer::of(Some(connected), headers, &CONFIG.http.proxy);
    let peer = peer.map_err(|problem| problem.detail().to_owned())?;
    Ok(ReadPeer {
        is_local: peer.is_local(),
        address: peer.address,
        user: peer.user,
        https: peer.https,
    })
}

/// True if a request for this host is for this daemon.
pub fn is_own_host(host: &str) -> bool {
    is_ours(host, &CONFIG.http)
}

/// A header, if these are a name and a value.
pub fn header(name: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
    Some((name, HeaderValue::from_str(value).ok()?))
}
