//! The collector: an HTTP client with a limit for time and size, which logs an outage once.

use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use lapsed::task::with_causes;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use reqwest::Client;
use reqwest::redirect::Policy;
use rustls::{ClientConfig, RootCertStore};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::settings::Endpoint;

/// Maximum size of an answer. It names what was refused.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Least time between two log lines about failures. A collector that is overloaded takes some requests and refuses others.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// The place that receives one kind of telemetry.
#[derive(Debug)]
pub struct Collector {
    client: Client,
    /// The exporter of spans has a thread of its own, outside the runtime that the client needs.
    runtime: Handle,
    /// `traces` or `metrics`.
    signal: &'static str,
    outage: Mutex<Outage>,
}

/// Whether requests fail, and what was logged of that.
#[derive(Debug, Default)]
struct Outage {
    is_logged: bool,
    logged_at: Option<Instant>,
}

impl Collector {
    /// Creates a client of a collector.
    ///
    /// # Errors
    /// HTTPS cannot be set up: usually no certificate authorities are installed on this machine.
    pub fn new(signal: &'static str, endpoint: &Endpoint) -> anyhow::Result<Self> {
        // rustls uses the provider of the process. An error means that one is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .user_agent(concat!("lapsed/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            .timeout(endpoint.timeout);
        // Plain HTTP needs no authorities: a small image has none.
        let client = match endpoint.url.starts_with("http://") {
            true => client.tls_backend_preconfigured(
                ClientConfig::builder()
                    .with_root_certificates(RootCertStore::empty())
                    .with_no_client_auth(),
            ),
            false => client,
        };
        Ok(Self {
            client: client.build().context("set up HTTPS for OpenTelemetry")?,
            runtime: Handle::current(),
            signal,
            outage: Mutex::default(),
        })
    }

    async fn send(client: Client, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let mut answer = client.execute(request.try_into()?).await?;
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await? {
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(format!("answer has more than {ANSWER_BYTES_MAX} bytes").into());
            }
            body.extend_from_slice(&chunk);
        }
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = answer.status();
        *response.headers_mut() = answer.headers().clone();
        Ok(response)
    }

    /// Logs the first failure, and the first success after it.
    fn judge(&self, answer: &Result<Response<Bytes>, HttpError>) {
        let error = match answer {
            Ok(answer) if answer.status().is_success() => refusal(answer.body()),
            Ok(answer) => Some(format!("it answers {}", answer.status())),
            Err(error) => Some(with_causes(&**error)),
        };
        let outage = self.outage.lock();
        let mut outage = outage.expect("nothing panics while holding it");
        let is_recent = |at: Instant| at.elapsed() < LOG_EVERY;
        let signal = self.signal;
        match error {
            Some(error) if !outage.is_logged && !outage.logged_at.is_some_and(is_recent) => {
                outage.is_logged = true;
                outage.logged_at = Some(Instant::now());
                tracing::warn!(%error, "the OpenTelemetry collector does not take all {signal}");
            }
            None if outage.is_logged => {
                outage.is_logged = false;
                tracing::info!("the OpenTelemetry collector takes {signal} again");
            }
            _ => {}
        }
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sending = Self::send(self.client.clone(), request);
        let answer = match self.runtime.spawn(sending).await {
            Ok(answer) => answer,
            Err(error) => Err(error.into()),
        };
        self.judge(&answer);
        answer
    }
}

/// What the collector has refused of a request that it took. Its answers for spans and for metrics have the same fields.
fn refusal(answer: &Bytes) -> Option<String> {
    let answer = ExportTraceServiceResponse::decode(answer.clone()).ok()?;
    let partial = answer.partial_success?;
    let (refused, why) = (partial.rejected_spans, partial.error_message);
    (refused > 0).then(|| format!("it refuses {refused} items of a request: {why}"))
}
