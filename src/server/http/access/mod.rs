//! Access: who calls, and what the caller may do.
//!
//! Every request passes the [gate](gate), which refuses what a browser was tricked into sending and finds out who calls. A
//! handler takes a [`Caller`] and requires what it needs.
//!
//! | a caller proves who it is by | for |
//! |---|---|
//! | `Authorization: Bearer <token>` | programs |
//! | a cookie, after logging in with a token | people |
//! | the header of a trusted proxy | people, with single sign-on |
//! | nothing, while no client is configured | this machine |

mod caller;
mod cursors;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod gate;
mod host;
mod login;
mod peer;
mod sessions;

use std::sync::Arc;

use axum::http::{HeaderMap, header};
use subtle::ConstantTimeEq as _;

use crate::net::failures::{self, Failures};
use crate::net::login_log::LoginLog;
use lapsed::config::{HttpConfig, SecureCookies};
use lapsed::ledger::Ledger;
use lapsed_core::access::{Principal, hash_token};

pub use self::caller::Caller;
pub use self::gate::{PROBES, gate};
pub use self::login::routes;
use self::peer::Peer;
use self::sessions::{Session, Sessions};
use super::problem::{Problem, ProblemKind};
pub use lapsed_core::access::AccessScope as Scope;
use lapsed_core::telemetry::Metrics;

/// Name of the cookie over HTTPS. Browsers take one with this prefix only over HTTPS, for this host alone.
const SECURE_COOKIE: &str = "__Host-lapsed";

/// Name of the cookie without HTTPS.
const PLAIN_COOKIE: &str = "lapsed";

/// Who may do what, by the configuration.
pub struct Access {
    config: Arc<HttpConfig>,
    sessions: Sessions,
    failures: Failures,
}

/// How the cookie of a session is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cookie {
    Secure,
    Plain,
}

impl Cookie {
    fn name(self) -> &'static str {
        match self {
            Self::Secure => SECURE_COOKIE,
            Self::Plain => PLAIN_COOKIE,
        }
    }
}

impl Access {
    /// Takes the clients of a configuration. Sessions of browsers are shared through the ledger.
    pub fn new(config: Arc<HttpConfig>, ledger: Arc<dyn Ledger>, metrics: Arc<Metrics>) -> Self {
        let mut failures = Failures::new("http", metrics);
        let log = LoginLog::new("http", Arc::clone(&ledger), config.audit_kept);
        failures.set_log(log);
        Self {
            failures,
            sessions: Sessions::new(ledger, config.session_length),
            config,
        }
    }

    /// True if people can log in with a token.
    pub fn has_tokens(&self) -> bool {
        let mut clients = self.config.clients.iter();
        clients.any(|client| client.token_hash().is_some())
    }

    /// Finds out who sends a request.
    async fn identify(&self, headers: &HeaderMap, peer: &Peer) -> Result<Caller, Problem> {
        if self.config.clients.is_empty() {
            return self.anonymous(peer);
        }
        let caller = if let Some(given) = headers.get(header::AUTHORIZATION) {
            let token = given.to_str().ok().and_then(bearer);
            let token = token.ok_or_else(Problem::unauthenticated)?;
            Caller::of(self.client_of(token, peer)?)
        } else if let Some(user) = &peer.user {
            let mut clients = self.config.clients.iter();
            let client = clients.find(|client| client.is_proxy_user(user));
            let client = client.ok_or_else(|| {
                Problem::forbidden("this user is no client in the configuration of lapsed")
            })?;
            Caller::of(client).named(user)
        } else {
            let (_, client) = self
                .session(headers, peer)
                .await
                .ok_or_else(Problem::unauthenticated)?;
            Caller::of(client).with_session()
        };
        Ok(caller.at(peer.address_text()))
    }

    /// Returns the client with this token.
    ///
    /// # Errors
    /// There is none, or its address has guessed too often.
    fn client_of(&self, token: &str, peer: &Peer) -> Result<&Arc<Principal>, Problem> {
        let hash = hash_token(token);
        let mut found = None;
        // Compares with every hash, in constant time each.
        for (index, client) in self.config.clients.iter().enumerate() {
            let own = client.token_hash();
            if own.is_some_and(|own| bool::from(own.ct_eq(&hash))) {
                found = Some((index, client));
            }
        }
        let index = found.map(|(index, _)| index);
        let address = peer.address;
        if address.is_some_and(|address| !self.failures.admit(address, &hash, index)) {
            self.failures.report(address);
            return Err(Problem::of(
                ProblemKind::TooManyGuesses,
                format!("try again in {} s", failures::WINDOW.as_secs()),
            ));
        }
        let client = found.map(|(_, client)| client);
        client.ok_or_else(|| {
            self.failures.report(address);
            Problem::of(
                ProblemKind::Unauthenticated,
                "no client in the configuration of lapsed has this token",
            )
        })
    }

    /// Returns the session of a browser, and its client.
    async fn session(
        &self,
        headers: &HeaderMap,
        peer: &Peer,
    ) -> Option<(Session, &Arc<Principal>)> {
        let value = cookie_value(headers, self.cookie(peer)?.name())?;
        let client = |name: &str| {
            let mut clients = self.config.clients.iter();
            clients.find(|client| client.name == name && client.token_hash().is_some())
        };
        let hash = |name: &str| client(name).and_then(|client| client.token_hash());
        let session = self.sessions.find(value, hash).await?;
        let client = client(&session.client)?;
        Some((session, client))
    }

    /// The caller while no client is configured.
    fn anonymous(&self, peer: &Peer) -> Result<Caller, Problem> {
        match peer.is_local() {
            true => Ok(Caller::anonymous(self.config.masks.clone()).at(peer.address_text())),
            false => Err(Problem::forbidden(
                "without `[[http.clients]]` only this machine may call, and not through a proxy",
            )),
        }
    }

    /// How a cookie is sent to this peer; `None`: its token could be read on the way.
    fn cookie(&self, peer: &Peer) -> Option<Cookie> {
        match self.config.secure_cookies {
            SecureCookies::Always => Some(Cookie::Secure),
            SecureCookies::Never => Some(Cookie::Plain),
            SecureCookies::Auto if peer.https => Some(Cookie::Secure),
            SecureCookies::Auto => peer.is_local().then_some(Cookie::Plain),
        }
    }
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn cookie_value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let cookies = headers.get_all(header::COOKIE).iter();
    let mut pairs = cookies
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    pairs
        .find(|(found, _)| *found == name)
        .map(|(_, value)| value)
}
