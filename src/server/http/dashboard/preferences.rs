//! What a browser prefers: language, theme and time zone, kept in cookies.

use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use jiff::tz::TimeZone;
use serde::Deserialize;

use super::texts::Language;
use crate::http::app_state::AppState;

const LANGUAGE: &str = "lapsed_lang";
const THEME: &str = "lapsed_theme";
/// Set by JavaScript, too: the zone of the browser.
const ZONE: &str = "lapsed_zone";

/// The colours of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Theme {
    /// As the system is set.
    #[default]
    Auto,
    /// Dark text on a light ground.
    Light,
    /// Light text on a dark ground.
    Dark,
}

impl Theme {
    /// Its name in cookies and HTML.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    fn of(name: &str) -> Option<Self> {
        let all = [Self::Auto, Self::Light, Self::Dark];
        all.into_iter().find(|theme| theme.as_str() == name)
    }
}

/// What a browser prefers.
#[derive(Debug, Clone)]
pub struct Preferences {
    /// The language of texts.
    pub language: Language,
    /// The colours.
    pub theme: Theme,
    /// The time zone of times; UTC unless the browser has told its own.
    pub zone: TimeZone,
    /// True if the browser has told its zone.
    pub has_zone: bool,
}

impl Preferences {
    /// Reads the preferences of a request: cookies, then `Accept-Language`.
    pub fn of(headers: &HeaderMap) -> Self {
        let accepted = headers.get(header::ACCEPT_LANGUAGE);
        let accepted = accepted.and_then(|header| Language::accepted(header.to_str().ok()?));
        let language = cookie(headers, LANGUAGE).and_then(Language::of_tag);
        let zone = cookie(headers, ZONE).and_then(|name| TimeZone::get(name).ok());
        Self {
            language: language.or(accepted).unwrap_or_default(),
            theme: cookie(headers, THEME)
                .and_then(Theme::of)
                .unwrap_or_default(),
            has_zone: zone.is_some(),
            zone: zone.unwrap_or(TimeZone::UTC),
        }
    }
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let cookies = headers.get_all(header::COOKIE).into_iter();
    let cookies = cookies.filter_map(|header| header.to_str().ok());
    let mut cookies = cookies.flat_map(|header| header.split(';'));
    cookies.find_map(|cookie| cookie.trim().strip_prefix(name)?.strip_prefix('='))
}

/// A change of preferences, in the query of a link.
#[derive(Deserialize)]
pub(super) struct Changed {
    lang: Option<String>,
    theme: Option<String>,
    zone: Option<String>,
    /// Path of the page to return to.
    #[serde(default)]
    back: String,
}

/// Stores preferences in cookies, and returns to the page.
pub(super) async fn change(
    State(app): State<AppState>,
    Query(changed): Query<Changed>,
) -> Response {
    let base = &app.config.base_path;
    let language = changed.lang.as_deref().and_then(Language::of_tag);
    let theme = changed.theme.as_deref().and_then(Theme::of);
    let zone = changed.zone.filter(|name| TimeZone::get(name).is_ok());
    let cookies = [
        (LANGUAGE, language.map(|language| language.tag().to_owned())),
        (THEME, theme.map(|theme| theme.as_str().to_owned())),
        (ZONE, zone),
    ];
    let mut response = StatusCode::SEE_OTHER.into_response();
    let headers = response.headers_mut();
    for (name, value) in cookies {
        let Some(value) = value else { continue };
        let cookie = format!("{name}={value}; Path={base}/; Max-Age=31536000; SameSite=Lax");
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            headers.append(header::SET_COOKIE, cookie);
        }
    }
    let back = match is_path(&changed.back) {
        true => HeaderValue::from_str(&format!("{base}{}", changed.back)).ok(),
        false => None,
    };
    let overview = || HeaderValue::from_str(&format!("{base}/")).ok();
    if let Some(location) = back.or_else(overview) {
        headers.insert(header::LOCATION, location);
    }
    response
}

/// True for a path of this site. Browsers take `//host` and `/\host` for another site.
fn is_path(text: &str) -> bool {
    let is_plain = text
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    is_plain && text.starts_with('/') && !text.starts_with("//")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_path_of_this_site_is_returned_to() {
        for (text, expected) in [
            ("/tasks?state=dead", true),
            ("/", true),
            ("//evil.example/", false),
            ("/\\evil.example", false),
            ("https://evil.example/", false),
            ("/a\r\nSet-Cookie: a=b", false),
            ("", false),
        ] {
            assert_eq!(is_path(text), expected, "{text}");
        }
    }

    #[test]
    fn a_cookie_is_read_by_its_whole_name() {
        let mut headers = HeaderMap::new();
        let cookies = "xlapsed_lang=en; lapsed_langs=en; lapsed_lang=zh; lapsed_zone=Asia/Shanghai";
        headers.insert(header::COOKIE, HeaderValue::from_static(cookies));
        let Preferences {
            language,
            theme,
            zone,
            has_zone,
        } = Preferences::of(&headers);
        assert_eq!((language, theme), (Language::Chinese, Theme::Auto));
        assert_eq!((zone.iana_name(), has_zone), (Some("Asia/Shanghai"), true));
    }
}
