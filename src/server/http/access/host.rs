//! The check of `Host`.
//!
//! A page of another site can have its own name resolve to this machine (DNS rebinding), and its requests then look like
//! those of the dashboard. They differ in their `Host`, which is a name that the daemon does not have.

use std::net::{IpAddr, Ipv6Addr};

use axum::http::{HeaderMap, Uri, header};

use crate::http::problem::{Problem, ProblemKind};
use lapsed::config::HttpConfig;

/// Refuses a request for a host that this daemon is not.
pub(super) fn check(uri: &Uri, headers: &HeaderMap, config: &HttpConfig) -> Result<(), Problem> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().map(|host| host.to_str().unwrap_or_default());
    if hosts.next().is_some() {
        return Err(Problem::invalid("expected one `Host`"));
    }
    let asked = [host, uri.authority().map(|authority| authority.as_str())];
    match asked
        .into_iter()
        .flatten()
        .find(|host| !is_ours(host, config))
    {
        None => Ok(()),
        Some(_) => Err(Problem::of(
            ProblemKind::UnknownHost,
            "expected `localhost`, an address, or a name in `http.hosts`, in the header `Host`",
        )),
    }
}

pub(super) fn is_ours(host: &str, config: &HttpConfig) -> bool {
    // Programs on other machines need a token, which a page of another site does not have.
    let open = config.hosts.is_empty()
        && config
            .listen
            .is_some_and(|listen| !listen.ip().is_loopback());
    let name = without_port(host).to_ascii_lowercase();
    let name = name.strip_suffix('.').unwrap_or(&name);
    open || is_address(name)
        || name == "localhost"
        || name.ends_with(".localhost")
        || config.hosts.iter().any(|host| host == name)
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// True for an address. No name server can make one of them point elsewhere.
fn is_address(name: &str) -> bool {
    let in_brackets = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    match in_brackets {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => matches!(name.parse(), Ok(IpAddr::V4(_))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapsed::Config;

    #[test]
    fn only_our_own_hosts_are_ours() {
        let config = Config::from_toml("http.hosts = 'Lapsed.example.com'").unwrap();
        for ours in [
            "localhost",
            "localhost:8787",
            "LOCALHOST.",
            "a.localhost:1",
            "127.0.0.1:8787",
            "10.0.0.1",
            "[::1]:8787",
            "[::1]",
            "lapsed.example.com",
            "LAPSED.example.com:443",
        ] {
            assert!(is_ours(ours, &config.http), "{ours}");
        }
        for other in [
            "",
            "evil.example",
            "evil.example:8787",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "lapsed.example.com.evil.example",
            "evillapsed.example.com",
            "localhost@evil.example",
            "[::1].evil.example",
            "::1",
            "127.0.0.1:8787:evil.example",
        ] {
            assert!(!is_ours(other, &config.http), "{other}");
        }
    }

    #[test]
    fn off_loopback_any_host_is_ours_unless_there_are_names() {
        let open = "http.listen = '0.0.0.0:8787'\nhttp.tokens = ['0123456789abcdef']";
        let config = Config::from_toml(open).unwrap();
        assert!(is_ours("lapsed.internal", &config.http));
        let config = Config::from_toml(&format!("{open}\nhttp.hosts = 'a.example'")).unwrap();
        assert!(!is_ours("lapsed.internal", &config.http));
        assert!(is_ours("10.0.0.1:8787", &config.http));
    }
}
