//! Sends the metrics at an interval, and a last time at a stop.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, header};
use lapsed::clock;
use lapsed::engine::Metrics;
use opentelemetry_http::HttpClient as _;
use opentelemetry_sdk::Resource;
use prost::Message as _;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_util::sync::CancellationToken;

use super::collector::Collector;
use super::metrics::{self, Period};
use super::settings::Endpoint;

/// Sends the metrics of this process.
pub struct MetricsSender {
    collector: Collector,
    to: Endpoint,
    metrics: Arc<Metrics>,
    resource: Resource,
    /// In nanoseconds since 1970.
    started: u64,
}

/// The task that sends them.
pub struct Sending {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl MetricsSender {
    /// Creates a sender.
    ///
    /// # Errors
    /// HTTPS cannot be set up.
    pub fn new(to: Endpoint, metrics: Arc<Metrics>, resource: Resource) -> anyhow::Result<Self> {
        Ok(Self {
            collector: Collector::new("metrics", &to)?,
            to,
            metrics,
            resource,
            started: now(),
        })
    }

    /// Starts to send at this interval. What a collector does not take is not sent again: the next request has newer
    /// totals.
    pub fn every(self, interval: Duration) -> Sending {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let mut ticks = interval_at(Instant::now() + interval, interval);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while stopped.run_until_cancelled(ticks.tick()).await.is_some() {
                // At a stop, the last request replaces one that waits for its answer.
                stopped.run_until_cancelled(self.send()).await;
            }
            self.send().await;
        });
        Sending { stop, task }
    }

    async fn send(&self) {
        let period = Period {
            since: self.started,
            now: now(),
        };
        let body = metrics::request(&self.metrics.render(), &self.resource, period);
        let request = Request::post(&self.to.url).body(body.encode_to_vec().into());
        let mut request = request.expect("the settings have a valid URL");
        let protobuf = HeaderValue::from_static("application/x-protobuf");
        let headers = request.headers_mut();
        headers.extend(self.to.headers.clone());
        headers.insert(header::CONTENT_TYPE, protobuf);
        // The collector logs a failure.
        let _ = self.collector.send_bytes(request).await;
    }
}

impl Sending {
    /// Sends the metrics a last time.
    pub async fn stop(mut self, within: Duration) {
        self.stop.cancel();
        if timeout(within, &mut self.task).await.is_err() {
            self.task.abort();
            tracing::warn!("the last metrics were not sent");
        }
    }
}

fn now() -> u64 {
    clock::wall_micros().saturating_mul(1000)
}
