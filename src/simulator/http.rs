//! HTTP in memory: requests to the routes of a process, and what they answer.

use std::net::SocketAddr;
use std::time::Duration;

pub use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
pub use axum::http::{Method, StatusCode};
use axum::http::{Request, header};
use hyper_util::service::TowerToHyperService;
use lapsed_core::ledger::row::Status;
use lapsed_core::task::{TaskKey, UnixMs};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::plan::{GROUP, Policy, Verb};
use crate::record::Answer;

/// The most bytes of an answer.
const ANSWER_BYTES: usize = 1 << 20;

/// An answer of a process.
pub struct Reply {
    pub status: StatusCode,
    pub body: Vec<u8>,
}

impl Reply {
    /// For a person.
    pub fn text(&self) -> String {
        format!("{}: {}", self.status, String::from_utf8_lossy(&self.body))
    }
}

/// Sends a request from an address, and reads the answer.
pub async fn send(
    routes: Router,
    from: SocketAddr,
    method: Method,
    path: String,
    body: Option<Value>,
) -> Result<Reply, String> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "localhost")
        .extension(ConnectInfo(from));
    let request = match body {
        Some(body) => request
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body.to_string())),
        None => request.body(Body::empty()),
    };
    let request = request.expect("a request");
    let service = TowerToHyperService::new(routes);
    let Ok(answer) = hyper::service::Service::call(&service, request).await;
    let (head, body) = answer.into_parts();
    let body = to_bytes(body, ANSWER_BYTES).await;
    Ok(Reply {
        status: head.status,
        body: body.map_err(|error| error.to_string())?.to_vec(),
    })
}

/// What absolute due times that are some way off are multiples of.
const ROUND_MS: i64 = 5_000;

/// An absolute due time, as programs set it: several are for the same moment.
pub fn round_time(now: UnixMs, delay: Duration) -> UnixMs {
    let due = now.plus(delay).0;
    match delay > Duration::from_secs(3) {
        true => UnixMs((due + ROUND_MS - 1) / ROUND_MS * ROUND_MS),
        false => UnixMs(due),
    }
}

/// The request for an operation of the client that HTTP has, too.
pub fn request(
    verb: &Verb,
    key: &TaskKey,
    payload: &str,
    now: UnixMs,
) -> Option<(Method, String, Option<Value>)> {
    let payload: Value = serde_json::from_str(payload).expect("JSON");
    let path = format!("/v1/tasks/{key}");
    Some(match verb {
        Verb::Create {
            delay,
            absolute,
            policy,
        } => {
            let policy = match policy {
                Policy::Move => "move",
                Policy::Keep => "keep",
                Policy::Refuse => "refuse",
            };
            let mut body = json!({ "payload": payload, "if_pending": policy });
            match absolute {
                true => body["at"] = rfc3339(round_time(now, *delay)).into(),
                false => body["in"] = format!("{}ms", delay.as_millis()).into(),
            }
            (Method::PUT, path, Some(body))
        }
        Verb::CreateInGroup { delay, last } => {
            let mut body = json!({ "payload": payload, "in": format!("{}ms", delay.as_millis()) });
            match last {
                None => body["tag"] = GROUP.into(),
                Some(if_dead) => {
                    body["after"] = json!({ "tag": GROUP, "if_dead": if_dead.as_str() });
                }
            }
            (Method::PUT, path, Some(body))
        }
        Verb::Cancel => (Method::DELETE, path, None),
        Verb::Reschedule { delay } => {
            let body = json!({ "in": format!("{}ms", delay.as_millis()) });
            (Method::PATCH, path, Some(body))
        }
        Verb::RunNow => (Method::POST, format!("{path}/run"), None),
        Verb::Redrive => (Method::POST, format!("{path}/redrive"), None),
        Verb::Discard => (Method::POST, format!("{path}/discard"), None),
        _ => return None,
    })
}

/// The path and the body of a request that creates tasks with the same delay and payload.
pub fn batch(keys: &[&str], delay: Duration, payload: &str) -> (String, Value) {
    let payload: Value = serde_json::from_str(payload).expect("JSON");
    let delay = format!("{}ms", delay.as_millis());
    let tasks = keys
        .iter()
        .map(|key| json!({ "key": key, "in": delay, "payload": payload }));
    ("/v1/tasks/batch".to_owned(), tasks.collect())
}

/// What a reply to such a request promises: each line of it, for its task.
pub fn batch_answer(reply: &Reply) -> Answer {
    if reply.status.is_server_error() {
        return Answer::Failed(reply.text());
    }
    if !reply.status.is_success() {
        return Answer::Other(reply.text());
    }
    let lines = serde_json::Deserializer::from_slice(&reply.body).into_iter::<BatchLine>();
    let lines = lines.map(|line| line.unwrap_or_else(|error| panic!("{error}: {}", reply.text())));
    let created = lines.filter(|line| line.status < 300);
    let ids = created.map(|line| line.id.expect("a created task has an id"));
    Answer::AllArmed(ids.map(|id| arming(&id)).collect())
}

/// The path and the body of a request that changes all tasks of a class.
pub fn bulk(verb: &Verb, class: &str) -> Option<(String, Value)> {
    let path = match verb {
        Verb::CancelAll => "/v1/cancel",
        Verb::RedriveAll => "/v1/redrive",
        _ => return None,
    };
    Some((path.to_owned(), json!({ "class": class })))
}

/// What a reply to such a request promises, if its last line says that all is done.
pub fn bulk_answer(verb: &Verb, reply: &Reply) -> Answer {
    let lines = serde_json::Deserializer::from_slice(&reply.body).into_iter::<Value>();
    let last = lines.map_while(Result::ok).last().unwrap_or_default();
    let is_done = reply.status.is_success() && last["done"] == true && last["problem"].is_null();
    match (is_done, verb) {
        (false, _) => Answer::Failed(reply.text()),
        (true, Verb::CancelAll) => Answer::NoneLeft(Status::Unprocessed),
        (true, _) => Answer::NoneLeft(Status::Dead),
    }
}

/// A line of the answer to a batch.
#[derive(Deserialize)]
struct BatchLine {
    status: u16,
    id: Option<String>,
}

/// The row and the due time in the name of an arming.
fn arming(id: &str) -> (u64, UnixMs) {
    let (row, due) = id.split_once('-').expect("the name of an arming");
    let row = row.parse().expect("the id of a row");
    (row, UnixMs(due.parse().expect("a time")))
}

fn rfc3339(time: UnixMs) -> String {
    let time = jiff::Timestamp::from_millisecond(time.0);
    time.expect("a time of this era").to_string()
}

/// What the answers to these requests may have.
#[derive(Deserialize)]
struct AnswerBody {
    id: Option<String>,
    outcome: Option<String>,
}

/// What a reply promises.
pub fn answer(verb: &Verb, reply: &Reply) -> Answer {
    if reply.status.is_server_error() {
        return Answer::Failed(reply.text());
    }
    let body = serde_json::from_slice(&reply.body);
    let body = body.unwrap_or(AnswerBody {
        id: None,
        outcome: None,
    });
    match (verb, reply.status.is_success(), body.outcome.as_deref()) {
        (Verb::Cancel, true, Some("cancelled")) => Answer::Cancelled,
        (Verb::Cancel, true, Some("running")) => Answer::Cancelling,
        (Verb::Discard, ..) | (_, false, _) => Answer::Other(reply.text()),
        _ => {
            let id = body.id.unwrap_or_else(|| panic!("no id: {}", reply.text()));
            let (row, due) = arming(&id);
            Answer::Armed { row, due }
        }
    }
}
