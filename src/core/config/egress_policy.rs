//! Egress policy of webhooks: the addresses that requests may be sent to.
//!
//! A webhook may reach the public internet, and other addresses only if its route allows them. This protects what only
//! the daemon can reach (the port of the database, the metadata service of a cloud) from requests made through tasks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use url::Host;

/// Hosts and networks that are allowed besides the public internet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct EgressPolicy {
    networks: Vec<IpNet>,
    hosts: Vec<String>,
}

impl EgressPolicy {
    /// Parses addresses, networks and host names.
    ///
    /// # Errors
    /// One message for each entry that is none of these.
    pub fn parse(entries: &[String]) -> Result<Self, Vec<String>> {
        let (mut policy, mut problems) = (Self::default(), Vec::new());
        for entry in entries {
            if let Ok(network) = entry.parse::<IpNet>() {
                policy.networks.push(network.trunc());
                continue;
            }
            let address = entry.parse::<IpAddr>().ok();
            match address.map_or_else(|| Host::parse(entry), |ip| Ok(host_of(ip))) {
                Ok(Host::Ipv4(ip)) => policy.networks.push(IpNet::from(IpAddr::V4(ip))),
                Ok(Host::Ipv6(ip)) => policy.networks.push(IpNet::from(IpAddr::V6(ip))),
                Ok(Host::Domain(name)) if !name.contains('*') => {
                    policy.hosts.push(name.trim_end_matches('.').to_owned());
                }
                Ok(Host::Domain(_)) | Err(_) => problems.push(format!(
                    "`{}` is none of an address (`127.0.0.1`), a network (`10.0.0.0/8`), the name of a host (`hooks.internal`)",
                    entry.escape_debug()
                )),
            }
        }
        match problems.is_empty() {
            true => Ok(policy),
            false => Err(problems),
        }
    }

    /// Whether this host name is allowed, whatever address it resolves to.
    pub fn names(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.');
        self.hosts
            .iter()
            .any(|name| name.eq_ignore_ascii_case(host))
    }

    /// Returns the kind of a refused address, or `None` if connecting to it is allowed.
    pub fn refuses(&self, address: IpAddr) -> Option<&'static str> {
        // An IPv4-mapped address reaches the same host.
        let canonical = address.to_canonical();
        let named = |ip: &IpAddr| self.networks.iter().any(|network| network.contains(ip));
        if named(&address) || named(&canonical) {
            return None;
        }
        match canonical {
            IpAddr::V4(ip) => kind_v4(ip),
            IpAddr::V6(ip) => kind_v6(ip),
        }
    }

    /// Returns why the host of a URL can only lead to refused addresses, or `None`.
    pub fn refuses_host(&self, host: &Host<&str>) -> Option<&'static str> {
        match *host {
            Host::Ipv4(ip) => self.refuses(IpAddr::V4(ip)),
            Host::Ipv6(ip) => self.refuses(IpAddr::V6(ip)),
            Host::Domain(name) => {
                let bare = name.trim_end_matches('.').to_ascii_lowercase();
                let local = bare == "localhost" || bare.ends_with(".localhost");
                let loopbacks = [
                    IpAddr::from(Ipv4Addr::LOCALHOST),
                    IpAddr::from(Ipv6Addr::LOCALHOST),
                ];
                let open =
                    self.names(&bare) || loopbacks.into_iter().any(|ip| self.refuses(ip).is_none());
                (local && !open).then_some("a loopback")
            }
        }
    }
}

fn host_of(ip: IpAddr) -> Host {
    match ip {
        IpAddr::V4(ip) => Host::Ipv4(ip),
        IpAddr::V6(ip) => Host::Ipv6(ip),
    }
}

const fn v4(a: u8, b: u8, c: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, 0), prefix)
}

const fn v6(a: u16, b: u16, c: u16, prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), prefix)
}

/// IPv4 networks that are not public: the registry of special-purpose addresses (RFC 6890 and later).
const NOT_PUBLIC_V4: [(Ipv4Net, &str); 16] = [
    (v4(0, 0, 0, 8), "an unspecified"),
    (v4(10, 0, 0, 8), "a private"),
    (v4(100, 64, 0, 10), "a carrier's shared"),
    (v4(127, 0, 0, 8), "a loopback"),
    // Azure's host agent, which hands out credentials to its own machine.
    (
        Ipv4Net::new_assert(Ipv4Addr::new(168, 63, 129, 16), 32),
        "a cloud provider's host",
    ),
    (v4(169, 254, 0, 16), "a link-local"),
    (v4(172, 16, 0, 12), "a private"),
    (v4(192, 0, 0, 24), "a reserved"),
    (v4(192, 0, 2, 24), "a documentation"),
    (v4(192, 88, 99, 24), "a 6to4 relay"),
    (v4(192, 168, 0, 16), "a private"),
    (v4(198, 18, 0, 15), "a benchmarking"),
    (v4(198, 51, 100, 24), "a documentation"),
    (v4(203, 0, 113, 24), "a documentation"),
    (v4(224, 0, 0, 4), "a multicast"),
    (v4(240, 0, 0, 4), "a reserved"),
];

/// IPv6 networks with a name of their own. Of the others, only `2000::/3` is public.
const NOT_PUBLIC_V6: [(Ipv6Net, &str); 8] = [
    (v6(0x64, 0xff9b, 1, 48), "a local NAT64"),
    (v6(0xfc00, 0, 0, 7), "a private"),
    (v6(0xfe80, 0, 0, 10), "a link-local"),
    (v6(0xff00, 0, 0, 8), "a multicast"),
    // Teredo, ORCHID and other experiments.
    (v6(0x2001, 0, 0, 23), "a reserved"),
    (v6(0x2001, 0xdb8, 0, 32), "a documentation"),
    // 6to4 embeds an arbitrary IPv4 address.
    (v6(0x2002, 0, 0, 16), "a 6to4"),
    (v6(0x3fff, 0, 0, 20), "a documentation"),
];

const PUBLIC_V6: Ipv6Net = v6(0x2000, 0, 0, 3);

/// NAT64 prefix: the embedded IPv4 address decides.
const NAT64: Ipv6Net = v6(0x64, 0xff9b, 0, 96);

fn kind_v4(ip: Ipv4Addr) -> Option<&'static str> {
    let fits = NOT_PUBLIC_V4
        .iter()
        .find(|(network, _)| network.contains(&ip));
    fits.map(|(_, kind)| *kind)
}

fn kind_v6(ip: Ipv6Addr) -> Option<&'static str> {
    if ip.is_unspecified() {
        return Some("an unspecified");
    }
    if ip.is_loopback() {
        return Some("a loopback");
    }
    if NAT64.contains(&ip) {
        let [.., a, b, c, d] = ip.octets();
        return kind_v4(Ipv4Addr::new(a, b, c, d));
    }
    let fits = NOT_PUBLIC_V6
        .iter()
        .find(|(network, _)| network.contains(&ip));
    let other = (!PUBLIC_V6.contains(&ip)).then_some("a reserved");
    fits.map(|(_, kind)| *kind).or(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn egress(entries: &[&str]) -> EgressPolicy {
        let entries: Vec<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
        EgressPolicy::parse(&entries).unwrap()
    }

    #[test]
    fn only_the_public_internet_is_reached_without_being_named() {
        let told = [
            ("0.0.0.0", Some("an unspecified")),
            ("0.1.2.3", Some("an unspecified")),
            ("10.255.255.255", Some("a private")),
            ("100.64.0.1", Some("a carrier's shared")),
            ("100.127.255.255", Some("a carrier's shared")),
            ("127.0.0.1", Some("a loopback")),
            ("127.255.255.254", Some("a loopback")),
            ("168.63.129.16", Some("a cloud provider's host")),
            ("::ffff:168.63.129.16", Some("a cloud provider's host")),
            ("168.63.129.15", None),
            ("169.254.169.254", Some("a link-local")),
            ("172.16.0.1", Some("a private")),
            ("172.31.255.255", Some("a private")),
            ("192.0.0.8", Some("a reserved")),
            ("192.0.2.1", Some("a documentation")),
            ("192.88.99.1", Some("a 6to4 relay")),
            ("192.168.1.1", Some("a private")),
            ("198.19.0.1", Some("a benchmarking")),
            ("198.51.100.1", Some("a documentation")),
            ("203.0.113.1", Some("a documentation")),
            ("224.0.0.1", Some("a multicast")),
            ("239.1.1.1", Some("a multicast")),
            ("240.0.0.1", Some("a reserved")),
            ("255.255.255.255", Some("a reserved")),
            ("::", Some("an unspecified")),
            ("::1", Some("a loopback")),
            // IPv4 in its several disguises: mapped, compatible, NAT64, 6to4, Teredo.
            ("::ffff:127.0.0.1", Some("a loopback")),
            ("::ffff:10.0.0.1", Some("a private")),
            ("::127.0.0.1", Some("a reserved")),
            ("64:ff9b::10.0.0.1", Some("a private")),
            ("64:ff9b::169.254.169.254", Some("a link-local")),
            ("64:ff9b:1::10.0.0.1", Some("a local NAT64")),
            ("2002:7f00:1::", Some("a 6to4")),
            ("2001::1", Some("a reserved")),
            ("fc00::1", Some("a private")),
            ("fd12:3456::1", Some("a private")),
            ("fe80::1", Some("a link-local")),
            ("fec0::1", Some("a reserved")),
            ("ff02::1", Some("a multicast")),
            ("2001:db8::1", Some("a documentation")),
            ("3fff::1", Some("a documentation")),
            ("5f00::1", Some("a reserved")),
            ("1.1.1.1", None),
            ("9.255.255.255", None),
            ("11.0.0.0", None),
            ("100.63.255.255", None),
            ("100.128.0.0", None),
            ("172.15.255.255", None),
            ("172.32.0.0", None),
            ("223.255.255.255", None),
            ("::ffff:8.8.8.8", None),
            ("64:ff9b::8.8.8.8", None),
            ("2606:4700::1111", None),
            ("2a00:1450::1", None),
        ];
        for (address, kind) in told {
            assert_eq!(
                EgressPolicy::default().refuses(address.parse().unwrap()),
                kind,
                "{address}"
            );
        }
    }

    #[test]
    fn what_is_named_is_reached_and_nothing_beside_it() {
        let egress = egress(&["127.0.0.1", "10.1.0.0/16", "fd00::/8", "Hooks.Internal."]);
        let told = [
            ("127.0.0.1", true),
            ("::ffff:127.0.0.1", true),
            ("127.0.0.2", false),
            ("10.1.255.1", true),
            ("10.2.0.1", false),
            ("fd00::1", true),
            ("fe80::1", false),
        ];
        for (address, reached) in told {
            assert_eq!(
                egress.refuses(address.parse().unwrap()).is_none(),
                reached,
                "{address}"
            );
        }
        assert!(egress.names("hooks.internal") && egress.names("HOOKS.internal."));
        assert!(!egress.names("internal") && !egress.names("x.hooks.internal"));
    }

    #[test]
    fn a_host_that_can_only_be_this_machine_is_known_by_its_name() {
        let local =
            |egress: &EgressPolicy, name| egress.refuses_host(&Host::Domain(name)).is_some();
        for name in ["localhost", "LOCALHOST.", "a.localhost"] {
            assert!(local(&EgressPolicy::default(), name), "{name}");
        }
        assert!(!local(&EgressPolicy::default(), "shop.example"));
        for entry in ["localhost", "127.0.0.0/8", "::1"] {
            assert!(!local(&egress(&[entry]), "localhost"), "{entry}");
        }
    }

    #[test]
    fn an_entry_that_is_nothing_is_named() {
        let entries = ["10.0.0.0/33", "*.internal", "http://x", "10.0.0.1:80"].map(str::to_owned);
        let problems = EgressPolicy::parse(&entries).unwrap_err();
        assert_eq!(problems.len(), 4, "{problems:?}");
        assert!(
            problems[0].starts_with("`10.0.0.0/33` is none of an address"),
            "{problems:?}"
        );
    }
}
