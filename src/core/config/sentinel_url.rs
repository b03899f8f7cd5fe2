//! URLs of a Redis master that Redis Sentinel names.

use super::host_list::{HostList, Schemes, has_scheme, is_database};

const SCHEMES: Schemes = [
    ("redis+sentinel://", "redis"),
    ("rediss+sentinel://", "rediss"),
];

/// What the text of a URL must be, for errors.
pub(super) const EXPECTED: &str = "expected redis+sentinel://host[:port],../master name[/database][?sentinel_username=..&sentinel_password=..]";

/// The parts of `redis+sentinel://[user:password@]host[:port],../master name[/database]`. With `rediss+sentinel://`, the
/// sentinels and the servers are reached through TLS. The query may have `sentinel_username` and `sentinel_password`, for
/// sentinels that have credentials of their own.
#[derive(Clone, PartialEq, Eq)]
pub struct SentinelUrl {
    /// Name of the master, as the sentinels know it.
    pub master: String,
    /// A URL with the credentials and the database of the master. Its host is that of the first sentinel.
    pub server: String,
    /// The URL of each sentinel.
    pub sentinels: Vec<String>,
}

impl SentinelUrl {
    /// True if the scheme is that of sentinels.
    pub fn is_one(text: &str) -> bool {
        has_scheme(text, &SCHEMES)
    }

    /// Parses a URL. `None` if it has another scheme, or a part that is missing or wrong.
    pub fn parse(text: &str) -> Option<Self> {
        let (text, query) = text.split_once('?').unwrap_or((text, ""));
        let HostList {
            scheme,
            user_info,
            hosts,
            path,
        } = HostList::split(text, &SCHEMES)?;
        let path = path?;
        let (master, database) = path.split_once('/').unwrap_or((path, ""));
        if master.is_empty() || !is_database(database) {
            return None;
        }
        let credentials = credentials(query)?;
        let at = |user_info: &str, host: &str, database: &str| {
            let port = if has_port(host) { "" } else { ":26379" };
            let url = format!("{scheme}://{user_info}{host}{port}/{database}");
            let is_sound = url::Url::parse(&url).is_ok_and(|url| url.has_host());
            is_sound.then_some(url)
        };
        let sentinels: Option<Vec<String>> = hosts
            .iter()
            .map(|host| at(&credentials, host, ""))
            .collect();
        Some(Self {
            master: master.to_owned(),
            server: at(&user_info, hosts.first()?, database)?,
            sentinels: sentinels?,
        })
    }
}

/// The user part of the URL of a sentinel, from the query.
fn credentials(query: &str) -> Option<String> {
    let (mut username, mut password) = ("", "");
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=')? {
            ("sentinel_username", value) => username = value,
            ("sentinel_password", value) => password = value,
            _ => return None,
        }
    }
    Some(match (username, password) {
        ("", "") => String::new(),
        (username, password) => format!("{username}:{password}@"),
    })
}

/// The colons of an IPv6 address are in brackets.
fn has_port(host: &str) -> bool {
    host.rsplit_once(']')
        .map_or(host, |(_, behind)| behind)
        .contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_sentinels_master_and_credentials() {
        let url = SentinelUrl::parse(
            "redis+sentinel://app:p%40ss@s1:7000,[::1],s3/mymaster/2?sentinel_username=w&sentinel_password=s",
        )
        .unwrap();
        assert_eq!(url.master, "mymaster");
        assert_eq!(url.server, "redis://app:p%40ss@s1:7000/2");
        let sentinels = [
            "redis://w:s@s1:7000/",
            "redis://w:s@[::1]:26379/",
            "redis://w:s@s3:26379/",
        ];
        assert_eq!(url.sentinels, sentinels);
        let tls = SentinelUrl::parse("rediss+sentinel://s1/m").unwrap();
        assert_eq!(
            (&tls.server[..], &tls.sentinels[0][..]),
            ("rediss://s1:26379/", "rediss://s1:26379/")
        );
    }

    #[test]
    fn a_url_with_a_wrong_part_is_refused() {
        for text in [
            "redis://s1:26379/0",
            "redis+sentinel://s1:26379",
            "redis+sentinel://s1:26379/",
            "redis+sentinel:///mymaster/0",
            "redis+sentinel://s1,,s2/mymaster",
            "redis+sentinel://s1:port/mymaster",
            "redis+sentinel://s1/mymaster/x",
            "redis+sentinel://s1/mymaster/0/1",
            "redis+sentinel://s1/mymaster?db=1",
        ] {
            assert!(SentinelUrl::parse(text).is_none(), "{text}");
        }
    }
}
