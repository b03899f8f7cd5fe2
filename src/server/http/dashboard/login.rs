//! The page on which people log in with a token.

use askama::Template;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{Html, IntoResponse as _, Redirect, Response};
use axum::routing::get;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::assets;
use super::preferences::Preferences;
use super::texts::texts;
use crate::http::app_state::AppState;
use crate::http::problem::Problem;

/// Routes of the page. Its form is handled by access.
pub fn routes() -> Router<AppState> {
    Router::new().route("/login", get(page))
}

texts! {
    /// Texts of the page.
    LoginTexts {
        title: "Log in", "登录";
        token: "Token", "令牌";
        hint: "A token of `[[http.clients]]` in the configuration of lapsed. `lapsed token` makes one.", "使用 lapsed 配置中 `[[http.clients]]` 的令牌。可用 `lapsed token` 生成。";
        log_in: "Log in", "登录";
        wrong: "There is no client with this token.", "没有使用此令牌的客户端。";
        locked: "Too many wrong tokens came from your address. Try again in a minute.", "您的地址输入错误令牌次数过多，请一分钟后重试。";
        insecure: "This connection is not HTTPS, so your token could be read on the way. Use HTTPS, with the proxy in `http.proxy.networks`.", "此连接不是 HTTPS，令牌可能被窃取。请使用 HTTPS，并将代理加入 `http.proxy.networks`。";
    }
}

#[derive(Deserialize)]
struct Asked {
    /// Where to go afterwards, below the base path.
    #[serde(default)]
    next: String,
    /// Why the last attempt failed.
    #[serde(default)]
    failed: String,
}

#[derive(Template)]
#[template(path = "login.html")]
struct Page {
    t: &'static LoginTexts,
    lang: &'static str,
    theme: &'static str,
    base: String,
    style: String,
    icon: String,
    next: String,
    failed: Option<&'static str>,
}

async fn page(
    State(app): State<AppState>,
    headers: HeaderMap,
    Query(Asked { next, failed }): Query<Asked>,
) -> Response {
    let base = app.config.base_path.clone();
    if !app.access.has_tokens() {
        return Redirect::to(&format!("{base}/")).into_response();
    }
    let preferences = Preferences::of(&headers);
    let t = LoginTexts::of(preferences.language);
    let page = Page {
        t,
        lang: preferences.language.tag(),
        theme: preferences.theme.as_str(),
        style: format!("{base}{}", assets::path("app.css")),
        icon: format!("{base}{}", assets::path("icon.svg")),
        base,
        next,
        failed: match failed.as_str() {
            "" => None,
            "locked" => Some(t.locked),
            "insecure" => Some(t.insecure),
            _ => Some(t.wrong),
        },
    };
    match page.render() {
        Ok(html) => Html(html).into_response(),
        Err(error) => {
            tracing::error!(%error, "could not render a page");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Answers a request for a page that the gate or the scopes refuse. A browser without credentials is sent to the login, and
/// from there back to the page.
pub fn refuse(request: &Parts, app: &AppState, problem: Problem) -> Response {
    let asks_for_page = request.method == Method::GET && accepts_html(&request.headers);
    if problem.status() != StatusCode::UNAUTHORIZED || !asks_for_page || !app.access.has_tokens() {
        return problem.into_response();
    }
    let page = request.uri.path_and_query();
    let page = page.map_or("/", |page| page.as_str());
    let next = utf8_percent_encode(page, NON_ALPHANUMERIC);
    Redirect::to(&format!("{}/login?next={next}", app.config.base_path)).into_response()
}

fn accepts_html(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT);
    accept.is_some_and(|accept| accept.to_str().unwrap_or_default().contains("text/html"))
}
