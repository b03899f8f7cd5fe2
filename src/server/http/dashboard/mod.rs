//! The dashboard: pages for people, rendered on the server.
//!
//! A page is a [`Frame`](frame::Frame) with [panels](panel::Panel). A panel is loaded by itself, both into its page and from
//! `/panels/<name>`, so that one that fails or waits does not affect the others. Reading needs no JavaScript; changes are
//! made by JavaScript that calls the API.
//!
//! A new page of one panel is a module with its [`texts!`](texts::texts), the [`Page`] and the template of its
//! content, a [`Place`](frame::Place), and a line in the navigation of `frame`. A page of another form has `routes` and a
//! template that extends `layout.html`.

mod assets;
mod audit;
mod call_button;
mod daemons;
mod dead;
mod doctor;
mod frame;
mod indented;
mod login;
mod moment;
mod overview;
mod panel;
mod pauses;
mod phrases;
mod preferences;
mod queues;
mod reasons;
mod recurring;
mod row;
mod schedule;
mod series;
mod steps;
mod task;
mod tasks;
mod texts;
mod timeline;
mod upcoming;

use askama::Template;
use axum::Router;
use axum::extract::{FromRequestParts as _, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;

use self::frame::{Frame, Place, encoded};
use self::panel::{Panel, Source};
use self::texts::Language;
use super::app_state::AppState;
use super::problem::Problem;

/// Routes of the dashboard.
pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/assets/{version}/{name}", get(assets::serve))
        .route("/preferences", get(preferences::change))
        .merge(login::routes())
        .merge(overview::routes())
        .merge(upcoming::routes())
        .merge(tasks::routes())
        .merge(task::routes())
        .merge(schedule::routes())
        .merge(page::<dead::List>())
        .merge(page::<recurring::List>())
        .merge(pauses::routes())
        .merge(page::<queues::List>())
        .merge(page::<daemons::List>())
        .merge(page::<doctor::List>())
        .merge(page::<audit::List>())
        .route("/panels/state", get(state))
        .fallback(nothing_here)
        .layer(CompressionLayer::new().quality(CompressionLevel::Fastest))
}

/// What every page says of the installation: whether the ledger answers, and what is worst, for the title and the icon.
#[derive(Template)]
#[template(path = "state.html")]
struct StatePart<'a> {
    f: &'a Frame,
    worst: Option<overview::Shown>,
}

async fn state(State(app): State<AppState>, f: Frame) -> Response {
    let worst = overview::worst(&app, &f).await;
    f.page(&StatePart { f: &f, worst })
}

/// What a person sees at an address that does not exist.
#[derive(Template)]
#[template(path = "nothing_here.html")]
struct NothingHere<'a> {
    f: &'a Frame,
}

async fn nothing_here(State(app): State<AppState>, request: Request) -> Response {
    let (mut parts, _) = request.into_parts();
    let accepted = parts.headers.get(header::ACCEPT);
    let is_browser = accepted.is_some_and(|accepted| {
        accepted
            .to_str()
            .is_ok_and(|accepted| accepted.contains("text/html"))
    });
    if !is_browser {
        return StatusCode::NOT_FOUND.into_response();
    }
    match Frame::from_request_parts(&mut parts, &app).await {
        Ok(f) => (StatusCode::NOT_FOUND, f.page(&NothingHere { f: &f })).into_response(),
        Err(refusal) => refusal,
    }
}

/// The content of a panel.
pub trait PanelContent {
    /// The name of the panel: it is loaded again from `/panels/<name>`.
    const NAME: &'static str;
    /// What it shows: see [`Source::shows`].
    const SHOWS: &'static str;
    /// False for content that is the same for all classes: a caller that is restricted to some of them does not see it.
    const IS_PER_CLASS: bool = true;
    /// The query of its address, and of the address of its page.
    type Query: DeserializeOwned + Send + Sync;
    /// What is rendered.
    type Content<'a>: Template;

    /// Returns the query as text, without `?`.
    fn address(_query: &Self::Query) -> String {
        String::new()
    }

    /// Loads the content.
    fn load<'a>(
        app: &'a AppState,
        f: &'a Frame,
        query: &'a Self::Query,
    ) -> impl Future<Output = Result<Self::Content<'a>, Problem>> + Send;
}

/// The query of what has none.
#[derive(Debug, Default, Deserialize)]
pub struct NoQuery {}

/// Loads a panel.
pub async fn panel<P: PanelContent>(app: &AppState, f: &Frame, query: &P::Query) -> Panel {
    let source = Source {
        name: P::NAME,
        query: P::address(query),
        shows: P::SHOWS,
    };
    let content = P::load(app, f, query);
    match P::IS_PER_CLASS {
        true => Panel::load(f, source, content).await,
        false => Panel::load_unrestricted(f, source, content).await,
    }
}

/// The route of a panel.
pub fn panel_route<P: PanelContent + 'static>() -> Router<AppState> {
    async fn serve<P: PanelContent>(
        State(app): State<AppState>,
        f: Frame,
        Query(query): Query<P::Query>,
    ) -> Panel {
        panel::<P>(&app, &f, &query).await
    }
    Router::new().route(&format!("/panels/{}", P::NAME), get(serve::<P>))
}

/// A page of one panel, which has the same name.
pub trait Page: PanelContent {
    /// Its place in the navigation.
    const PLACE: Place;

    /// What is above the panel.
    fn head(language: Language) -> Head;
}

/// The head of a page.
#[derive(Debug)]
pub struct Head {
    title: &'static str,
    lead: &'static str,
    link: Option<(&'static str, &'static str)>,
    script: Option<&'static str>,
}

impl Head {
    /// A title, and what the page shows in a sentence.
    pub fn new(title: &'static str, lead: &'static str) -> Self {
        Self {
            title,
            lead,
            link: None,
            script: None,
        }
    }

    /// Adds a link to a path below the base.
    #[must_use]
    pub fn link(self, path: &'static str, name: &'static str) -> Self {
        Self {
            link: Some((path, name)),
            ..self
        }
    }

    /// Adds a script that the page needs besides those of every page.
    #[must_use]
    pub fn script(self, name: &'static str) -> Self {
        Self {
            script: Some(name),
            ..self
        }
    }
}

/// A parameter as a query; empty if the parameter is.
pub fn parameter(name: &str, value: &str) -> String {
    match value {
        "" => String::new(),
        value => format!("{name}={}", encoded(value)),
    }
}

#[derive(Template)]
#[template(path = "page.html")]
struct Rendered<'a> {
    f: &'a Frame,
    head: Head,
    panel: Panel,
}

/// The routes of a page and its panel.
fn page<P: Page + 'static>() -> Router<AppState> {
    async fn serve<P: Page>(
        State(app): State<AppState>,
        frame: Frame,
        Query(query): Query<P::Query>,
    ) -> Response {
        let f = frame.at(P::PLACE);
        let panel = panel::<P>(&app, &f, &query).await;
        f.page(&Rendered {
            f: &f,
            head: P::head(f.language()),
            panel,
        })
    }
    panel_route::<P>().route(&format!("/{}", P::NAME), get(serve::<P>))
}
