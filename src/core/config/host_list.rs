//! What URLs of several servers have in common.

/// The parts of `scheme://[user:password@]host[:port],..[/path]`.
pub(super) struct HostList<'a> {
    /// The scheme of the URL of one server.
    pub(super) scheme: &'static str,
    /// `user:password@`, or nothing.
    pub(super) user_info: String,
    /// The servers, at least one.
    pub(super) hosts: Vec<&'a str>,
    /// The text behind the first slash, if there is one.
    pub(super) path: Option<&'a str>,
}

/// A scheme of several servers, with `://`, and that of one of them.
pub(super) type Schemes = [(&'static str, &'static str); 2];

/// True if the text has one of these schemes.
pub(super) fn has_scheme(text: &str, schemes: &Schemes) -> bool {
    schemes.iter().any(|(scheme, _)| text.starts_with(scheme))
}

impl<'a> HostList<'a> {
    /// Splits a URL without a query. `None` if it has another scheme.
    pub(super) fn split(text: &'a str, schemes: &Schemes) -> Option<Self> {
        let (rest, scheme) = schemes
            .iter()
            .find_map(|(prefix, scheme)| Some((text.strip_prefix(prefix)?, *scheme)))?;
        let (authority, path) = match rest.split_once('/') {
            Some((authority, path)) => (authority, Some(path)),
            None => (rest, None),
        };
        let (user_info, hosts) = match authority.rsplit_once('@') {
            Some((user_info, hosts)) => (format!("{user_info}@"), hosts),
            None => (String::new(), authority),
        };
        Some(Self {
            scheme,
            user_info,
            hosts: hosts.split(',').collect(),
            path,
        })
    }
}

/// True if the text is the number of a database, or nothing.
pub(super) fn is_database(text: &str) -> bool {
    text.is_empty() || text.parse::<u16>().is_ok()
}
