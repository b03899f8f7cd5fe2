//! The dashboard: pages for people, rendered on the server.
//!
//! A page is a [`Frame`](frame::Frame) with [panels](panel::Panel). A panel is loaded by itself, both into its page and from
//! `/panels/<name>`, so that one that fails or waits does not affect the others. Reading needs no JavaScript; changes are
//! made by JavaScript that calls the API.
//!
//! A new page of one panel is a module with its [`texts!`](texts::texts), the [`Page`](page::Page) and the template of its
//! content, a [`Place`](frame::Place), and a line in the navigation of `frame`. A page of another form has `routes` and a
//! template that extends `layout.html`.

mod assets;
mod audit;
mod daemons;
mod dead;
mod doctor;
mod figures;
mod frame;
mod login;
mod moment;
mod overview;
mod page;
mod panel;
mod pauses;
mod phrases;
mod preferences;
mod queues;
mod reasons;
mod recurring;
mod row;
mod schedule;
mod task;
mod tasks;
mod texts;
mod timeline;
mod upcoming;

use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::get;
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;

pub use self::figures::Figures;
use self::frame::Frame;
use super::site::Site;

/// Routes of the dashboard.
pub fn routes() -> Router<Site> {
    Router::new()
        .route("/assets/{version}/{name}", get(assets::serve))
        .route("/preferences", get(preferences::change))
        .merge(login::routes())
        .merge(overview::routes())
        .merge(upcoming::routes())
        .merge(tasks::routes())
        .merge(task::routes())
        .merge(schedule::routes())
        .merge(page::routes::<dead::List>())
        .merge(page::routes::<recurring::List>())
        .merge(pauses::routes())
        .merge(page::routes::<queues::List>())
        .merge(page::routes::<daemons::List>())
        .merge(page::routes::<doctor::List>())
        .merge(page::routes::<audit::List>())
        .route("/panels/ledger", get(ledger))
        .layer(CompressionLayer::new().quality(CompressionLevel::Fastest))
}

/// Whether the ledger answers, which every page says.
#[derive(Template)]
#[template(
    path = "ledger_banner.html",
    config = "src/http/dashboard/templates/askama.toml"
)]
struct LedgerBanner<'a> {
    f: &'a Frame,
}

async fn ledger(f: Frame) -> Response {
    f.page(&LedgerBanner { f: &f })
}
