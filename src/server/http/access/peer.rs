//! Client address of a request; forwarded headers count only from trusted proxies.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::http::problem::Problem;
use lapsed::config::ProxyConfig;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Headers by which a proxy shows itself.
const OF_PROXIES: [HeaderName; 13] = [
    FORWARDED_FOR,
    FORWARDED_PROTO,
    FORWARDED_HOST,
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("x-forwarded-server"),
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-original-forwarded-for"),
    HeaderName::from_static("x-client-ip"),
    HeaderName::from_static("x-envoy-external-address"),
    HeaderName::from_static("cf-connecting-ip"),
    HeaderName::from_static("true-client-ip"),
    header::FORWARDED,
    header::VIA,
];

/// Where a request comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Peer {
    /// Address of the client: of the connection, or as a trusted proxy says. `None` if it is not known.
    pub address: Option<IpAddr>,
    /// True if a trusted proxy received it over HTTPS.
    pub https: bool,
    /// True if it came through a proxy, trusted or not.
    pub through_proxy: bool,
    /// The user whom a trusted proxy has authenticated.
    pub user: Option<String>,
}

impl Peer {
    /// Reads what a trusted proxy says, and removes from `headers` what others only claim.
    ///
    /// # Errors
    /// A trusted proxy names the user more than once: one of the names may be that of the client.
    pub fn of(
        connected: Option<IpAddr>,
        headers: &mut HeaderMap,
        proxy: &ProxyConfig,
    ) -> Result<Self, Problem> {
        let through_proxy = OF_PROXIES.iter().any(|name| headers.contains_key(name));
        let connected = connected.map(|address| address.to_canonical());
        let trusted = connected.is_some_and(|address| proxy.trusts(address));
        let mut peer = Self {
            address: connected,
            https: false,
            through_proxy: through_proxy || trusted,
            user: None,
        };
        if trusted {
            peer.address = client_address(headers, proxy).or(connected);
            peer.https = last(headers, &FORWARDED_PROTO).as_deref() == Some("https");
            let host = last(headers, &FORWARDED_HOST);
            if let Some(host) = host.and_then(|host| HeaderValue::try_from(host).ok()) {
                headers.insert(header::HOST, host);
            }
            if let Some(name) = &proxy.user_header {
                peer.user = user(headers, name)?;
            }
        }
        for name in &OF_PROXIES {
            headers.remove(name);
        }
        if let Some(name) = &proxy.user_header {
            headers.remove(name);
        }
        Ok(peer)
    }

    /// True if the request came from this machine, and through no proxy.
    pub fn is_local(&self) -> bool {
        !self.through_proxy && self.address.is_none_or(|address| address.is_loopback())
    }

    /// The address as a text; empty if it is not known.
    pub fn address_text(&self) -> String {
        self.address
            .map_or_else(String::new, |address| address.to_string())
    }
}

/// Finds the client: the last address that is not that of a trusted proxy. Those before it may be made up.
fn client_address(headers: &HeaderMap, proxy: &ProxyConfig) -> Option<IpAddr> {
    let values = headers.get_all(FORWARDED_FOR).iter();
    let values: Vec<&str> = values.filter_map(|value| value.to_str().ok()).collect();
    let list = values.join(",");
    let mut found = None;
    for text in list.rsplit(',') {
        let Ok(address) = text.trim().parse::<IpAddr>() else {
            break;
        };
        found = Some(address.to_canonical());
        if !proxy.trusts(address) {
            break;
        }
    }
    found
}

/// The last value of a header: that of the nearest proxy.
fn last(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let value = headers.get_all(name).iter().next_back()?.to_str().ok()?;
    let last = value.rsplit(',').next().unwrap_or_default().trim();
    Some(last.to_ascii_lowercase())
}

fn user(headers: &HeaderMap, name: &str) -> Result<Option<String>, Problem> {
    let mut names = headers.get_all(name).iter();
    let (Some(user), None) = (names.next(), names.next()) else {
        return match headers.contains_key(name) {
            true => Err(Problem::invalid(format!(
                "the proxy names the user twice in `{name}`: let it replace the header of the client"
            ))),
            false => Ok(None),
        };
    };
    let user = std::str::from_utf8(user.as_bytes()).unwrap_or_default();
    if user.contains([',', ' ', '\t']) {
        return Err(Problem::invalid(format!(
            "expected one name without commas and spaces in `{name}`: a proxy that adds its value to that of the client names two"
        )));
    }
    let is_name = !user.is_empty() && user.len() <= 256 && !user.contains(char::is_control);
    Ok(is_name.then(|| user.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapsed::Config;

    fn proxy() -> ProxyConfig {
        let text = "http.proxy = { networks = ['10.0.0.0/8'], user_header = 'X-User' }\n\
             [[http.clients]]\nname = 'people'\nuser = '*'\nscopes = 'read'";
        Config::from_toml(text).unwrap().http.proxy
    }

    fn headers(of: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in of {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn peer(connected: &str, of: &[(&'static str, &'static str)]) -> (Peer, HeaderMap) {
        let mut headers = headers(of);
        let peer = Peer::of(Some(connected.parse().unwrap()), &mut headers, &proxy()).unwrap();
        (peer, headers)
    }

    const CLAIMS: [(&str, &str); 5] = [
        ("x-forwarded-for", "1.2.3.4"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "lapsed.example.com"),
        ("x-user", "root"),
        ("host", "other"),
    ];

    #[test]
    fn what_another_than_the_proxy_says_is_removed_and_not_believed() {
        for connected in ["11.0.0.1", "127.0.0.1", "::1", "2001:db8::1"] {
            let (peer, headers) = peer(connected, &CLAIMS);
            assert_eq!(peer.address, Some(connected.parse().unwrap()));
            assert!(!peer.https && peer.through_proxy && peer.user.is_none());
            assert_eq!(headers.len(), 1);
            assert_eq!(headers["host"], "other");
        }
    }

    #[test]
    fn a_trusted_proxy_is_believed() {
        let (peer, headers) = peer("::ffff:10.0.0.1", &CLAIMS);
        assert_eq!(peer.address_text(), "1.2.3.4");
        assert!(peer.https && peer.through_proxy && !peer.is_local());
        assert_eq!(peer.user.as_deref(), Some("root"));
        assert_eq!(headers["host"], "lapsed.example.com");
        assert_eq!(headers.len(), 1);
    }

    #[test]
    fn the_client_is_the_last_address_that_is_no_proxy() {
        let of = |list: &'static str| {
            peer("10.0.0.1", &[("x-forwarded-for", list)])
                .0
                .address_text()
        };
        assert_eq!(of("6.6.6.6, 1.2.3.4"), "1.2.3.4", "the first is made up");
        assert_eq!(of("6.6.6.6, 1.2.3.4, 10.0.0.9"), "1.2.3.4");
        assert_eq!(of("1.2.3.4, unknown, 10.0.0.9"), "10.0.0.9");
        assert_eq!(of("10.0.0.8"), "10.0.0.8");
        assert_eq!(of("nonsense"), "10.0.0.1");
        let twice = [
            ("x-forwarded-for", "6.6.6.6"),
            ("x-forwarded-for", "1.2.3.4"),
        ];
        assert_eq!(peer("10.0.0.1", &twice).0.address_text(), "1.2.3.4");
    }

    #[test]
    fn a_user_who_is_named_twice_is_refused() {
        let mut headers = headers(&[("x-user", "root"), ("x-user", "guest")]);
        let connected = Some("10.0.0.1".parse().unwrap());
        assert!(Peer::of(connected, &mut headers, &proxy()).is_err());
    }

    #[test]
    fn a_user_that_a_proxy_joins_to_the_one_of_the_client_is_refused() {
        for joined in ["a@example.com, root@example.com", "a b", "a,b"] {
            let mut headers = headers(&[]);
            headers.append("x-user", HeaderValue::from_static(joined));
            let connected = Some("10.0.0.1".parse().unwrap());
            assert!(
                Peer::of(connected, &mut headers, &proxy()).is_err(),
                "{joined}"
            );
        }
        let (peer, _) = peer("10.0.0.1", &[("x-user", "a@example.com")]);
        assert_eq!(peer.user.as_deref(), Some("a@example.com"));
    }

    #[test]
    fn a_request_with_any_header_of_a_proxy_is_not_local() {
        for name in [
            "cf-connecting-ip",
            "true-client-ip",
            "x-client-ip",
            "x-forwarded-port",
        ] {
            let (peer, _) = peer("127.0.0.1", &[(name, "1")]);
            assert!(!peer.is_local(), "{name}");
        }
    }
}
