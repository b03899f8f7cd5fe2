//! The spans of tasks.

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

use crate::collector::{Collector, Mood, hex, texts};
use crate::daemon::Daemon;
use crate::support::wait::until;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// Has spans sent soon.
const SOON: (&str, &str) = ("OTEL_BSP_SCHEDULE_DELAY", "50");

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{CALLER}-{flags}")
}

async fn daemon(collector: &Collector, env: &[(&str, &str)]) -> Daemon {
    let settings = format!("otel.endpoint = '{}'", collector.url());
    Daemon::start(&settings, &[&[SOON], env].concat()).await
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let found = spans.iter().find(|span| span.name == name);
    found.unwrap_or_else(|| panic!("no `{name}` in {spans:#?}"))
}

#[tokio::test]
async fn a_task_with_a_trace_has_its_spans_in_that_trace() {
    let collector = Collector::start(Mood::Take).await;
    let daemon = daemon(&collector, &[]).await;
    let member = format!(r#","traceparent":"{}""#, traceparent("01"));
    daemon.create("Job@tell@of-ada", &member, "").await;
    let spans = collector.trace(TRACE, 4).await;
    assert_eq!(spans.len(), 4, "{spans:#?}");
    let [create, claim, run, settle] =
        ["create", "claim", "run", "settle"].map(|step| named(&spans, &format!("{step} Job@tell")));

    assert_eq!(hex(&create.parent_span_id), CALLER);
    assert_eq!(claim.parent_span_id, create.span_id);
    assert_eq!(run.parent_span_id, create.span_id);
    assert_eq!(settle.parent_span_id, run.span_id);
    for (span, kind) in [
        (create, SpanKind::Producer),
        (claim, SpanKind::Client),
        (run, SpanKind::Consumer),
        (settle, SpanKind::Client),
    ] {
        assert_eq!(span.kind(), kind);
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
        assert_eq!(
            span.status.clone().unwrap_or_default().code(),
            StatusCode::Unset
        );
    }
    assert!(claim.end_time_unix_nano <= run.start_time_unix_nano);
    assert!(run.end_time_unix_nano <= settle.start_time_unix_nano);

    // What the program was given is the context of the span of its run.
    let context = format!("00-{TRACE}-{}-01", hex(&run.span_id));
    assert_eq!(daemon.told(), [context]);

    let attributes = texts(&run.attributes);
    for (name, value) in [
        ("messaging.system", "lapsed"),
        ("messaging.operation.name", "run"),
        ("messaging.operation.type", "process"),
        ("messaging.destination.name", "Job@tell"),
        ("lapsed.task.attempt", "1"),
        ("lapsed.route", "^Job@tell"),
        ("lapsed.result", "succeeded"),
    ] {
        assert_eq!(attributes[name], value);
    }
    let task = daemon.get("/v1/tasks/Job@tell@of-ada").await;
    assert!(task.contains(&attributes["messaging.message.id"]), "{task}");
    assert!(
        !format!("{spans:?}").contains("of-ada"),
        "arguments are not sent"
    );
    assert_eq!(collector.resource()["service.name"], "lapsed");
}

#[tokio::test]
async fn the_header_of_a_request_is_the_trace_of_its_tasks() {
    let collector = Collector::start(Mood::Take).await;
    let daemon = daemon(&collector, &[]).await;
    let header = format!("traceparent: {}\r\n", traceparent("01"));
    daemon.create("Job@tell@1", "", &header).await;
    let spans = collector.trace(TRACE, 4).await;
    let create = named(&spans, "create Job@tell");
    assert_eq!(hex(&create.parent_span_id), CALLER);
}

#[tokio::test]
async fn the_trace_of_a_task_without_one_begins_with_its_claim() {
    let collector = Collector::start(Mood::Take).await;
    let daemon = daemon(&collector, &[]).await;
    daemon.create("Job@tell@1", "", "").await;
    until("its program has run", async || daemon.told().len() == 1).await;
    let told = daemon.told().remove(0);
    let trace = told.split('-').nth(1).unwrap();
    let spans = collector.trace(trace, 3).await;
    let [claim, run, settle] =
        ["claim", "run", "settle"].map(|step| named(&spans, &format!("{step} Job@tell")));
    assert_eq!(spans.len(), 3);
    assert!(claim.parent_span_id.is_empty());
    assert_eq!(run.parent_span_id, claim.span_id);
    assert_eq!(settle.parent_span_id, run.span_id);
}

#[tokio::test]
async fn a_failed_run_is_an_error_and_each_attempt_has_its_spans() {
    let collector = Collector::start(Mood::Take).await;
    let daemon = daemon(&collector, &[]).await;
    let member = format!(r#","traceparent":"{}""#, traceparent("01"));
    daemon.create("Job@fail@1", &member, "").await;
    let spans = collector.trace(TRACE, 7).await;
    let runs: Vec<&Span> = spans
        .iter()
        .filter(|span| span.name == "run Job@fail")
        .collect();
    let [first, second] = runs[..] else {
        panic!("two attempts: {spans:#?}");
    };
    let status = first.status.clone().unwrap();
    assert_eq!(status.code(), StatusCode::Error);
    assert!(status.message.contains("no stock"), "{}", status.message);
    let attributes = texts(&first.attributes);
    assert_eq!(attributes["error.type"], "failed");
    assert_eq!(attributes["lapsed.task.attempt"], "1");
    assert_eq!(first.parent_span_id, second.parent_span_id);
    let attributes = texts(&second.attributes);
    assert_eq!(attributes["lapsed.result"], "succeeded");
    assert_eq!(attributes["lapsed.task.attempt"], "2");
}

#[tokio::test]
async fn the_run_of_a_worker_lasts_until_its_report() {
    let collector = Collector::start(Mood::Take).await;
    let daemon = daemon(&collector, &[]).await;
    let member = format!(r#","traceparent":"{}""#, traceparent("01"));
    daemon.create("Job@pull@1", &member, "").await;
    let (claim, first) = daemon.take("jobs").await;
    daemon
        .report(&claim, "fail", r#"{"error":"no stock"}"#)
        .await;
    let (claim, second) = daemon.take("jobs").await;
    daemon.report(&claim, "done", "{}").await;
    // A report that is repeated has the same answer, and no span.
    daemon.report(&claim, "done", "{}").await;
    let spans = collector.trace(TRACE, 7).await;
    assert_eq!(spans.len(), 7, "{spans:#?}");
    let of = |step: &str| -> Vec<&Span> {
        let name = format!("{step} Job@pull");
        spans.iter().filter(|span| span.name == name).collect()
    };
    let (claims, runs, settlements) = (of("claim"), of("run"), of("settle"));
    assert_eq!((claims.len(), runs.len(), settlements.len()), (2, 2, 2));
    for (run, given) in runs.iter().zip([&first, &second]) {
        // What the worker was given is the context of the span of its run.
        assert_eq!(*given, format!("00-{TRACE}-{}-01", hex(&run.span_id)));
        let settle = settlements
            .iter()
            .find(|settle| settle.parent_span_id == run.span_id)
            .unwrap();
        assert!(run.end_time_unix_nano <= settle.start_time_unix_nano);
        assert_eq!(texts(&settle.attributes)["lapsed.result"], "written");
    }
    assert_eq!(texts(&runs[0].attributes)["error.type"], "failed");
    assert_eq!(runs[0].status.clone().unwrap().message, "no stock");
    assert_eq!(texts(&runs[1].attributes)["lapsed.result"], "succeeded");
}

#[tokio::test]
async fn the_run_of_a_worker_that_does_not_report_ends_with_its_lease() {
    let collector = Collector::start(Mood::Take).await;
    let daemon = daemon(&collector, &[]).await;
    let member = format!(r#","traceparent":"{}""#, traceparent("01"));
    daemon.create("Job@brief@1", &member, "").await;
    let (_, given) = daemon.take("brief").await;
    let spans = collector.trace(TRACE, 3).await;
    let run = named(&spans, "run Job@brief");
    assert_eq!(given, format!("00-{TRACE}-{}-01", hex(&run.span_id)));
    assert_eq!(texts(&run.attributes)["error.type"], "unreported");
    assert!(run.end_time_unix_nano - run.start_time_unix_nano >= 1_000_000_000);
}

#[tokio::test]
async fn a_trace_that_its_caller_does_not_sample_is_passed_on_and_not_sent() {
    let collector = Collector::start(Mood::Take).await;
    let mut daemon = daemon(&collector, &[]).await;
    let member = format!(r#","traceparent":"{}""#, traceparent("00"));
    daemon.create("Job@tell@1", &member, "").await;
    daemon.until_done("Job@tell@1").await;
    daemon.terminate();
    assert!(daemon.until_ended().await.success());
    let told = daemon.told().remove(0);
    assert!(
        told.starts_with(&format!("00-{TRACE}-")) && told.ends_with("-00"),
        "{told}"
    );
    assert!(collector.spans().is_empty(), "{:#?}", collector.spans());
    assert!(collector.requests() > 0, "metrics are sent at the stop");
}

#[tokio::test]
async fn the_sampler_and_the_resource_come_from_the_environment() {
    let collector = Collector::start(Mood::Take).await;
    let url = collector.url();
    let env = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
        ("OTEL_TRACES_SAMPLER", "parentbased_always_off"),
        ("OTEL_SERVICE_NAME", "auctions"),
        (
            "OTEL_RESOURCE_ATTRIBUTES",
            "deployment.environment.name=test",
        ),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20key"),
        SOON,
    ];
    let daemon = Daemon::start("", &env).await;
    daemon.create("Job@tell@1", "", "").await;
    daemon.until_done("Job@tell@1").await;
    let member = format!(r#","traceparent":"{}""#, traceparent("01"));
    daemon.create("Job@tell@2", &member, "").await;
    let spans = collector.trace(TRACE, 4).await;
    assert_eq!(
        collector.spans().len(),
        spans.len(),
        "only the sampled trace"
    );
    let resource = collector.resource();
    assert_eq!(resource["service.name"], "auctions");
    assert_eq!(resource["deployment.environment.name"], "test");
    assert_eq!(collector.headers()["api-key"], "a key");
}
