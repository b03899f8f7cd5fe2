//! The metrics of `/metrics` as metrics of OpenTelemetry.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, InstrumentationScope, KeyValue, any_value::Value,
};
use opentelemetry_proto::tonic::metrics::v1::number_data_point;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, metric::Data,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::exposition::{Family, Kind, Sample, families};

/// The time that metrics are about, in nanoseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub struct Period {
    /// When they were all 0: the start of this process.
    pub since: u64,
    pub now: u64,
}

/// Converts metrics from the text format of Prometheus. Their names are the same, without `_total` of a counter.
pub fn request(
    text: &str,
    resource: &opentelemetry_sdk::Resource,
    period: Period,
) -> ExportMetricsServiceRequest {
    let metrics = families(text).into_iter();
    let metrics = metrics.filter(|family| !family.samples.is_empty());
    let attributes = resource.iter().map(|(key, value)| KeyValue {
        key: key.to_string(),
        value: Some(value.clone().into()),
        ..KeyValue::default()
    });
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes: attributes.collect(),
                ..Resource::default()
            }),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(InstrumentationScope {
                    name: "lapsed".to_owned(),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    ..InstrumentationScope::default()
                }),
                metrics: metrics.map(|family| metric(&family, period)).collect(),
                schema_url: String::new(),
            }],
            schema_url: String::new(),
        }],
    }
}

fn metric(family: &Family<'_>, period: Period) -> Metric {
    let numbers = || family.samples.iter().map(|sample| number(sample, period));
    Metric {
        name: family.name.to_owned(),
        description: family.help.to_owned(),
        data: Some(match family.kind {
            Kind::Counter => Data::Sum(Sum {
                data_points: numbers().collect(),
                aggregation_temporality: AggregationTemporality::Cumulative.into(),
                is_monotonic: true,
            }),
            Kind::Gauge => Data::Gauge(Gauge {
                data_points: numbers().collect(),
            }),
            Kind::Histogram => Data::Histogram(Histogram {
                data_points: histograms(&family.samples, period),
                aggregation_temporality: AggregationTemporality::Cumulative.into(),
            }),
        }),
        ..Metric::default()
    }
}

fn number(sample: &Sample<'_>, period: Period) -> NumberDataPoint {
    let value = match sample.value.parse() {
        Ok(whole) => number_data_point::Value::AsInt(whole),
        Err(_) => number_data_point::Value::AsDouble(float(sample.value)),
    };
    NumberDataPoint {
        attributes: attributes(&sample.labels),
        start_time_unix_nano: period.since,
        time_unix_nano: period.now,
        value: Some(value),
        ..NumberDataPoint::default()
    }
}

/// One point for each set of labels, from its sum, its count and its buckets.
fn histograms(samples: &[Sample<'_>], period: Period) -> Vec<HistogramDataPoint> {
    const BOUND: &str = "le";
    let mut points: BTreeMap<Vec<&(&str, String)>, HistogramDataPoint> = BTreeMap::new();
    for sample in samples {
        let labels = sample.labels.iter().filter(|(name, _)| *name != BOUND);
        let point = points.entry(labels.collect()).or_default();
        match sample.suffix {
            "_sum" => point.sum = Some(float(sample.value)),
            "_count" => point.count = whole(sample.value),
            "_bucket" => {
                let bound = sample.labels.iter().find(|(name, _)| *name == BOUND);
                let bound = bound.map_or(f64::INFINITY, |(_, bound)| float(bound));
                if bound.is_finite() {
                    point.explicit_bounds.push(bound);
                }
                // Prometheus counts what is at most the bound, OpenTelemetry what is between two.
                let below: u64 = point.bucket_counts.iter().sum();
                let count = whole(sample.value).saturating_sub(below);
                point.bucket_counts.push(count);
            }
            _ => {}
        }
    }
    points
        .into_iter()
        .map(|(labels, point)| HistogramDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano: period.since,
            time_unix_nano: period.now,
            ..point
        })
        .collect()
}

fn attributes<'a>(labels: impl IntoIterator<Item = &'a (&'a str, String)>) -> Vec<KeyValue> {
    let attribute = |(name, value): &(&str, String)| KeyValue {
        key: (*name).to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(value.clone())),
        }),
        ..KeyValue::default()
    };
    labels.into_iter().map(attribute).collect()
}

/// This program writes only numbers.
fn float(text: &str) -> f64 {
    text.parse().unwrap_or(f64::NAN)
}

fn whole(text: &str) -> u64 {
    text.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use lapsed::engine::Metrics;

    use super::*;

    const PERIOD: Period = Period { since: 1, now: 2 };

    fn metrics(text: &str) -> Vec<Metric> {
        let resource = opentelemetry_sdk::Resource::builder_empty().build();
        let mut request = request(text, &resource, PERIOD);
        let mut resource = request.resource_metrics.remove(0);
        resource.scope_metrics.remove(0).metrics
    }

    fn named<'a>(metrics: &'a [Metric], name: &str) -> &'a Data {
        let found = metrics.iter().find(|metric| metric.name == name);
        found.and_then(|metric| metric.data.as_ref()).expect(name)
    }

    #[test]
    fn the_figures_are_those_of_the_registry() {
        let registry = Metrics::default();
        registry.started("orders", None, 3);
        registry.started("orders", None, 70_000);
        registry.resubscribed();
        registry.overdue_for(std::time::Duration::from_millis(1500));
        let metrics = metrics(&registry.render());

        let Data::Sum(sum) = named(&metrics, "lapsed_resubscriptions") else {
            panic!("a counter is a sum");
        };
        assert!(sum.is_monotonic && sum.aggregation_temporality == 2);
        let point = &sum.data_points[0];
        assert_eq!(point.value, Some(number_data_point::Value::AsInt(1)));
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (1, 2));

        let Data::Gauge(gauge) = named(&metrics, "lapsed_overdue_seconds_max") else {
            panic!("a gauge is a gauge");
        };
        let value = number_data_point::Value::AsDouble(1.5);
        assert_eq!(gauge.data_points[0].value, Some(value));

        let Data::Histogram(histogram) = named(&metrics, "lapsed_lateness_seconds") else {
            panic!("a histogram is a histogram");
        };
        let [point] = &histogram.data_points[..] else {
            panic!("one route");
        };
        assert_eq!((point.count, point.sum), (2, Some(70.003)));
        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
        assert_eq!(point.bucket_counts.iter().sum::<u64>(), 2);
        let counted = |bound| {
            let place = point.explicit_bounds.iter().position(|b| *b == bound);
            point.bucket_counts[place.unwrap()]
        };
        assert_eq!((counted(0.002), counted(0.005), counted(300.0)), (0, 1, 1));
        assert_eq!(point.attributes.len(), 1);
        assert_eq!(point.attributes[0].key, "route");
    }

    #[test]
    fn a_metric_without_values_is_left_out() {
        assert!(metrics("# HELP a b.\n# TYPE a counter\n# EOF\n").is_empty());
    }
}
