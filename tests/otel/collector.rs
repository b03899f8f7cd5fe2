//! A collector that keeps what it receives: OTLP over HTTP, as protobuf.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::support::wait::until;

/// What a collector does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    Take,
    /// 503.
    Refuse,
    /// No answer, and the connection stays open.
    Hang,
}

pub struct Collector {
    pub address: String,
    received: Arc<Received>,
    serving: JoinHandle<()>,
}

struct Received {
    mood: Mutex<Mood>,
    requests: Mutex<usize>,
    spans: Mutex<Vec<Span>>,
    /// The latest of each name.
    metrics: Mutex<BTreeMap<String, Metric>>,
    /// Attributes of the sender, of the latest request.
    resource: Mutex<BTreeMap<String, String>>,
    headers: Mutex<HeaderMap>,
}

impl Collector {
    pub async fn start(mood: Mood) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let received = Arc::new(Received {
            mood: Mutex::new(mood),
            requests: Mutex::default(),
            spans: Mutex::default(),
            metrics: Mutex::default(),
            resource: Mutex::default(),
            headers: Mutex::default(),
        });
        let router = Router::new().fallback(take);
        let router = router.with_state(Arc::clone(&received));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            address,
            received,
            serving,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn set(&self, mood: Mood) {
        *self.received.mood.lock().unwrap() = mood;
    }

    pub fn requests(&self) -> usize {
        *self.received.requests.lock().unwrap()
    }

    pub fn spans(&self) -> Vec<Span> {
        self.received.spans.lock().unwrap().clone()
    }

    /// The spans of a trace, once there are as many; in the order of their start.
    pub async fn trace(&self, trace: &str, count: usize) -> Vec<Span> {
        let of_trace = || {
            let mut spans = self.spans();
            spans.retain(|span| hex(&span.trace_id) == trace);
            spans.sort_by_key(|span| span.start_time_unix_nano);
            spans
        };
        until(
            format!("{count} spans of {trace} have arrived"),
            async || of_trace().len() >= count,
        )
        .await;
        of_trace()
    }

    pub fn metric(&self, name: &str) -> Option<Metric> {
        self.received.metrics.lock().unwrap().get(name).cloned()
    }

    pub fn resource(&self) -> BTreeMap<String, String> {
        self.received.resource.lock().unwrap().clone()
    }

    pub fn headers(&self) -> HeaderMap {
        self.received.headers.lock().unwrap().clone()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn take(
    State(received): State<Arc<Received>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    *received.requests.lock().unwrap() += 1;
    let mood = *received.mood.lock().unwrap();
    match mood {
        Mood::Take => {}
        Mood::Refuse => return StatusCode::SERVICE_UNAVAILABLE,
        Mood::Hang => std::future::pending().await,
    }
    assert_eq!(headers["content-type"], "application/x-protobuf");
    *received.headers.lock().unwrap() = headers;
    let resource = match uri.path() {
        "/v1/traces" => {
            let request = ExportTraceServiceRequest::decode(body).unwrap();
            let mut resource = None;
            for of_resource in request.resource_spans {
                resource = of_resource.resource;
                let spans = of_resource.scope_spans.into_iter();
                let spans = spans.flat_map(|of_scope| of_scope.spans);
                received.spans.lock().unwrap().extend(spans);
            }
            resource
        }
        "/v1/metrics" => {
            let request = ExportMetricsServiceRequest::decode(body).unwrap();
            let mut resource = None;
            for of_resource in request.resource_metrics {
                resource = of_resource.resource;
                let metrics = of_resource.scope_metrics.into_iter();
                let metrics = metrics.flat_map(|of_scope| of_scope.metrics);
                let named = metrics.map(|metric| (metric.name.clone(), metric));
                received.metrics.lock().unwrap().extend(named);
            }
            resource
        }
        path => panic!("nothing is sent to {path}"),
    };
    *received.resource.lock().unwrap() = texts(&resource.unwrap().attributes);
    StatusCode::OK
}

/// Attributes as texts.
pub fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| {
        let value = attribute.value.clone().and_then(|value| value.value);
        let value = match value.unwrap() {
            Value::StringValue(text) => text,
            Value::IntValue(number) => number.to_string(),
            other => panic!("{other:?} is neither a text nor a whole number"),
        };
        (attribute.key.clone(), value)
    };
    attributes.iter().map(text).collect()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
