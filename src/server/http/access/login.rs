//! Logging in and out with a browser.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Form, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Extension, Router};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tower_http::timeout::TimeoutLayer;

use super::peer::Peer;
use super::{Access, Cookie};
use crate::http::problem::Problem;
use lapsed_core::access::Principal;

/// Where people log in: the page has `?next=` and `?failed=`, the form sends `token` and `next`.
pub(super) const LOGIN: &str = "/login";

/// Where people log out.
pub(super) const LOGOUT: &str = "/logout";

/// Maximum length of the form, in bytes.
const FORM_BYTES_MAX: usize = 8_192;

/// Time for the form to arrive. Anyone may send it, also without credentials.
const FORM_WITHIN: Duration = Duration::from_secs(20);

/// Routes that log in and out.
pub fn routes<S>(access: Arc<Access>) -> Router<S> {
    Router::new()
        .route(LOGIN, post(log_in))
        .route(LOGOUT, post(log_out))
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
        .layer(TimeoutLayer::with_status_code(
            StatusCode::REQUEST_TIMEOUT,
            FORM_WITHIN,
        ))
        .with_state(access)
}

#[derive(Deserialize)]
struct LoginForm {
    token: String,
    /// Where to go, below the base path.
    #[serde(default)]
    next: String,
}

async fn log_in(
    State(access): State<Arc<Access>>,
    Extension(peer): Extension<Peer>,
    Form(form): Form<LoginForm>,
) -> Response {
    let (base, next) = (&access.config.base_path, next_page(&form.next));
    let failed = |why: &str| {
        let next = utf8_percent_encode(next, NON_ALPHANUMERIC);
        see_other(format!("{base}{LOGIN}?failed={why}&next={next}"))
    };
    let Some(cookie) = access.cookie(&peer) else {
        return failed("insecure");
    };
    let client = match access.client_of(form.token.trim(), &peer) {
        Ok(client) => client,
        Err(problem) if problem.status() == StatusCode::TOO_MANY_REQUESTS => {
            tracing::warn!(address = %peer.address_text(), "too many wrong tokens came from an address");
            return failed("locked");
        }
        Err(_) => return failed("token"),
    };
    let Some(value) = access.open(client).await else {
        return failed("token");
    };
    tracing::info!(caller = client.name, address = %peer.address_text(), "logged in over http");
    let seconds = access.config.session_length.as_secs();
    let set = set_cookie(cookie, &value, seconds);
    with_cookie(see_other(format!("{base}{next}")), set)
}

async fn log_out(
    State(access): State<Arc<Access>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let session = access.session(&headers, &peer).await;
    if let Some((session, _)) = session {
        access.sessions.end(&session).await?;
    }
    let response = see_other(format!("{}{LOGIN}", access.config.base_path));
    Ok(match access.cookie(&peer) {
        Some(cookie) => with_cookie(response, set_cookie(cookie, "", 0)),
        None => response,
    })
}

impl Access {
    /// Opens a session for a client with a token.
    async fn open(&self, client: &Principal) -> Option<String> {
        let hash = client.token_hash()?;
        Some(self.sessions.open(&client.name, hash).await)
    }
}

/// Returns the page to go to. Only a path of this site: `//host` and `/\host` would be others.
fn next_page(next: &str) -> &str {
    let is_path = next.starts_with('/')
        && !next.starts_with("//")
        && !next.contains('\\')
        && next.bytes().all(|byte| byte.is_ascii_graphic());
    match is_path {
        true => next,
        false => "/",
    }
}

fn set_cookie(cookie: Cookie, value: &str, seconds: u64) -> String {
    let secure = match cookie {
        Cookie::Secure => "; Secure",
        Cookie::Plain => "",
    };
    let name = cookie.name();
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}")
}

fn with_cookie(mut response: Response, set: String) -> Response {
    if let Ok(set) = set.try_into() {
        response.headers_mut().append(header::SET_COOKIE, set);
    }
    response
}

fn see_other(location: String) -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_after_logging_in_is_of_this_site() {
        for page in ["/", "/tasks?class=Order", "/task?key=a%40b"] {
            assert_eq!(next_page(page), page);
        }
        for other in [
            "",
            "tasks",
            "//evil.example",
            "/\\evil.example",
            "\\\\evil.example",
            "https://evil.example",
            "javascript:alert(1)",
            "/a\r\nSet-Cookie: x=y",
            "/\tevil",
        ] {
            assert_eq!(next_page(other), "/", "{other}");
        }
    }
}
