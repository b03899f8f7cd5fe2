//! `[resp]`: the RESP server.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;

use super::access::{exposed, globs, name, scopes};
use super::reader::{Problems, Reader};
use super::rules::{any, no_key, section, within};
use crate::access::{AccessScope, Masks, Principal, Proof};

/// The address to listen on. A Unix socket has a setting of its own.
fn listen(section: &mut Reader, key: &str, p: &mut Problems) -> Option<Option<SocketAddr>> {
    let text = section.table.get(key).and_then(|value| value.as_str());
    if let Some(path) = text.and_then(|text| text.strip_prefix("unix:")) {
        let path = path.strip_prefix("//").unwrap_or(path).to_owned();
        section.remove(key);
        let problem = format!(
            "expected `127.0.0.1:6380` or \"\": the path of a Unix socket, `{path}`, belongs in `{}`",
            section.at("socket")
        );
        p.add(&section.at(key), problem);
        return None;
    }
    section.address(key, "127.0.0.1:6380", p)
}

/// Prefix of a password hash, as `lapsed hash-password` prints it.
const HASH_PREFIX: &str = "$argon2";

/// Name of the user of `resp.password`.
const DEFAULT_USER: &str = "default";

section! {
    /// `[resp]`
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct RespConfig(redis_prefix: &str, masks: &Masks) {
        /// Address to listen on; `None`: the RESP server is closed.
        pub listen: Option<SocketAddr> = listen,
        /// Unix socket to listen on besides; `None`: none.
        pub socket: Option<RespSocket> = socket,
        /// Users; none: every client may do everything, on a loopback address and the Unix socket only.
        pub users: Vec<Arc<Principal>> = users(exposed(listen), masks),
        /// Which clients are served without TLS, if there is no certificate.
        pub plaintext: Plaintext = any,
        /// Certificate and key; `None`: no TLS.
        pub tls: Option<RespTls> = tls(exposed(listen).filter(|_| plaintext == Some(Plaintext::Loopback))),
        /// Maximum number of connections.
        pub max_connections: usize = within(1..=1_000_000),
        /// `redis.key_prefix`: what clients put before each key. A change is one of `[redis]`.
        pub key_prefix: String = no_key(redis_prefix.to_owned()); live,
        /// `[access]`: what is not shown.
        pub masks: Masks = no_key(masks.clone()),
    }
}

/// Clients that are served without TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Plaintext {
    /// Those of this machine.
    Loopback,
    /// Also those whose address is of a private network, such as that of containers on one machine.
    PrivateNetwork,
}

impl Plaintext {
    /// True if a client with this address is served without TLS.
    pub fn serves(self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let of_network = || match address {
            // 100.64.0.0/10 is that of a carrier; some clusters give it to pods.
            IpAddr::V4(ip) => {
                let [a, b, ..] = ip.octets();
                ip.is_private() || ip.is_link_local() || (a, b & 0xc0) == (100, 64)
            }
            IpAddr::V6(ip) => ip.is_unique_local() || ip.is_unicast_link_local(),
        };
        address.is_loopback() || self == Self::PrivateNetwork && of_network()
    }
}

/// A Unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RespSocket {
    /// Its file.
    pub path: PathBuf,
    /// Permissions of the file: who may write to it may connect.
    pub mode: u32,
}

/// Longest path of a Unix socket, in bytes: what Linux allows.
const SOCKET_BYTES_MAX: usize = 107;

/// Files in PEM format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RespTls {
    /// Certificate chain.
    pub cert: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// `socket` and `socket_mode`
fn socket(section: &mut Reader, _: &str, p: &mut Problems) -> Option<Option<RespSocket>> {
    let path: Option<String> = section.take("socket", p);
    let mode: Option<String> = section.take("socket_mode", p);
    let mode = mode.and_then(|text| {
        let mode = u32::from_str_radix(&text, 8).ok();
        let mode = mode.filter(|mode| *mode <= 0o777 && text.len() <= 4);
        let expected = || format!("expected permissions such as \"0660\", found \"{text}\"");
        section.parsed("socket_mode", mode.ok_or_else(expected), p)
    });
    let path = match path? {
        none if none.is_empty() => None,
        path if path.starts_with('/') && path.len() <= SOCKET_BYTES_MAX => Some(path.into()),
        path => {
            let expected = format!(
                "expected \"\" or a path from `/` of at most {SOCKET_BYTES_MAX} bytes, found \"{path}\""
            );
            p.add(&section.at("socket"), expected);
            return None;
        }
    };
    let mode = mode?;
    Some(path.map(|path| RespSocket { path, mode }))
}

/// `password` and `[[resp.users]]`
fn users(
    exposed: Option<SocketAddr>,
    masks: &Masks,
) -> impl FnOnce(&mut Reader, &str, &mut Problems) -> Option<Vec<Arc<Principal>>> {
    move |section, key, p| {
        let password: Option<String> = section.take("password", p);
        let mut users = section.named_entries(key, p, user, |user| &user.name);
        let path = section.at("password");
        if let Some(password) = password.filter(|password| !password.is_empty())
            && is_hash(&password, &path, p)
        {
            let default = Principal {
                proof: Proof::Password(password),
                ..Principal::anonymous(DEFAULT_USER, Masks::default())
            };
            users.insert(0, default);
        }
        if let (Some(address), true) = (exposed, users.is_empty()) {
            let expected = format!(
                "expected one, or `[[resp.users]]`, because `{address}` is not a loopback address"
            );
            p.add(&path, expected);
        }
        for user in &mut users {
            user.masks = masks.clone();
        }
        Some(users.into_iter().map(Arc::new).collect())
    }
}

/// `tls_cert` and `tls_key`
fn tls(
    exposed: Option<SocketAddr>,
) -> impl FnOnce(&mut Reader, &str, &mut Problems) -> Option<Option<RespTls>> {
    move |section, _, p| {
        let cert: Option<String> = section.take("tls_cert", p);
        let key: Option<String> = section.take("tls_key", p);
        let (cert, key) = (cert?, key?);
        let problem = match (cert.is_empty(), key.is_empty(), exposed) {
            (false, false, _) => {
                let (cert, key) = (cert.into(), key.into());
                return Some(Some(RespTls { cert, key }));
            }
            (true, true, None) => return Some(None),
            (true, true, Some(address)) => (
                "tls_cert",
                format!(
                    "expected a certificate, because `{address}` is not a loopback address; for clients in private networks alone, \
                     `resp.plaintext = \"private-network\"` does without"
                ),
            ),
            (true, false, _) => (
                "tls_cert",
                "expected a file, because `resp.tls_key` is set".to_owned(),
            ),
            (false, true, _) => (
                "tls_key",
                "expected a file, because `resp.tls_cert` is set".to_owned(),
            ),
        };
        p.add(&section.at(problem.0), problem.1);
        None
    }
}

/// `[[resp.users]]`
fn user(mut section: Reader, p: &mut Problems) -> Option<Principal> {
    let name = name(&mut section, p);
    let password = section.text_or_file("password", p);
    let path = section.at("password");
    if password == Some(None) {
        p.add(&path, "is missing".to_owned());
    }
    let password = password.flatten().filter(|hash| is_hash(hash, &path, p));
    let scopes = scopes(&mut section, p).map(|scopes| match scopes.is_empty() {
        true => vec![AccessScope::Admin],
        false => scopes,
    });
    let classes = globs(&mut section, "classes", p);
    section.done(p);
    Some(Principal {
        name: name?,
        proof: Proof::Password(password?),
        scopes: scopes?,
        classes: classes?,
        masks: Masks::default(),
    })
}

fn is_hash(text: &str, path: &str, p: &mut Problems) -> bool {
    let fits = text.starts_with(HASH_PREFIX);
    if !fits {
        // The value may be a password.
        let expected = "expected the hash of a password, which `lapsed hash-password` prints";
        p.add(path, expected.to_owned());
    }
    fits
}
