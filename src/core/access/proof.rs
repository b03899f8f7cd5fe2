//! How principals prove who they are.

use std::fmt;

use sha2::{Digest, Sha256};

/// How a principal proves who it is.
#[derive(Clone, PartialEq, Eq)]
pub enum Proof {
    /// Not at all: every program of this machine, while the configuration names no principal.
    None,
    /// By a bearer token with this SHA-256 hash.
    Token([u8; 32]),
    /// By the name that a trusted proxy puts into `http.proxy.user_header`, which fits this glob.
    ProxyUser(String),
    /// By a password with this hash, in the PHC format of Argon2.
    Password(String),
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Token(_) => f.write_str("Token([redacted])"),
            Self::ProxyUser(glob) => write!(f, "ProxyUser({glob:?})"),
            Self::Password(_) => f.write_str("Password([redacted])"),
        }
    }
}

/// Returns the hash of a token, as in the configuration.
pub fn hash_token(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}
