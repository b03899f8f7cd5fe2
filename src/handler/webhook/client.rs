//! HTTP clients: what may be shared by routes, and what may not.

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Certificate, Client};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

use super::resolver::{GuardedResolver, Lookup, SystemLookup};
use crate::config::{EgressPolicy, WebhookConfig};

/// Connections rest no longer than this before they are closed. Servers close theirs too (Node.js after 5 s), and a
/// request that meets the end of a connection would be a failure.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// What was sent is acknowledged by the other machine within this time, or the connection is given up: a run would
/// otherwise wait for its whole time limit, and with HTTP/2 all others behind it.
const UNANSWERED_MAX: Duration = Duration::from_secs(10);

/// How often an HTTP/2 connection that is in use is asked whether it lives.
const PING_EVERY: Duration = Duration::from_secs(10);

/// What the routes of one client agree on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::handler) struct ClientKey {
    connect_timeout: Duration,
    egress: EgressPolicy,
    trust: Trust,
}

/// Whose servers are believed to be who they say they are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Trust {
    /// None: there is no TLS, and a machine without any authorities will do.
    Plain,
    /// Those of the machine's authorities, and of these.
    Authorities(Vec<CertificateDer<'static>>),
}

impl ClientKey {
    pub(in crate::handler) fn of(config: &WebhookConfig) -> Self {
        Self {
            connect_timeout: config.connect_timeout,
            egress: config.egress.clone(),
            trust: match config.url.is_plain() {
                true => Trust::Plain,
                false => Trust::Authorities(config.authorities.clone()),
            },
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
        let client = Client::builder()
            .user_agent(concat!("lapsed/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(GuardedResolver::new(lookup, self.egress.clone()))
            .redirect(Policy::none())
            .referer(false)
            .no_proxy()
            .connect_timeout(self.connect_timeout)
            .tcp_user_timeout(UNANSWERED_MAX)
            .http2_keep_alive_interval(PING_EVERY)
            .http2_keep_alive_timeout(UNANSWERED_MAX)
            .pool_idle_timeout(IDLE_MAX);
        let built = match &self.trust {
            Trust::Plain => {
                let nobody = ClientConfig::builder()
                    .with_root_certificates(RootCertStore::empty())
                    .with_no_client_auth();
                client.tls_backend_preconfigured(nobody).build()
            }
            Trust::Authorities(authorities) => {
                let certificates = authorities.iter().map(|der| Certificate::from_der(der));
                let certificates: Result<Vec<_>, _> = certificates.collect();
                certificates.and_then(|certificates| client.tls_certs_merge(certificates).build())
            }
        };
        built.map_err(|error| {
            format!(
                "cannot set up HTTPS: {}; install the machine's certificates (`ca-certificates`), or name a `ca_file`",
                with_causes(&error)
            )
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
