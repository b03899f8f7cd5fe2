//! `[resp]`: the RESP server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use super::access::{globs, name, scopes};
use super::reader::{Problems, Reader};
use crate::access::{AccessScope, Masks, Principal, Proof};

/// Prefix of a password hash, as `lapsed hash-password` prints it.
const HASH_PREFIX: &str = "$argon2";

/// Name of the user of `resp.password`.
const DEFAULT_USER: &str = "default";

/// `[resp]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RespConfig {
    /// Address to listen on; `None`: the RESP server is closed.
    pub listen: Option<SocketAddr>,
    /// Users; none: every client may do everything, on a loopback address only.
    pub users: Vec<Arc<Principal>>,
    /// Certificate and key; `None`: no TLS.
    pub tls: Option<RespTls>,
    /// Maximum number of connections.
    pub max_connections: usize,
    /// `redis.key_prefix`: what clients put before each key.
    pub key_prefix: String,
    /// `[access]`: what is not shown.
    pub masks: Masks,
}

/// Files in PEM format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RespTls {
    /// Certificate chain.
    pub cert: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

pub(super) fn resp(mut section: Reader, masks: &Masks, p: &mut Problems) -> Option<RespConfig> {
    let listen = section.address("listen", "127.0.0.1:6380", p);
    let password: Option<String> = section.take("password", p);
    let mut users = section.named_entries("users", p, user, |user| &user.name);
    if let Some(password) = password.filter(|password| !password.is_empty()) {
        let path = section.at("password");
        if is_hash(&password, &path, p) {
            let default = Principal {
                proof: Proof::Password(password),
                ..Principal::anonymous(DEFAULT_USER, Masks::default())
            };
            users.insert(0, default);
        }
    }
    for user in &mut users {
        user.masks = masks.clone();
    }
    let cert: Option<String> = section.take("tls_cert", p);
    let key: Option<String> = section.take("tls_key", p);
    let tls = match (cert?.as_str(), key?.as_str()) {
        ("", "") => None,
        (cert, key) if !cert.is_empty() && !key.is_empty() => Some(RespTls {
            cert: PathBuf::from(cert),
            key: PathBuf::from(key),
        }),
        ("", _) => {
            p.add(
                &section.at("tls_cert"),
                "expected a file, because `resp.tls_key` is set".to_owned(),
            );
            None
        }
        _ => {
            p.add(
                &section.at("tls_key"),
                "expected a file, because `resp.tls_cert` is set".to_owned(),
            );
            None
        }
    };
    let max_connections = section.checked(
        "max_connections",
        p,
        |n| (1..=1_000_000).contains(n),
        "1 to 1000000",
    );
    if let Some(Some(address)) = listen
        && !address.ip().is_loopback()
    {
        if users.is_empty() {
            p.add(
                &section.at("password"),
                format!("expected one, or `[[resp.users]]`, because `{address}` is not a loopback address"),
            );
        }
        if tls.is_none() {
            p.add(
                &section.at("tls_cert"),
                format!("expected a certificate, because `{address}` is not a loopback address"),
            );
        }
    }
    section.done(p);
    Some(RespConfig {
        listen: listen?,
        users: users.into_iter().map(Arc::new).collect(),
        tls,
        max_connections: max_connections?,
        // Set by `[redis]`.
        key_prefix: String::new(),
        masks: masks.clone(),
    })
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
