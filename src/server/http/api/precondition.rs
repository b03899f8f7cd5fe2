//! `If-Match`: a change is made only if the task is still of the arming that the caller has seen.

use axum::extract::FromRequestParts;
use axum::http::header;
use axum::http::request::Parts;

use crate::http::problem::{Problem, ProblemKind};
use lapsed::task::Arming;

/// The arming that the header `If-Match` names; `None` without the header, or with `*`.
pub struct IfMatch(pub Option<Arming>);

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let mut given = parts.headers.get_all(header::IF_MATCH).iter();
        let (Some(value), None) = (given.next(), given.next()) else {
            return match parts.headers.contains_key(header::IF_MATCH) {
                true => Err(unreadable()),
                false => Ok(Self(None)),
            };
        };
        let text = value.to_str().map_err(|_| unreadable())?.trim();
        match text {
            "*" => Ok(Self(None)),
            _ => parse(text).map(|arming| Self(Some(arming))),
        }
    }
}

/// Refuses a condition where a change cannot depend on it: a client that sends one relies on it.
pub struct Unconditional;

impl<S: Send + Sync> FromRequestParts<S> for Unconditional {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        const CONDITIONS: [header::HeaderName; 3] = [
            header::IF_MATCH,
            header::IF_NONE_MATCH,
            header::IF_UNMODIFIED_SINCE,
        ];
        let given = CONDITIONS
            .iter()
            .find(|name| parts.headers.contains_key(*name));
        match given {
            None => Ok(Self),
            Some(name) => Err(Problem::invalid(format!(
                "`{name}` is not supported here: expected it with `PATCH` or `DELETE` as `If-Match`, or `if_pending` in the body"
            ))),
        }
    }
}

fn unreadable() -> Problem {
    Problem::invalid(
        "expected `If-Match` with one `ETag` of this task, such as `\"42-1795291200250\"`",
    )
}

fn parse(text: &str) -> Result<Arming, Problem> {
    let id = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    id.unwrap_or(text).parse().map_err(|_| unreadable())
}

/// The task is not of the arming that the caller has seen.
pub fn changed_meanwhile() -> Problem {
    Problem::of(
        ProblemKind::ChangedMeanwhile,
        "`If-Match` names another arming than the task has, or there is no such task",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapsed::task::UnixMs;

    #[test]
    fn an_arming_is_read_with_and_without_quotes() {
        let arming = Arming {
            row: 42,
            due: UnixMs(1_795_291_200_250),
        };
        for text in ["\"42-1795291200250\"", "42-1795291200250"] {
            assert_eq!(parse(text).ok(), Some(arming), "{text}");
        }
        for text in [
            "",
            "\"\"",
            "42",
            "a-b",
            "W/\"42-1795291200250\"",
            "\"1-2\", \"3-4\"",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
