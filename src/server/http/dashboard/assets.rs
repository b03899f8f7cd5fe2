//! The files of the dashboard: style, scripts and icon. They are part of the program.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};

use lapsed_core::format::hex;

struct Asset {
    name: &'static str,
    kind: &'static str,
    body: &'static [u8],
}

macro_rules! assets {
    ($($name:literal: $kind:literal,)+) => {
        const ASSETS: &[Asset] = &[$(Asset {
            name: $name,
            kind: $kind,
            body: include_bytes!(concat!("assets/", $name)),
        }),+];
    };
}

assets! {
    "actions.js": "text/javascript; charset=utf-8",
    "app.css": "text/css; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "calls.js": "text/javascript; charset=utf-8",
    "charts.js": "text/javascript; charset=utf-8",
    "hints.js": "text/javascript; charset=utf-8",
    "icon-bad.svg": "image/svg+xml",
    "icon-warning.svg": "image/svg+xml",
    "icon.svg": "image/svg+xml",
    "notify.js": "text/javascript; charset=utf-8",
    "uplot-1.6.32.css": "text/css; charset=utf-8",
    "uplot-1.6.32.js": "text/javascript; charset=utf-8",
    "uplot-LICENSE": "text/plain; charset=utf-8",
}

/// Names this version of all files. It is a part of their paths, so that a browser keeps them until they change.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut hash = Sha256::new();
    for Asset { name, kind, body } in ASSETS {
        hash.update(name);
        hash.update(kind);
        hash.update((body.len() as u64).to_le_bytes());
        hash.update(body);
    }
    hex(&hash.finalize()[..8])
});

/// Returns the path of a file below the base path.
pub fn path(name: &str) -> String {
    format!("/assets/{}/{name}", *VERSION)
}

/// Serves a file. They need no credentials: the login page has them, too.
pub(super) async fn serve(
    Path((version, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    // The path of another version, of a page that was loaded before an update, must not be kept under that name.
    let keep = match version == *VERSION {
        true => "public, max-age=31536000, immutable",
        false => "no-cache",
    };
    let tag = format!("\"{}\"", *VERSION);
    let known = headers.get(header::IF_NONE_MATCH);
    let is_known = known.is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let tag = HeaderValue::from_str(&tag).expect("it is made of digits");
    let fields = [
        (header::CACHE_CONTROL, HeaderValue::from_static(keep)),
        (header::ETAG, tag),
        (header::CONTENT_TYPE, HeaderValue::from_static(asset.kind)),
    ];
    match is_known {
        true => (StatusCode::NOT_MODIFIED, fields).into_response(),
        false => (fields, asset.body).into_response(),
    }
}
