//! URLs of a Redis Cluster.

use super::host_list::{HostList, Schemes, has_scheme, is_database};

const SCHEMES: Schemes = [
    ("redis+cluster://", "redis"),
    ("rediss+cluster://", "rediss"),
];

const DEFAULT_PORT: u16 = 6379;

/// What the text of a URL must be, for errors.
pub(super) const EXPECTED: &str = "expected redis+cluster://host[:port],..[/database]";

/// The parts of `redis+cluster://[user:password@]host[:port],..[/database]`. With `rediss+cluster://`, all nodes are
/// reached through TLS. The nodes that are named tell of the others.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterUrl {
    /// A URL with the credentials and the database. Its host is that of the first node.
    pub server: String,
    /// Host and port of each node that is named.
    pub nodes: Vec<(String, u16)>,
}

impl ClusterUrl {
    /// True if the scheme is that of a cluster.
    pub fn is_one(text: &str) -> bool {
        has_scheme(text, &SCHEMES)
    }

    /// Parses a URL. `None` if it has another scheme, or a part that is missing or wrong.
    pub fn parse(text: &str) -> Option<Self> {
        let HostList {
            scheme,
            user_info,
            hosts,
            path,
        } = HostList::split(text, &SCHEMES)?;
        let database = path.unwrap_or_default();
        if !is_database(database) || text.contains(['?', '#']) {
            return None;
        }
        let url = |host: &str| format!("{scheme}://{user_info}{host}/{database}");
        let node = |host: &&str| {
            let url = url::Url::parse(&url(host)).ok()?;
            let name = url.host_str().filter(|name| !name.is_empty())?;
            let name = name.trim_start_matches('[').trim_end_matches(']');
            Some((name.to_owned(), url.port().unwrap_or(DEFAULT_PORT)))
        };
        let nodes: Option<Vec<(String, u16)>> = hosts.iter().map(node).collect();
        Some(Self {
            server: url(hosts.first()?),
            nodes: nodes?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_nodes_credentials_and_a_database() {
        let url = ClusterUrl::parse("redis+cluster://app:p%40ss@n1:7000,[::1]:7001,n3").unwrap();
        assert_eq!(url.server, "redis://app:p%40ss@n1:7000/");
        let nodes = [("n1", 7000), ("::1", 7001), ("n3", 6379)];
        assert_eq!(url.nodes, nodes.map(|(host, port)| (host.to_owned(), port)));
        let tls = ClusterUrl::parse("rediss+cluster://n1/1").unwrap();
        assert_eq!(tls.server, "rediss://n1/1");
    }

    #[test]
    fn a_url_with_a_wrong_part_is_refused() {
        for text in [
            "redis://n1:7000",
            "redis+cluster://",
            "redis+cluster://n1,,n2",
            "redis+cluster://n1:port",
            "redis+cluster://n1/x",
            "redis+cluster://n1/0/1",
            "redis+cluster://n1?db=1",
        ] {
            assert!(ClusterUrl::parse(text).is_none(), "{text}");
        }
    }
}
