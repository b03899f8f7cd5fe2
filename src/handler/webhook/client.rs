//! HTTP clients, shared by routes with the same settings.

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Certificate, Client};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

use super::resolver::{GuardedResolver, Lookup, SystemLookup};
use crate::config::{EgressPolicy, WebhookConfig};
use crate::task::with_causes;

/// Time after which an idle connection is closed. Servers close idle connections, too (Node.js after 5 s), and a request
/// that is sent at that moment would fail.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// Time after which a connection is closed if sent data is not acknowledged. Otherwise a run would wait for its whole time
/// limit, and with HTTP/2 other runs on the connection, too.
const UNANSWERED_MAX: Duration = Duration::from_secs(10);

/// Interval of pings on an HTTP/2 connection in use.
const PING_EVERY: Duration = Duration::from_secs(10);

/// The settings of a client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::handler) struct ClientKey {
    connect_timeout: Duration,
    egress: EgressPolicy,
    trust: Trust,
}

/// The certificate authorities that are trusted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Trust {
    /// None: the URL is plain HTTP, so that no authorities need to be installed.
    Plain,
    /// Those of the machine, and these.
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

    /// Creates the client.
    ///
    /// # Errors
    /// A text with the reason and a remedy: usually no authorities are installed on this machine.
    pub(in crate::handler) fn build(&self) -> Result<Client, String> {
        self.build_with(SystemLookup)
    }

    pub(super) fn build_with(&self, lookup: impl Lookup) -> Result<Client, String> {
        // rustls uses the provider of the process. An error means that one is installed already.
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
                let no_roots = ClientConfig::builder()
                    .with_root_certificates(RootCertStore::empty())
                    .with_no_client_auth();
                client.tls_backend_preconfigured(no_roots).build()
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
