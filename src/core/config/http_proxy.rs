//! `[http.proxy]`: the proxies in front of the daemon, and what is believed of them.

use std::fmt;
use std::net::IpAddr;

use super::reader::{Problems, Reader};
use super::rules::section;

/// Headers that a proxy for authentication cannot use for the name of the user.
const OTHER_HEADERS: [&str; 6] = [
    "authorization",
    "cookie",
    "host",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
];

section! {
    /// `[http.proxy]`
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct ProxyConfig {
        /// Networks of the proxies whose headers are believed.
        pub networks: Vec<Network> = networks,
        /// The header in which they name the user, in lower case; `None`: they name none.
        pub user_header: Option<String> = user_header(networks.as_deref()),
    }
}

impl ProxyConfig {
    /// True if this address is that of a trusted proxy.
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.has(address))
    }
}

/// A network: an address, and how many of its bits count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Reads `10.0.0.0/8`, `fd00::/8`, or an address alone.
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            None => (text, None),
            Some((address, bits)) => (address, Some(bits)),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= most)?,
        };
        Some(Self { address, bits })
    }

    /// True if the address is in the network.
    pub fn has(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let shift = 32 - u32::from(self.bits);
                let cut = |address: u32| address.checked_shr(shift).unwrap_or(0);
                cut(own.to_bits()) == cut(other.to_bits())
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let shift = 128 - u32::from(self.bits);
                let cut = |address: u128| address.checked_shr(shift).unwrap_or(0);
                cut(own.to_bits()) == cut(other.to_bits())
            }
            _ => false,
        }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

fn networks(section: &mut Reader, key: &str, p: &mut Problems) -> Option<Vec<Network>> {
    let texts = section.texts(key, p)?;
    let networks = texts.iter().map(|text| {
        let expected = format!("`{text}` is not a network, expected such as `10.0.0.0/8`");
        Network::parse(text).ok_or(expected)
    });
    section.parsed(key, networks.collect(), p)
}

/// The header of proxies in these networks.
fn user_header(
    networks: Option<&[Network]>,
) -> impl FnOnce(&mut Reader, &str, &mut Problems) -> Option<Option<String>> {
    move |section, key, p| {
        let header: String = section.take(key, p)?;
        if header.is_empty() {
            return Some(None);
        }
        let lower = header.to_ascii_lowercase();
        let is_header = lower
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !OTHER_HEADERS.contains(&&*lower);
        if !is_header {
            let expected =
                format!("`{header}` is no header for a name, expected such as `X-Forwarded-User`");
            p.add(&section.at(key), expected);
            return None;
        }
        let path = section.at("networks");
        if networks.is_some_and(<[Network]>::is_empty) {
            p.add(
                &path,
                "expected at least one, because `http.proxy.user_header` is set",
            );
        }
        let mut networks = networks.unwrap_or_default().iter();
        if let Some(all) = networks.find(|network| network.bits == 0) {
            let expected = format!(
                "expected the networks of the proxies alone, found {all:?}: every caller could name itself a user"
            );
            p.add(&path, expected);
        }
        Some(Some(lower))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_with_its_first_bits() {
        let has = |network: &str, address: &str| {
            Network::parse(network)
                .unwrap()
                .has(address.parse().unwrap())
        };
        assert!(has("10.0.0.0/8", "10.255.0.1"));
        assert!(!has("10.0.0.0/8", "11.0.0.1"));
        assert!(has("10.0.0.0/8", "::ffff:10.0.0.1"));
        assert!(has("127.0.0.1", "127.0.0.1"));
        assert!(!has("127.0.0.1", "127.0.0.2"));
        assert!(has("0.0.0.0/0", "8.8.8.8"));
        assert!(!has("0.0.0.0/0", "::1"));
        assert!(has("fd00::/8", "fdff::1"));
        assert!(has("::1", "::1"));
        assert!(!has("fd00::/8", "10.0.0.1"));
        for refused in [
            "",
            "10.0.0.0/33",
            "host",
            "10.0.0.0/",
            "10.0.0.0/-1",
            "10.0.0/8",
        ] {
            assert_eq!(Network::parse(refused), None, "{refused}");
        }
    }
}
