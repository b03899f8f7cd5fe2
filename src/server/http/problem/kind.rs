//! The kinds of errors: a closed set, since programs decide by them.

use std::time::Duration;

use axum::http::StatusCode;

/// Declares the kinds: slug, status, title, and what a client does about it.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident: $slug:literal, $status:ident, $title:literal, $remedy:literal;)+) => {
        /// A kind of error.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum ProblemKind {
            $($(#[$doc])* $name),+
        }

        impl ProblemKind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The last part of `type`.
            pub fn slug(self) -> &'static str {
                match self { $(Self::$name => $slug),+ }
            }

            /// The HTTP status.
            pub fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status),+ }
            }

            /// A short text, the same for every error of this kind.
            pub fn title(self) -> &'static str {
                match self { $(Self::$name => $title),+ }
            }

            /// What a client does about it.
            pub fn remedy(self) -> &'static str {
                match self { $(Self::$name => $remedy),+ }
            }
        }
    };
}

kinds! {
    /// The request is not valid.
    Invalid: "invalid", BAD_REQUEST, "the request is not valid",
        "Change the request as `detail` says. The same request is refused again.";
    /// No valid credentials.
    Unauthenticated: "unauthenticated", UNAUTHORIZED, "credentials are required",
        "Send `Authorization: Bearer <token>` with a token of this daemon.";
    /// The caller may not do this.
    Forbidden: "forbidden", FORBIDDEN, "the caller may not do this",
        "Use a token that has the scope and the class that `detail` names.";
    /// Another site had a browser send it.
    CrossOrigin: "other-site", FORBIDDEN, "the request comes from another site",
        "Send it from a page of the dashboard or from a program. Behind a proxy, set `hosts` in `[http]`.";
    /// It is for a host that this daemon is not.
    UnknownHost: "unknown-host", MISDIRECTED_REQUEST, "the request is for another host",
        "Use `localhost` or an address in the URL, or add the name to `hosts` in `[http]`.";
    /// Its address has guessed tokens.
    TooManyGuesses: "too-many-guesses", TOO_MANY_REQUESTS, "too many wrong tokens came from this address",
        "Correct the token, and repeat the request after the time in `Retry-After`.";
    /// No row has this key.
    NoTask: "no-task", NOT_FOUND, "there is no such task",
        "Check the key. Retention may have deleted a finished task.";
    /// No route has this pull queue.
    NoQueue: "no-queue", NOT_FOUND, "there is no such queue",
        "Check the name against the routes of this daemon's configuration.";
    /// No such URL.
    NotFound: "not-found", NOT_FOUND, "there is nothing here",
        "Check the URL. `/openapi.json` lists what there is; a `/` in a key is written as `%2F`.";
    /// Another method is expected.
    MethodNotAllowed: "method-not-allowed", METHOD_NOT_ALLOWED, "the method is not allowed here",
        "Use a method that the header `Allow` names.";
    /// An unfinished task of this key exists.
    Exists: "exists", CONFLICT, "the task exists",
        "The request had `if_pending`: `refuse`. Wait for the task to end, or cancel it.";
    /// The task is running.
    Running: "running", CONFLICT, "the task is running",
        "Repeat the request when the run has ended.";
    /// The task has finished.
    Finished: "finished", CONFLICT, "the task has finished",
        "Create the task again with another due time; redrive it if it is dead.";
    /// The task is not dead.
    NotDead: "not-dead", CONFLICT, "the task is not dead",
        "Only dead tasks are redriven or discarded.";
    /// The claim was lost.
    ClaimLost: "claim-lost", CONFLICT, "the claim was lost",
        "Stop working on the task, and discard what it did. Its lease expired, or the task was created again.";
    /// Nothing is paused by this name.
    NotPaused: "not-paused", NOT_FOUND, "this is not paused",
        "`GET /v1/pauses` lists what is paused. A pause is lifted by the name that it was set with.";
    /// `If-Match` does not fit.
    ChangedMeanwhile: "changed", PRECONDITION_FAILED, "the task has changed",
        "Read the task again, and decide again.";
    /// The same key was used for another request.
    KeyReused: "idempotency-key-reused", UNPROCESSABLE_ENTITY, "this idempotency key belongs to another request",
        "Use a new `Idempotency-Key` for each batch.";
    /// A request with the same key has not ended.
    KeyInUse: "idempotency-key-in-use", CONFLICT, "a request with this idempotency key has not ended",
        "Repeat the request later with the same key.";
    /// The body is too large.
    TooLarge: "too-large", PAYLOAD_TOO_LARGE, "the request is too large",
        "Send fewer tasks at once. A payload has at most 64 KiB.";
    /// The body has another type.
    UnsupportedType: "unsupported-type", UNSUPPORTED_MEDIA_TYPE, "the content type is not supported",
        "Send the `Content-Type` that `detail` names.";
    /// There are too many open requests of this kind.
    TooMany: "too-many", TOO_MANY_REQUESTS, "there are too many requests of this kind",
        "Repeat the request after the time in `Retry-After`.";
    /// The daemon allows only reading.
    ReadOnly: "read-only", FORBIDDEN, "this daemon allows only reading",
        "Use another daemon, or remove `read_only` from `[http]`.";
    /// Another session holds the row.
    Locked: "locked", SERVICE_UNAVAILABLE, "another session has locked the task",
        "Repeat the request after the time in `Retry-After`.";
    /// A settlement is not written yet.
    NotYet: "not-yet", SERVICE_UNAVAILABLE, "the report is not written yet",
        "Repeat the same report until it is answered. The daemon goes on writing it meanwhile.";
    /// The daemon stops.
    Stopping: "stopping", SERVICE_UNAVAILABLE, "this daemon is stopping",
        "Repeat the request with another daemon.";
    /// The ledger does not answer.
    LedgerUnavailable: "ledger-unavailable", SERVICE_UNAVAILABLE, "the ledger does not answer",
        "Repeat the request after the time in `Retry-After`. The change may or may not be made.";
    /// Redis does not answer.
    RedisUnavailable: "redis-unavailable", SERVICE_UNAVAILABLE, "Redis does not answer",
        "Repeat the request after the time in `Retry-After`. Dead tasks are discarded only while Redis answers.";
    /// The request took too long.
    TimedOut: "timed-out", GATEWAY_TIMEOUT, "the request took too long",
        "Use filters with fewer results, or repeat the request later. A change may or may not be made.";
    /// A fault of the program.
    Internal: "internal", INTERNAL_SERVER_ERROR, "the request has failed",
        "This is a fault of lapsed. The daemon's log has more.";
    /// The ledger refuses the statement.
    LedgerRefuses: "ledger-refuses", INTERNAL_SERVER_ERROR, "the ledger refuses this",
        "An operator has to act: `lapsed doctor` names the cause.";
}

impl ProblemKind {
    /// After which time the request may be repeated.
    pub fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Locked
            | Self::NotYet
            | Self::Stopping
            | Self::LedgerUnavailable
            | Self::RedisUnavailable
            | Self::KeyInUse
            | Self::TooMany => Some(Duration::from_secs(1)),
            Self::TooManyGuesses => Some(Duration::from_secs(60)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_slug_of_its_own_and_a_status_of_an_error() {
        let mut slugs: Vec<&str> = ProblemKind::ALL.iter().map(|kind| kind.slug()).collect();
        slugs.sort_unstable();
        slugs.dedup();
        assert_eq!(slugs.len(), ProblemKind::ALL.len());
        for kind in ProblemKind::ALL {
            let status = kind.status();
            assert!(status.is_client_error() || status.is_server_error());
            assert!(kind.remedy().ends_with('.'), "{kind:?}");
        }
    }
}
