//! Progress of a change of many tasks: an answer of JSON lines that grows while the work goes on.

use std::future::Future;
use std::ops::ControlFlow;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use crate::http::app_state::AppState;
use crate::http::problem::Problem;
use lapsed::client::CancelReport;

/// Shortest interval between two lines.
const EVERY: Duration = Duration::from_millis(200);

/// Lines that a slow client may be behind. Further ones are left out, except the last.
const BEHIND_MAX: usize = 4;

/// How far the work is. Each line has all numbers so far.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct ProgressLine {
    /// True if nothing is changed: the numbers are those of tasks that match.
    pub dry_run: bool,
    /// Tasks that were changed, or would be.
    pub tasks: u64,
    /// Cancellation: tasks that are running. No further attempt of them starts.
    pub running: u64,
    /// Tasks that are unchanged, since another session has locked them.
    pub skipped: u64,
    /// Dry run: true if counting ended early. There are at least as many.
    pub at_least: bool,
    /// True for the last line.
    pub done: bool,
    /// Why the work ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

impl ProgressLine {
    /// Takes over the numbers of a cancellation.
    pub fn count(&mut self, report: CancelReport) {
        let CancelReport {
            cancelled,
            running,
            locked,
        } = report;
        (self.tasks, self.running, self.skipped) = (cancelled, running, locked);
    }
}

/// Sends a client the progress of a bulk operation.
pub struct Progress {
    lines: mpsc::Sender<Bytes>,
    stopping: CancellationToken,
    sent: Option<Instant>,
}

impl Progress {
    /// Sends the numbers so far. Breaks when the client has left or the daemon stops: the operation ends there.
    pub fn send(&mut self, line: &ProgressLine) -> ControlFlow<()> {
        if self.lines.is_closed() || self.stopping.is_cancelled() {
            return ControlFlow::Break(());
        }
        if self.sent.is_none_or(|sent| sent.elapsed() >= EVERY) {
            self.sent = Some(Instant::now());
            // A slow client gets the numbers with the next line.
            let _ = self.lines.try_send(text(line));
        }
        ControlFlow::Continue(())
    }
}

/// Answers with the lines of `work`, which goes on in a task of its own. Its result is the last line.
pub fn respond<F>(app: &AppState, work: impl FnOnce(Progress) -> F) -> Response
where
    F: Future<Output = ProgressLine> + Send + 'static,
{
    let (lines, sent) = mpsc::channel(BEHIND_MAX);
    let progress = Progress {
        lines: lines.clone(),
        stopping: app.stopping.clone(),
        sent: None,
    };
    let working = work(progress);
    app.work.spawn(async move {
        let line = ProgressLine {
            done: true,
            ..working.await
        };
        // The client may have left.
        let _ = lines.send(text(&line)).await;
    });
    let body = Body::from_stream(ReceiverStream::new(sent).map(Ok::<_, std::convert::Infallible>));
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/x-ndjson"),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // nginx would hold the lines back.
        (
            header::HeaderName::from_static("x-accel-buffering"),
            HeaderValue::from_static("no"),
        ),
    ];
    (headers, body).into_response()
}

fn text(line: &ProgressLine) -> Bytes {
    let mut text = serde_json::to_vec(line).expect("numbers and texts can be written as JSON");
    text.push(b'\n');
    text.into()
}
