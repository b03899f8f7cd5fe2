//! A daemon with a dashboard: `lapsed dev` on an SQLite file, with the routes of a test; or several on private servers.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use lapsed_sandbox::{PrivateMaria, PrivateRedis};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::driver::client;
use crate::support::program::{lapsed, said};
use crate::support::wait::until;

/// Runs until it is dropped.
pub struct Daemon {
    child: Child,
    /// Where the dashboard is: `http://127.0.0.1:<port>`.
    pub origin: String,
    directory: TempDir,
}

impl Daemon {
    /// Starts with this configuration, beside the addresses. `{dir}` in it is a directory of this daemon.
    pub fn start(settings: &str) -> Self {
        Self::start_with(settings, |_| {})
    }

    /// As [`start`](Self::start). `prepare` adds to the command of the daemon.
    pub fn start_with(settings: &str, prepare: impl FnOnce(&mut Command)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().display().to_string();
        let file = directory.path().join("lapsed.db");
        let settings = format!(
            "ledger.url = 'sqlite://{}'\n{}",
            file.display(),
            settings.replace("{dir}", &path)
        );
        std::fs::write(directory.path().join("lapsed.toml"), settings).unwrap();
        let mut command = lapsed();
        command.current_dir(&directory).args([
            "--config",
            "lapsed.toml",
            "dev",
            "--http",
            "127.0.0.1:0",
        ]);
        command.args(["--resp", "127.0.0.1:0"]);
        prepare(&mut command);
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        command.stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().unwrap();
        let origin = told_origin(&mut child);
        Self {
            child,
            origin,
            directory,
        }
    }

    /// `lapsed listen` on a file, with this configuration. Unlike `lapsed dev`, it has no route for every task.
    pub async fn listen(settings: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("lapsed.db");
        let settings = format!("ledger.url = 'sqlite://{}'\n{settings}", file.display());
        Self::listen_with(directory, &settings).await
    }

    async fn listen_with(directory: TempDir, settings: &str) -> Self {
        let settings = format!("http.listen = '127.0.0.1:0'\n{settings}");
        let config = directory.path().join("lapsed.toml");
        std::fs::write(&config, settings).unwrap();
        let command = || {
            let mut command = lapsed();
            command.arg("--config").arg(&config);
            command
        };
        let (code, stdout, stderr) = said(command().arg("migrate").output().unwrap());
        assert_eq!(code, 0, "{stdout}{stderr}");
        let file = directory.path().join("log");
        let log = std::fs::File::create(&file).unwrap();
        let child = command()
            .arg("listen")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut daemon = Self {
            child,
            origin: String::new(),
            directory,
        };
        let address = || {
            let log = std::fs::read_to_string(&file).unwrap();
            let (_, rest) = log.split_once("http.address=")?;
            let (address, _) = rest.split_once(char::is_whitespace)?;
            Some(address.to_owned())
        };
        until("it serves HTTP", async || address().is_some()).await;
        daemon.origin = format!("http://{}", address().expect("it was logged"));
        daemon
    }

    /// The path of a file in its directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Creates tasks: a line of JSON each, as `lapsed schedule --file` reads them.
    pub fn schedule(&self, lines: impl IntoIterator<Item = Value>) {
        let mut command = self.command(&["schedule", "--file", "-"]);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().expect("it is piped");
        for line in lines {
            writeln!(stdin, "{line}").unwrap();
        }
        drop(stdin);
        let (code, stdout, stderr) = said(child.wait_with_output().unwrap());
        assert_eq!(code, 0, "{stdout}{stderr}");
    }

    /// The answer of the API to a `POST`, which succeeds.
    pub fn call(&self, path: &str, body: Value) -> impl Future<Output = Value> + use<> {
        let url = format!("{}{path}", self.origin);
        async move {
            let request = client()
                .post(url)
                .header("content-type", "application/json");
            let response = request.body(body.to_string()).send().await.unwrap();
            let status = response.status();
            let text = response.text().await.unwrap();
            assert!(status.is_success(), "{status}: {text}");
            serde_json::from_str(&text).unwrap_or_default()
        }
    }

    /// A worker of a queue: takes tasks and says that they are done, until it is dropped.
    pub fn worker(&self, queue: &str) -> Worker {
        let (take, origin) = (format!("/v1/queues/{queue}/take"), self.origin.clone());
        let post = move |path: String, body: Value| {
            let request = client().post(format!("{origin}{path}"));
            let request = request.header("content-type", "application/json");
            let sent = request.body(body.to_string()).send();
            async move {
                let text = sent.await.ok()?.text().await.ok()?;
                serde_json::from_str::<Value>(&text).ok()
            }
        };
        Worker(tokio::spawn(async move {
            loop {
                let wanted = json!({"wait": "20s", "count": 50, "worker": "night"});
                let taken = post(take.clone(), wanted).await.unwrap_or_default();
                for task in taken["tasks"].as_array().into_iter().flatten() {
                    let claim = task["claim"].as_str().unwrap_or_default();
                    post(format!("/v1/claims/{claim}/done"), json!({})).await;
                }
            }
        }))
    }

    /// Ends it without a word.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until at least this many tasks are of a state.
    pub async fn until_listed(&self, state: &str, count: usize) {
        until(format!("{count} tasks are {state}"), async || {
            let listed = self.run(&["--json", "list", "--state", state, "--limit", "1000"]);
            listed.lines().count() >= count
        })
        .await;
    }

    /// The output of a command that succeeds.
    pub fn run(&self, args: &[&str]) -> String {
        let (code, stdout, stderr) = said(self.command(args).output().unwrap());
        assert_eq!(code, 0, "{args:?}: {stdout}{stderr}");
        stdout
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = lapsed();
        command.arg("--config").arg(self.path("lapsed.toml"));
        command.args(args);
        command
    }
}

/// A worker of a pull queue. Ends when it is dropped.
pub struct Worker(JoinHandle<()>);

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Servers that several daemons share.
pub struct Servers {
    pub redis: PrivateRedis,
    pub maria: PrivateMaria,
    ledger: String,
}

impl Servers {
    pub async fn start() -> Self {
        let maria = PrivateMaria::start().await.unwrap();
        Self {
            redis: PrivateRedis::start().await.unwrap(),
            ledger: maria.create_database("lapsed").await.unwrap(),
            maria,
        }
    }

    /// `lapsed listen` with this configuration, beside the addresses. Waits until it serves HTTP.
    pub async fn listen(&self, settings: &str) -> Daemon {
        let servers = format!(
            "redis.url = '{}'\nledger.url = '{}'\n",
            self.redis.url(),
            self.ledger
        );
        Daemon::listen_with(tempfile::tempdir().unwrap(), &(servers + settings)).await
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.path("log"));
            eprintln!("{}", log.unwrap_or_default());
        }
    }
}

/// Reads where HTTP is from what `lapsed dev` prints.
fn told_origin(child: &mut Child) -> String {
    let mut said = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    loop {
        line.clear();
        let read = said.read_line(&mut line).unwrap();
        assert!(read > 0, "`lapsed dev` ended");
        if let Some((_, rest)) = line.split_once("http://") {
            let (address, _) = rest.split_once('/').unwrap_or((rest.trim_end(), ""));
            return format!("http://{}", address.trim_end());
        }
    }
}
