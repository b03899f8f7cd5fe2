//! The gate: what every request passes before its handler.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderName, HeaderValue, Method, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use tower_http::csrf::{CsrfLayer, ProtectionError};

use super::Access;
use super::caller::Identified;
use super::host;
use super::login::{LOGIN, LOGOUT};
use super::peer::Peer;
use crate::http::problem::{Problem, ProblemKind};
use lapsed::config::HttpConfig;

/// Probes, which orchestrators send to any name and address.
pub const PROBES: [&str; 2] = ["/healthz", "/readyz"];

/// Headers of every response, unless its handler sets them. Nothing is loaded from elsewhere, nothing is inline, and no other
/// page shows this one in a frame.
const HEADERS: [(HeaderName, HeaderValue); 8] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
             connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        ),
    ),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (
        header::REFERRER_POLICY,
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("permissions-policy"),
        HeaderValue::from_static("camera=(), geolocation=(), microphone=()"),
    ),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
];

/// Puts the gate in front of all routes.
pub fn gate(access: Arc<Access>, routes: Router) -> Router {
    let mut csrf = CsrfLayer::new();
    for host in &access.config.hosts {
        // Browsers that do not tell the site of a request, behind a proxy that changes `Host`.
        if let Ok(trusting) = csrf.clone().add_trusted_origin(format!("https://{host}")) {
            csrf = trusting;
        }
    }
    let csrf = csrf.with_rejection_response(refuse_origin as fn(ProtectionError) -> Response<Body>);
    // A layer of `routes` itself would see a request after it was routed, too late to take off the base path.
    Router::new()
        .fallback_service(routes)
        .layer(csrf)
        .layer(from_fn_with_state(access, pass))
}

async fn pass(State(access): State<Arc<Access>>, mut request: Request, next: Next) -> Response {
    take_off_base(request.uri_mut(), &access.config.base_path);
    let mut response = match admit(&access, &mut request).await {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.entry(name).or_insert(value);
    }
    response
}

/// Refuses what must not pass, and finds out who calls.
async fn admit(access: &Access, request: &mut Request) -> Result<(), Problem> {
    let connected = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let connected = connected.map(|ConnectInfo(address)| address.ip());
    let peer = Peer::of(connected, request.headers_mut(), &access.config.proxy)?;
    if PROBES.contains(&request.uri().path()) {
        return Ok(());
    }
    host::check(request.uri(), request.headers(), &access.config)?;
    refuse_other_sites(request)?;
    refuse_change(request, &access.config)?;
    let caller = access.identify(request.headers(), &peer).await;
    request.extensions_mut().insert(Identified(caller));
    request.extensions_mut().insert(peer);
    Ok(())
}

/// Refuses what another site has a browser load, except for a link that was followed.
fn refuse_other_sites(request: &Request) -> Result<(), Problem> {
    let value = |name| {
        let value = request.headers().get(name);
        value.map_or("", |value: &HeaderValue| value.to_str().unwrap_or_default())
    };
    let is_link = is_safe(request.method())
        && value("sec-fetch-mode") == "navigate"
        && value("sec-fetch-dest") == "document";
    match value("sec-fetch-site") {
        "cross-site" | "same-site" if !is_link => Err(cross_origin()),
        _ => Ok(()),
    }
}

fn refuse_change(request: &Request, config: &HttpConfig) -> Result<(), Problem> {
    let of_session = [LOGIN, LOGOUT].contains(&request.uri().path());
    if !config.read_only || of_session || is_safe(request.method()) {
        return Ok(());
    }
    Err(Problem::of(
        ProblemKind::ReadOnly,
        "`http.read_only` is set in the configuration of lapsed",
    ))
}

fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

fn refuse_origin(_: ProtectionError) -> Response {
    cross_origin().into_response()
}

fn cross_origin() -> Problem {
    Problem::of(
        ProblemKind::CrossOrigin,
        "expected a request of the dashboard itself, or of a program; behind a proxy, see `http.hosts`",
    )
}

/// Takes the base path off an address. A proxy may have done so already.
fn take_off_base(uri: &mut Uri, base: &str) {
    let Some(path) = uri.path_and_query().map(PathAndQuery::as_str) else {
        return;
    };
    let Some(rest) = below(path, base) else {
        return;
    };
    let rest = match rest.starts_with('/') {
        true => rest.to_owned(),
        false => format!("/{rest}"),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = rest.parse().ok();
    if let Ok(below) = Uri::from_parts(parts) {
        *uri = below;
    }
}

/// Returns what follows the base path; `None` if the path is not below it.
fn below<'a>(path: &'a str, base: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(base).filter(|_| !base.is_empty())?;
    (rest.is_empty() || rest.starts_with(['/', '?'])).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_path_is_taken_off_whole() {
        for (path, expected) in [
            ("/lapsed", "/"),
            ("/lapsed/", "/"),
            ("/lapsed/tasks?a=b", "/tasks?a=b"),
            ("/lapsed?a=b", "/?a=b"),
            ("/lapsed/lapsed/x", "/lapsed/x"),
            ("/tasks", "/tasks"),
            ("/lapsedtasks", "/lapsedtasks"),
            ("/lapsed//evil.example", "//evil.example"),
        ] {
            let mut uri: Uri = path.parse().unwrap();
            take_off_base(&mut uri, "/lapsed");
            assert_eq!(uri.to_string(), expected);
        }
        let mut uri: Uri = "/tasks".parse().unwrap();
        take_off_base(&mut uri, "");
        assert_eq!(uri.to_string(), "/tasks");
    }
}
