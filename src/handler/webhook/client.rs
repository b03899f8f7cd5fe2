//! HTTP clients: what may be shared by routes, and what may not.

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Certificate, Client};
use rustls::pki_types::CertificateDer;

use super::resolver::{GuardedResolver, Lookup, SystemLookup};
use crate::config::{Reach, WebhookConfig};

/// Connections rest no longer than this before they are closed. Servers close theirs too (Node.js after 5 s), and a request
/// that meets the end of a connection would be a failure.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// What was sent is acknowledged by the other machine within this time, or the connection is given up: a run would otherwise
/// wait for its whole time limit, and with HTTP/2 all others behind it.
const UNANSWERED_MAX: Duration = Duration::from_secs(10);

/// How often an HTTP/2 connection that is in use is asked whether it lives.
const PING_EVERY: Duration = Duration::from_secs(10);

/// What the routes of one client agree on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::handler) struct ClientKey {
    connect_timeout: Duration,
    reach: Reach,
    authorities: Vec<CertificateDer<'static>>,
}

impl ClientKey {
    pub(in crate::handler) fn of(config: &WebhookConfig) -> Self {
        Self {
            connect_timeout: config.connect_timeout,
            reach: config.reach.clone(),
            authorities: config.authorities.clone(),
        }
    }

    /// Makes the client.
    ///
    /// # Errors
    /// What keeps it from being made: usually that this machine trusts no authority at all.
    pub(in crate::handler) fn build(&self) -> Result<Client, String> {
        self.build_with(SystemLookup)
    }

    pub(super) fn build_with(&self, lookup: impl Lookup) -> Result<Client, String> {
        // rustls takes its cryptography from the process; whoever installed one first is right.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let authorities: Result<Vec<_>, _> = self
            .authorities
            .iter()
            .map(|authority| Certificate::from_der(authority))
            .collect();
        let client = Client::builder()
            .user_agent(concat!("lapsed/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(GuardedResolver::new(lookup, self.reach.clone()))
            .redirect(Policy::none())
            .referer(false)
            .no_proxy()
            .connect_timeout(self.connect_timeout)
            .tcp_user_timeout(UNANSWERED_MAX)
            .http2_keep_alive_interval(PING_EVERY)
            .http2_keep_alive_timeout(UNANSWERED_MAX)
            .pool_idle_timeout(IDLE_MAX);
        authorities
            .and_then(|authorities| client.tls_certs_merge(authorities).build())
            .map_err(|error| {
                let error = with_causes(&error);
                format!("cannot set up the webhook client: {error}")
            })
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
