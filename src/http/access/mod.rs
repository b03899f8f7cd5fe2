//! Access: who calls, and what the caller may do.

mod caller;

use axum::http::{HeaderMap, header};
use subtle::ConstantTimeEq;

use crate::config::{HttpConfig, Secret};

pub use self::caller::{Caller, Scope};

/// Who may do what, by the configuration.
pub struct Access {
    /// Tokens that allow everything; empty: no token is required, on a loopback address only.
    tokens: Vec<Secret>,
}

impl Access {
    /// Takes the tokens of a configuration.
    pub fn new(config: &HttpConfig) -> Self {
        Self {
            tokens: config.tokens.clone(),
        }
    }

    /// Returns who sends a request with these headers, or `None` without valid credentials.
    pub fn caller(&self, headers: &HeaderMap) -> Option<Caller> {
        let given = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        let fits = |token: &Secret| {
            given.is_some_and(|given| bool::from(token.expose().as_bytes().ct_eq(given)))
        };
        let may_enter = self.tokens.is_empty() || self.tokens.iter().any(fits);
        may_enter.then(Caller::everything)
    }
}
