//! OpenTelemetry: the daemon sends traces and metrics to a collector, by OTLP over HTTP.

#[cfg(test)]
#[expect(
    dead_code,
    reason = "only its refusal is tested here: it takes the place of this module in other builds"
)]
mod absent;
mod collector;
mod exposition;
mod metrics;
mod sender;
mod settings;
mod spans;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use lapsed::config::OtelConfig;
use lapsed::engine::Metrics;
use lapsed::trace::Tracer;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;

use self::collector::Collector;
use self::sender::{MetricsSender, Sending};
use self::settings::{Endpoint, Settings};
use self::spans::SpanRecorder;

/// Time at a stop for what has not been sent yet.
const FLUSH_WITHIN: Duration = Duration::from_secs(3);

/// The export of traces and metrics.
pub struct Export {
    traces: Option<SdkTracerProvider>,
    metrics: Option<Sending>,
}

impl Export {
    /// Starts the export, if the configuration or the environment names a collector.
    ///
    /// # Errors
    /// A setting is invalid, or HTTPS cannot be set up.
    pub fn start(config: &OtelConfig, metrics: &Arc<Metrics>) -> anyhow::Result<Option<Self>> {
        let Some(settings) = Settings::read(config)? else {
            return Ok(None);
        };
        let Settings {
            traces,
            metrics: to,
            metrics_every,
        } = settings;
        let resource = settings::resource();
        let url = |endpoint: &Option<Endpoint>| endpoint.as_ref().map(|to| to.url.clone());
        tracing::info!(
            otel.traces = url(&traces),
            otel.metrics = url(&to),
            "sending telemetry"
        );
        let traces = traces.map(|endpoint| provider(&endpoint, resource.clone()));
        let sender = to.map(|to| MetricsSender::new(to, Arc::clone(metrics), resource));
        Ok(Some(Self {
            traces: traces.transpose()?,
            metrics: sender
                .transpose()?
                .map(|sender| sender.every(metrics_every)),
        }))
    }

    /// Records the spans of tasks.
    pub fn tracer(&self) -> Option<Arc<dyn Tracer>> {
        let provider = self.traces.as_ref()?;
        Some(Arc::new(SpanRecorder(provider.tracer("lapsed"))))
    }

    /// Sends what has not been sent yet, for [`FLUSH_WITHIN`] at most.
    pub async fn stop(self) {
        let Self { traces, metrics } = self;
        let traces = async {
            let Some(traces) = traces else { return };
            let flush = move || traces.shutdown_with_timeout(FLUSH_WITHIN);
            if let Ok(Err(error)) = tokio::task::spawn_blocking(flush).await {
                tracing::warn!(%error, "not all spans were sent");
            }
        };
        let metrics = async {
            if let Some(metrics) = metrics {
                metrics.stop(FLUSH_WITHIN).await;
            }
        };
        tokio::join!(traces, metrics);
    }
}

/// Records and sends spans. They wait in a bounded queue for a thread that sends them; when it is full, further ones are
/// dropped.
fn provider(endpoint: &Endpoint, resource: Resource) -> anyhow::Result<SdkTracerProvider> {
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(Collector::new("traces", endpoint)?)
        .with_endpoint(&endpoint.url)
        .with_timeout(endpoint.timeout)
        .build()
        .context("set up the export of traces")?;
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter);
    Ok(provider.with_resource(resource).build())
}
