//! Addresses of one client.

use std::net::{IpAddr, Ipv6Addr};

/// The network that one client of IPv6 usually has.
pub fn subnet(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !(u128::MAX >> 64)))
        }
    }
}
