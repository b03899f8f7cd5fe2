//! `lapsed listen` on a ledger in a file, with targets that tell what they were given.

use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::program::{lapsed, said};
use crate::support::wait::until;

/// `Job@tell` writes its `TRACEPARENT` to a file; `Job@fail` fails at its first attempt. Workers take `Job@pull`, and
/// `Job@brief` with a short lease.
const ROUTES: &str = r#"
[[routes]]
match = "^Job@tell"
exec = ["sh", "-c", 'printf "%s\n" "$TRACEPARENT" >> DIRECTORY/told']

[[routes]]
match = "^Job@fail"
exec = ["sh", "-c", 'test "$(grep -o "attempt.:[0-9]*" | tail -c 2)" != 1 || { echo "no stock" >&2; exit 1; }']

[[routes]]
match = "^Job@pull"
pull = { queue = "jobs" }

[[routes]]
match = "^Job@brief"
pull = { queue = "brief", visibility = "1s" }
"#;

/// A daemon; killed on drop.
pub struct Daemon {
    child: Child,
    directory: TempDir,
    /// Of its HTTP API.
    address: String,
}

impl Daemon {
    /// With these settings, and these variables in its environment.
    pub async fn start(settings: &str, env: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_str().unwrap();
        let config = format!(
            "ledger.url = 'sqlite://{path}/lapsed.db'\nhttp.listen = '127.0.0.1:0'\n\
             retry = {{ ladder = ['50ms'], jitter = 0.0 }}\n{settings}\n{}",
            ROUTES.replace("DIRECTORY", path)
        );
        let file = directory.path().join("lapsed.toml");
        std::fs::write(&file, config).unwrap();
        let mut migrate = lapsed();
        migrate.arg("--config").arg(&file).arg("migrate");
        let (code, _, error) = said(migrate.output().unwrap());
        assert_eq!(code, 0, "{error}");

        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let mut listen = lapsed();
        let inherited = std::env::vars_os().map(|(name, _)| name);
        for name in inherited.filter(|name| name.as_encoded_bytes().starts_with(b"OTEL_")) {
            listen.env_remove(name);
        }
        listen.arg("--config").arg(&file).arg("listen");
        listen.envs(env.iter().copied());
        listen.stdout(Stdio::null()).stderr(log);
        let mut daemon = Self {
            child: listen.spawn().unwrap(),
            directory,
            address: String::new(),
        };
        daemon.until_logged("http.address=").await;
        let log = daemon.log();
        let (_, address) = log.split_once("http.address=").unwrap();
        daemon.address = address.split_whitespace().next().unwrap().to_owned();
        daemon
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap()
    }

    pub async fn until_logged(&self, text: &str) {
        until(format!("it has logged `{text}`"), async || {
            self.log().contains(text)
        })
        .await;
    }

    /// The traces that `Job@tell` was given, one for each run.
    pub fn told(&self) -> Vec<String> {
        let told = std::fs::read_to_string(self.path("told")).unwrap_or_default();
        told.lines().map(str::to_owned).collect()
    }

    /// Sends a request to its API. Returns status and body: with HTTP/1.0, it is not sent in chunks.
    async fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let request = format!(
            "{method} {path} HTTP/1.0\r\nhost: {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n{headers}\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        (status, body.to_owned())
    }

    /// Creates a task that is due now. `members` are further members of its JSON.
    pub async fn create(&self, key: &str, members: &str, headers: &str) {
        let body = format!(r#"{{"key":"{key}","in":"0s"{members}}}"#);
        let (status, answer) = self.ask("POST", "/v1/tasks", headers, &body).await;
        // 200 if its run began before the answer.
        assert!(matches!(status, 200 | 201), "{status}: {answer}");
    }

    /// Takes a task from a queue. Returns its claim and its trace.
    pub async fn take(&self, queue: &str) -> (String, String) {
        let path = format!("/v1/queues/{queue}/take");
        let (status, answer) = self.ask("POST", &path, "", r#"{"wait":"20s"}"#).await;
        assert_eq!(status, 200, "{answer}");
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        let task = &answer["tasks"][0];
        let text = |name: &str| task[name].as_str().unwrap_or_default().to_owned();
        (text("claim"), text("traceparent"))
    }

    /// Reports how a taken task ended.
    pub async fn report(&self, claim: &str, verb: &str, body: &str) {
        let path = format!("/v1/claims/{claim}/{verb}");
        let (status, answer) = self.ask("POST", &path, "", body).await;
        assert!(matches!(status, 200 | 204), "{status}: {answer}");
    }

    /// A document of its API or its metrics.
    pub async fn get(&self, path: &str) -> String {
        self.ask("GET", path, "", "").await.1
    }

    pub async fn until_done(&self, key: &str) {
        until(format!("{key} is done"), async || {
            let task = self.get(&format!("/v1/tasks/{key}")).await;
            task.contains(r#""state":"done""#)
        })
        .await;
    }

    /// SIGTERM.
    pub fn terminate(&self) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
    }

    pub async fn until_ended(&mut self) -> ExitStatus {
        let child = std::cell::RefCell::new(&mut self.child);
        until("the daemon has ended", async || {
            child.borrow_mut().try_wait().unwrap().is_some()
        })
        .await;
        self.child.wait().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}
