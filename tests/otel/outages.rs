//! A collector that is away, refuses or hangs; and the end of a daemon.

use std::time::Duration;

use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::collector::{Collector, Mood};
use crate::daemon::Daemon;
use crate::support::wait::until;

/// More than a queue of 8 spans holds.
const TASKS: usize = 40;

/// Far more than a stop may take: a request that no collector answers would take ten minutes.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// Runs tasks and stops a daemon whose collector does not take anything. Returns its log.
async fn run_and_stop(url: &str) -> String {
    let settings = format!("otel.endpoint = '{url}'");
    let env = [
        ("OTEL_BSP_SCHEDULE_DELAY", "20"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "8"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "20"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "600000"),
    ];
    let mut daemon = Daemon::start(&settings, &env).await;
    for number in 0..TASKS {
        daemon.create(&format!("Job@tell@{number}"), "", "").await;
    }
    until("all tasks have run", async || daemon.told().len() == TASKS).await;
    daemon.until_done(&format!("Job@tell@{}", TASKS - 1)).await;
    let began = Instant::now();
    daemon.terminate();
    assert!(daemon.until_ended().await.success());
    let took = began.elapsed();
    assert!(took < STOP_WITHIN, "the stop took {took:?}");
    daemon.log()
}

fn count(log: &str, text: &str) -> usize {
    log.matches(text).count()
}

#[tokio::test]
async fn an_unreachable_collector_is_logged_once_and_blocks_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let log = run_and_stop(&format!("http://{address}")).await;
    assert_eq!(count(&log, "does not take all traces"), 1, "{log}");
    assert_eq!(count(&log, "does not take all metrics"), 1, "{log}");
}

#[tokio::test]
async fn a_rejecting_collector_is_logged_once_and_blocks_nothing() {
    let collector = Collector::start(Mood::Refuse).await;
    let log = run_and_stop(&collector.url()).await;
    assert_eq!(count(&log, "does not take all traces"), 1, "{log}");
    assert_eq!(count(&log, "does not take all metrics"), 1, "{log}");
    assert!(log.contains("503"), "{log}");
}

#[tokio::test]
async fn a_hanging_collector_blocks_nothing() {
    let collector = Collector::start(Mood::Hang).await;
    let log = run_and_stop(&collector.url()).await;
    assert!(log.contains("not all spans were sent"), "{log}");
    assert!(collector.requests() > 0);
}

#[tokio::test]
async fn waiting_spans_are_sent_at_a_stop() {
    let collector = Collector::start(Mood::Take).await;
    let settings = format!("otel.endpoint = '{}'", collector.url());
    let never = "86400000";
    let env = [
        ("OTEL_BSP_SCHEDULE_DELAY", never),
        ("OTEL_METRIC_EXPORT_INTERVAL", never),
    ];
    let mut daemon = Daemon::start(&settings, &env).await;
    daemon.create("Job@tell@1", "", "").await;
    daemon.until_done("Job@tell@1").await;
    assert_eq!(collector.requests(), 0);
    daemon.terminate();
    assert!(daemon.until_ended().await.success());
    assert_eq!(collector.spans().len(), 3);
    let runs = collector.metric("lapsed_runs").unwrap();
    assert!(matches!(runs.data, Some(Data::Sum(_))));
}

#[tokio::test]
async fn a_collector_that_returns_is_used_again() {
    let collector = Collector::start(Mood::Refuse).await;
    let settings = format!("otel.endpoint = '{}'", collector.url());
    let env = [
        ("OTEL_BSP_SCHEDULE_DELAY", "20"),
        ("OTEL_METRICS_EXPORTER", "none"),
    ];
    let daemon = Daemon::start(&settings, &env).await;
    daemon.create("Job@tell@1", "", "").await;
    daemon.until_logged("does not take all traces").await;
    collector.set(Mood::Take);
    daemon.create("Job@tell@2", "", "").await;
    daemon.until_logged("takes traces again").await;
    until("spans arrive", async || !collector.spans().is_empty()).await;
}
