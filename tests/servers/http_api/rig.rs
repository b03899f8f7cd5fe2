//! A daemon in this process with its HTTP server, and a client.

use std::sync::Arc;
use std::time::Duration;

use lapsed::compose::Adapters;
use lapsed::ledger::Ledger as _;
use lapsed::ledger::sqlite::SqliteLedger;
use lapsed::{Config, HandlerError, Handlers, TaskContext};
use lapsed_server::http::{self, AppState};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::http_client;
use crate::support::wait::until;

/// Over the defaults: routes for a pull queue, and retries at once.
const SETTINGS: &str = "retry = { ladder = ['50ms'], jitter = 0.0, max_attempts = 2 }\n\
     [[routes]]\nmatch = '^Mail@send'\npull = { queue = 'mail', visibility = '30s' }\n";

/// A daemon with HTTP. `Job@run` succeeds, `Job@die` fails for good, `Job@hang` runs until the daemon stops.
pub struct Api {
    base: String,
    client: reqwest::Client,
    stop: CancellationToken,
    serving: Vec<JoinHandle<()>>,
    _file: Option<TempDir>,
}

/// An answer.
pub struct Answer {
    pub status: StatusCode,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
}

impl Api {
    /// On an SQLite file.
    pub async fn start() -> Self {
        Self::start_with("").await
    }

    /// On an SQLite file, with more settings.
    pub async fn start_with(more: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("lapsed.db");
        let settings = format!(
            "timer = 'ledger_poll'\nledger.url = 'sqlite://{}'\n{SETTINGS}{more}",
            file.display()
        );
        let config = Config::from_toml(&settings).unwrap();
        let ledger = SqliteLedger::new(&config.ledger).unwrap();
        ledger.migrate(false).await.unwrap();
        ledger.close().await;
        let mut api = Self::serve(&config).await;
        api._file = Some(directory);
        api
    }

    /// With these settings.
    pub async fn serve(config: &Config) -> Self {
        let adapters = Adapters::new(config).unwrap();
        let engine = adapters.engine(config, handlers());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let metrics = Arc::clone(&adapters.metrics);
        let app = AppState::new(&config.http, adapters.client(), engine.handle(), metrics);
        let stop = CancellationToken::new();
        let (engine_stops, http_stops) = (stop.clone(), stop.clone());
        let handle = engine.handle();
        let serving = vec![
            tokio::spawn(async move {
                let ended = engine.run_until(engine_stops.cancelled_owned()).await;
                ended.unwrap();
            }),
            tokio::spawn(async move {
                http::serve(listener, app, http_stops.cancelled_owned()).await;
            }),
        ];
        handle.ready().await;
        Self {
            base,
            client: http_client::client(),
            stop,
            serving,
            _file: None,
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// `host:port`
    pub fn address(&self) -> &str {
        self.base.trim_start_matches("http://")
    }

    pub fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        self.client.request(method, self.url(path))
    }

    pub async fn get(&self, path: &str) -> Answer {
        Answer::of(self.request("GET", path)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        Answer::of(self.request("DELETE", path)).await
    }

    /// Without a body.
    pub async fn post(&self, path: &str) -> Answer {
        Answer::of(self.request("POST", path)).await
    }

    /// With a JSON body.
    pub async fn send(&self, method: &str, path: &str, body: Value) -> Answer {
        let request = self.request(method, path);
        Answer::of(json(request, &body)).await
    }

    /// Creates a task and returns its id.
    pub async fn create(&self, key: &str, delay: &str) -> String {
        let body = serde_json::json!({ "key": key, "in": delay });
        let answer = self.send("POST", "/v1/tasks", body).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        answer.text_of("id")
    }

    pub async fn state(&self, key: &str) -> String {
        self.get(&format!("/v1/tasks/{key}")).await.text_of("state")
    }

    pub async fn until_state(&self, key: &str, state: &str) {
        until(format!("`{key}` is {state}"), async || {
            self.state(key).await == state
        })
        .await;
    }

    /// Stops daemon and server as `lapsed listen` does.
    pub async fn stop(mut self) {
        self.stop.cancel();
        for serving in self.serving.drain(..) {
            tokio::time::timeout(Duration::from_secs(30), serving)
                .await
                .expect("it stops")
                .unwrap();
        }
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        self.serving.iter().for_each(JoinHandle::abort);
    }
}

impl Answer {
    pub async fn of(request: RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        Self {
            status: response.status(),
            headers: response.headers().clone(),
            text: response.text().await.unwrap(),
        }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The lines of a JSON lines answer.
    pub fn lines(&self) -> Vec<Value> {
        let lines = self.text.lines().map(serde_json::from_str);
        lines.map(Result::unwrap).collect()
    }

    /// A member that is a text; empty if it is missing.
    pub fn text_of(&self, member: &str) -> String {
        self.json()[member].as_str().unwrap_or_default().to_owned()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }

    /// Status and kind of a problem, and its detail.
    pub fn problem(&self) -> (u16, String, String) {
        assert_eq!(self.header("content-type"), "application/problem+json");
        let json = self.json();
        assert_eq!(json["status"], self.status.as_u16());
        let kind = self.text_of("type");
        let slug = kind.strip_prefix("/problems/").unwrap().to_owned();
        (self.status.as_u16(), slug, self.text_of("detail"))
    }

    /// Asserts that it is a problem of this kind.
    #[track_caller]
    pub fn is_problem(&self, status: u16, slug: &str) {
        let (found, kind, detail) = self.problem();
        assert_eq!((found, kind.as_str()), (status, slug), "{detail}");
    }
}

pub fn json(request: RequestBuilder, body: &Value) -> RequestBuilder {
    let request = request.header("content-type", "application/json");
    request.body(body.to_string())
}

fn handlers() -> Handlers {
    let mut handlers = Handlers::new();
    let args = |_: TaskContext, _: Vec<String>| async { Ok::<_, HandlerError>(()) };
    handlers.on(("Job", "run"), args);
    handlers.on(("Job", "die"), |_: TaskContext, _: Vec<String>| async {
        Err::<(), _>(HandlerError::permanent("it cannot work"))
    });
    handlers.on(("Job", "hang"), |_: TaskContext, _: Vec<String>| async {
        std::future::pending::<Result<(), HandlerError>>().await
    });
    handlers
}
