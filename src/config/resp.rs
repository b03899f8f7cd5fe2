//! `[resp]`: the front door for Redis clients.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::http::globs;
use super::reader::{Problems, Reader};
use super::{ClassGlob, Secret};

/// Prefix of a password hash, as `lapsed hash-password` prints it.
const HASH_PREFIX: &str = "$argon2";

/// Name of the user of `resp.password`.
const DEFAULT_USER: &str = "default";

/// `[resp]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RespConfig {
    /// Address to listen on; `None`: the front door is closed.
    pub listen: Option<SocketAddr>,
    /// Users; none: every client may do everything, on a loopback address only.
    pub users: Vec<RespUser>,
    /// Certificate and key; `None`: no TLS.
    pub tls: Option<RespTls>,
    /// Maximum number of connections.
    pub max_connections: usize,
    /// `redis.key_prefix`: what clients put before each key.
    pub key_prefix: String,
    /// `http.mask_payloads`: classes whose payloads, results and errors are not shown.
    pub mask_payloads: Vec<ClassGlob>,
    /// `http.mask_arguments`: classes whose arguments are not shown in lists.
    pub mask_arguments: Vec<ClassGlob>,
}

/// A user of the front door.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RespUser {
    /// Its name.
    pub name: String,
    /// Hash of its password, in the PHC format of Argon2.
    pub password: Secret,
    /// What it may do.
    pub scopes: Vec<RespScope>,
    /// The classes that it may touch; none: all.
    pub classes: Vec<ClassGlob>,
}

/// What a user may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RespScope {
    /// Look at tasks.
    Read,
    /// Create, move and cancel tasks.
    Schedule,
    /// Take tasks and settle them.
    Work,
}

impl RespScope {
    /// All scopes.
    pub const ALL: [Self; 3] = [Self::Read, Self::Schedule, Self::Work];

    /// The name in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Schedule => "schedule",
            Self::Work => "work",
        }
    }
}

/// Files in PEM format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RespTls {
    /// Certificate chain.
    pub cert: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

pub(super) fn resp(mut section: Reader, p: &mut Problems) -> Option<RespConfig> {
    let listen = section.address("listen", "127.0.0.1:6380", p);
    let password: Option<String> = section.take("password", p);
    let mut users = section.named_entries("users", p, user, |user| &user.name);
    if let Some(password) = password.filter(|password| !password.is_empty()) {
        let path = section.at("password");
        if is_hash(&password, &path, p) {
            users.insert(0, RespUser::all(DEFAULT_USER.to_owned(), password));
        }
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
        users,
        tls,
        max_connections: max_connections?,
        // Set by other sections.
        key_prefix: String::new(),
        mask_payloads: Vec::new(),
        mask_arguments: Vec::new(),
    })
}

/// `[[resp.users]]`
fn user(mut section: Reader, p: &mut Problems) -> Option<RespUser> {
    let name = section.checked(
        "name",
        p,
        |name: &String| {
            !name.is_empty() && name.len() <= 128 && !name.contains(char::is_whitespace)
        },
        "1 to 128 bytes without white space",
    );
    let password = section.text_or_file("password", p);
    let path = section.at("password");
    if password == Some(None) {
        p.add(&path, "is missing".to_owned());
    }
    let password = password.flatten().filter(|hash| is_hash(hash, &path, p));
    let scopes = match section.texts("scopes", p) {
        Some(names) if names.is_empty() => Some(RespScope::ALL.to_vec()),
        names => names.and_then(|names| {
            let scopes = names.iter().map(|name| {
                let found = RespScope::ALL
                    .into_iter()
                    .find(|scope| scope.as_str() == name);
                found.ok_or_else(|| format!("`{name}` is none of `read`, `schedule`, `work`"))
            });
            section.parsed("scopes", scopes.collect(), p)
        }),
    };
    let classes = globs(&mut section, "classes", p);
    section.done(p);
    Some(RespUser {
        name: name?,
        password: Secret::from(password?),
        scopes: scopes?,
        classes: classes?,
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

impl RespUser {
    fn all(name: String, password: String) -> Self {
        Self {
            name,
            password: Secret::from(password),
            scopes: RespScope::ALL.to_vec(),
            classes: Vec::new(),
        }
    }
}
