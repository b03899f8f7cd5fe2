//! URLs of servers, with user and password.

use super::reader::{Problems, Reader};

/// How to write reserved characters of a user or password in a URL.
pub const ENCODE: &str = "in a user or password write `@` as %40, `#` as %23, `/` as %2F, `?` as %3F, `:` as %3A and `%` as %25";

/// Refuses a URL with an unencoded `/` or `#` in its password: the password would end there and another server
/// would be contacted.
pub(super) fn without_stray_at(
    section: &Reader,
    url: Option<String>,
    p: &mut Problems,
) -> Option<String> {
    let url = url?;
    let (scheme, rest) = url.split_once("://")?;
    let behind_host = rest.find(['/', '?', '#']).map_or("", |end| &rest[end..]);
    // `@` is allowed in a query: `?ssl-ca=/a@b.pem`.
    let query = behind_host.find('?').filter(|_| !behind_host.contains('#'));
    let path = query.map_or(behind_host, |query| &behind_host[..query]);
    if scheme.contains("unix") || !path.contains('@') {
        return Some(url);
    }
    p.add(
        &section.at("url"),
        format!("has an `@` behind the host: {ENCODE}"),
    );
    None
}
