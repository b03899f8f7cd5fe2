//! Metrics.

use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;

use crate::collector::{Collector, Mood, texts};
use crate::daemon::Daemon;
use crate::support::wait::until;

#[tokio::test]
async fn exported_metrics_have_the_values_of_the_daemon() {
    const RUNS: i64 = 7;
    let collector = Collector::start(Mood::Take).await;
    let settings = format!("otel.endpoint = '{}'", collector.url());
    let env = [
        ("OTEL_METRIC_EXPORT_INTERVAL", "100"),
        ("OTEL_TRACES_EXPORTER", "none"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20key"),
    ];
    let daemon = Daemon::start(&settings, &env).await;
    for number in 0..RUNS {
        daemon.create(&format!("Job@tell@{number}"), "", "").await;
    }
    let runs = || match collector.metric("lapsed_runs")?.data? {
        Data::Sum(sum) => {
            assert!(sum.is_monotonic && sum.aggregation_temporality == 2);
            sum.data_points.into_iter().next()
        }
        other => panic!("a counter is a sum: {other:?}"),
    };
    until("the collector has counted the runs", async || {
        runs().is_some_and(|point| point.value == Some(Value::AsInt(RUNS)))
    })
    .await;
    let labels = texts(&runs().unwrap().attributes);
    assert_eq!(labels["route"], "^Job@tell");
    assert_eq!(labels["outcome"], "succeeded");

    let Some(Data::Histogram(lateness)) = collector.metric("lapsed_lateness_seconds").unwrap().data
    else {
        panic!("a histogram is a histogram");
    };
    let point = &lateness.data_points[0];
    assert_eq!(point.count, RUNS.cast_unsigned());
    assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count);
    assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);

    // Every metric of `/metrics` that has a value, and no other.
    let text = daemon.get("/metrics").await;
    let types: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .collect();
    let has_value = |name: &str| {
        let mut lines = text.lines();
        lines.any(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with([' ', '{', '_']))
        })
    };
    assert!(types.len() > 20);
    for name in types.into_iter().filter_map(|line| line.split(' ').next()) {
        if has_value(name) {
            assert!(collector.metric(name).is_some(), "{name} is sent");
        }
    }
    assert!(collector.spans().is_empty());
    assert_eq!(collector.headers()["api-key"], "a key");
}
