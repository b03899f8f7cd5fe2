//! The targets: a web server, programs and workers that write down each run in a file, one line a run.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use axum::Json;
use axum::extract::{Path as UrlPath, State};
use axum::http::StatusCode;
use axum::routing::post;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::history::{Ended, Ms, Run};

/// A run of `slow`: longer than a lease, so that it must be renewed.
pub const SLOW: Duration = Duration::from_secs(8);

/// The file in which all targets write.
#[derive(Clone)]
pub struct Record {
    path: PathBuf,
    file: Arc<File>,
    next: Arc<AtomicU64>,
}

impl Record {
    /// # Errors
    /// If the file cannot be created.
    pub fn new(path: PathBuf) -> anyhow::Result<Self> {
        let open = OpenOptions::new().create(true).append(true).open(&path);
        let file = open.with_context(|| format!("create `{}`", path.display()))?;
        Ok(Self {
            path,
            file: Arc::new(file),
            next: Arc::new(AtomicU64::new(1)),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes down a run that begins now, and returns its number.
    pub fn begin(&self, daemon: usize, key: &str, id: &str, ended: Ended) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let now = now();
        let ended = match ended {
            Ended::Done => "done",
            Ended::Failed => "failed",
        };
        self.write(&format!("run {number} {daemon} {key} {id} {now} {ended}\n"));
        number
    }

    /// Writes down that the claim of a run was lost.
    pub fn fenced(&self, number: u64) {
        self.write(&format!("fenced {number}\n"));
    }

    /// One call, so that lines of several processes do not mix.
    fn write(&self, line: &str) {
        (&*self.file)
            .write_all(line.as_bytes())
            .expect("the disk takes a line");
    }

    /// Returns everything that was written.
    ///
    /// # Errors
    /// If the file cannot be read, or has a line that no target writes.
    pub fn read(&self) -> anyhow::Result<Vec<Run>> {
        let text = std::fs::read_to_string(&self.path).context("read the record")?;
        let mut runs: Vec<Run> = Vec::new();
        let mut fenced = std::collections::HashSet::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["fenced", number] => {
                    fenced.insert(number.parse::<u64>().context("number")?);
                }
                ["run", number, daemon, key, id, started, ended] => {
                    let due = id.rsplit('-').next().context("id")?;
                    runs.push(Run {
                        number: number.parse()?,
                        daemon: daemon.parse()?,
                        key: key.to_owned(),
                        due: due.parse()?,
                        started: started.parse()?,
                        ended: if ended == "done" {
                            Ended::Done
                        } else {
                            Ended::Failed
                        },
                        fenced: false,
                    });
                }
                _ => anyhow::bail!("unexpected line `{line}` in the record"),
            }
        }
        for run in &mut runs {
            run.fenced = fenced.contains(&run.number);
        }
        Ok(runs)
    }
}

/// This machine's clock.
pub fn now() -> Ms {
    lapsed::clock::wall().0
}

/// How long a run takes, by the method of its task.
pub fn length(method: &str) -> Duration {
    match method {
        "slow" => SLOW,
        _ => Duration::ZERO,
    }
}

/// How a run ends, by the method of its task: `flaky` fails in its first attempt.
pub fn ending(method: &str, attempt: u64) -> Ended {
    match (method, attempt) {
        ("flaky", 1) => Ended::Failed,
        _ => Ended::Done,
    }
}

/// A web server that is the target of webhooks.
#[derive(Clone)]
pub struct Receiver {
    record: Record,
    port: u16,
    /// Each request is answered with 500, and counts as no run.
    refuses: Arc<AtomicBool>,
    /// Is starts which daemon has started a run.
    started: mpsc::Sender<usize>,
}

impl Receiver {
    /// Starts it. The channel tells, as far as it is read, which daemon has started a run.
    ///
    /// # Errors
    /// If no port is free.
    pub async fn start(record: Record) -> anyhow::Result<(Self, mpsc::Receiver<usize>)> {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (started, starts) = mpsc::channel(1);
        let port = listener.local_addr()?.port();
        let refuses = Arc::default();
        let receiver = Self {
            record,
            port,
            refuses,
            started,
        };
        let routes = axum::Router::new().route("/{daemon}", post(receive));
        let routes = routes.with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Ok((receiver, starts))
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::Relaxed);
    }
}

async fn receive(
    State(receiver): State<Receiver>,
    UrlPath(daemon): UrlPath<usize>,
    Json(task): Json<Value>,
) -> (StatusCode, Json<Value>) {
    if receiver.refuses.load(Ordering::Relaxed) {
        return (StatusCode::SERVICE_UNAVAILABLE, Json(Value::Null));
    }
    let text = |name: &str| task[name].as_str().unwrap_or_default();
    let method = text("method");
    let ended = ending(method, task["attempt"].as_u64().unwrap_or(1));
    let number = receiver
        .record
        .begin(daemon, text("key"), text("id"), ended);
    let _ = receiver.started.try_send(daemon);
    sleep(length(method)).await;
    let status = match ended {
        Ended::Done => StatusCode::OK,
        Ended::Failed => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, Json(json!({ "run": number })))
}
