//! Panels: parts of a page that are loaded, updated and fail by themselves.

use std::fmt;
use std::time::Duration;

use askama::Template;
use askama::filters::HtmlSafe;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{Html, IntoResponse, Response};

use super::frame::Frame;
use super::texts::fill;
use crate::http::problem::{Problem, ProblemKind};
use lapsed::task::UnixMs;

/// The header of a panel that has the time of the ledger, in milliseconds since 1970.
const NOW: HeaderName = HeaderName::from_static("lapsed-now");

/// A panel that takes longer shows that instead.
const LONGEST: Duration = Duration::from_secs(3);

/// The same while the ledger is known not to answer.
const LONGEST_WITHOUT_LEDGER: Duration = Duration::from_millis(500);

/// Where a panel comes from.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its name: it is loaded again from `/panels/<name>`.
    pub name: &'static str,
    /// The query of that address, without `?`.
    pub query: String,
    /// What it shows, in the words of `GET /v1/events`, separated by spaces. JavaScript loads it again when one of them has
    /// changed.
    pub shows: &'static str,
}

/// A part of a page. In a template, `{{ panel }}` is the whole element.
#[derive(Debug)]
pub struct Panel {
    source: Source,
    base: String,
    /// When it was asked for, by the ledger's clock.
    at: UnixMs,
    status: StatusCode,
    html: String,
}

impl Panel {
    /// Loads a panel. A failure, or a wait of more than 3 s, becomes its content. If the ledger does not answer, the content
    /// says that, and waits less.
    pub async fn load<T: Template>(
        frame: &Frame,
        source: Source,
        content: impl Future<Output = Result<T, Problem>>,
    ) -> Self {
        let longest = match frame.ledger_gone() {
            Some(_) => LONGEST_WITHOUT_LEDGER,
            None => LONGEST,
        };
        let loaded = tokio::time::timeout(longest, content).await;
        let (status, html) = match loaded {
            Ok(Ok(content)) => match content.render() {
                Ok(html) => (StatusCode::OK, html),
                Err(error) => {
                    tracing::error!(panel = source.name, %error, "could not render a panel");
                    let status = StatusCode::INTERNAL_SERVER_ERROR;
                    failed(frame, status, None, &error.to_string())
                }
            },
            Ok(Err(problem)) => {
                // The engine may not have noticed yet.
                let gone = problem
                    .is(ProblemKind::LedgerUnavailable)
                    .then(|| frame.ledger_gone())
                    .map(|known| known.unwrap_or_else(|| frame.ledger_fails()));
                failed(frame, problem.status(), gone, problem.detail())
            }
            Err(_) => {
                let detail = fill(frame.t.panel_late, &[&longest.as_secs().to_string()]);
                let gone = frame.ledger_gone();
                failed(frame, StatusCode::GATEWAY_TIMEOUT, gone, &detail)
            }
        };
        Self {
            source,
            base: frame.base.clone(),
            at: frame.now,
            status,
            html,
        }
    }

    /// As [`load`](Self::load), for content about all classes: a class-restricted caller reads that it is.
    pub async fn load_unrestricted<T: Template>(
        frame: &Frame,
        source: Source,
        content: impl Future<Output = Result<T, Problem>>,
    ) -> Self {
        if !frame.caller.is_restricted() {
            return Self::load(frame, source, content).await;
        }
        let about_all_classes = AboutAllClasses { f: frame };
        Self {
            source,
            base: frame.base.clone(),
            at: frame.now,
            status: StatusCode::FORBIDDEN,
            html: about_all_classes.render().unwrap_or_default(),
        }
    }
}

/// Says why a caller that is restricted to some classes does not see a panel.
#[derive(Template)]
#[template(
    source = "<p class=\"quiet\">{{ f.t.about_all_classes }}</p>",
    ext = "html"
)]
struct AboutAllClasses<'a> {
    f: &'a Frame,
}

fn failed(
    frame: &Frame,
    status: StatusCode,
    gone: Option<String>,
    detail: &str,
) -> (StatusCode, String) {
    let failed = Failed {
        f: frame,
        is_retried: status.is_server_error(),
        gone,
        detail,
    };
    (status, failed.render().unwrap_or_default())
}

/// What a panel that failed shows.
#[derive(Template)]
#[template(path = "panel_failed.html")]
struct Failed<'a> {
    f: &'a Frame,
    /// True if it may succeed later.
    is_retried: bool,
    /// Says that the ledger does not answer, if that is why.
    gone: Option<String>,
    detail: &'a str,
}

#[derive(Template)]
#[template(
    source = "<div class=\"panel\" id=\"panel-{{ source.name }}\" data-panel=\"{{ base }}/panels/{{ source.name }}{% if !source.query.is_empty() %}?{{ source.query }}{% endif %}\" data-shows=\"{{ source.shows }}\" data-at=\"{{ at.0 }}\">{{ html|safe }}</div>",
    ext = "html"
)]
struct Element<'a> {
    source: &'a Source,
    base: &'a str,
    at: UnixMs,
    html: &'a str,
}

impl HtmlSafe for Panel {}

impl fmt::Display for Panel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            source,
            base,
            at,
            status: _,
            html,
        } = self;
        let element = Element {
            source,
            base,
            at: *at,
            html,
        };
        element.render_into(f).map_err(|_| fmt::Error)
    }
}

/// The content alone, for `/panels/<name>`.
impl IntoResponse for Panel {
    fn into_response(self) -> Response {
        // The clock of the ledger may have been set since the page was loaded.
        let now = (NOW, HeaderValue::from(self.at.0));
        (self.status, [now], Html(self.html)).into_response()
    }
}
