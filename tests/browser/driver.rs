//! WebDriver: commands to headless Chromium, as Debian's chromium-driver takes them.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use reqwest::{Client, Method};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Names an element in the JSON of WebDriver.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Which build of Chromium is started.
#[derive(Debug, Clone, Copy)]
pub enum Chromium {
    /// The part that draws pages: a third of the CPU time of the whole. It grants no permission to notify.
    HeadlessShell,
    Whole,
}

impl Chromium {
    const fn program(self) -> &'static str {
        match self {
            Self::HeadlessShell => "/usr/bin/chromium-headless-shell",
            Self::Whole => "/usr/bin/chromium",
        }
    }
}

/// Longest wait of a command: longer than Chromium needs to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A browser of its own, without a history. Ends when it is dropped.
pub struct Driver {
    child: Child,
    port: u16,
    session: String,
    client: Client,
    /// Open, or the driver could not write to it.
    _stdout: BufReader<ChildStdout>,
    /// Profiles and sockets.
    _home: TempDir,
}

/// What the browser did not do: a code such as `stale element reference`, and a text for people.
#[derive(Debug)]
pub struct Refusal {
    #[expect(dead_code, reason = "shown by `Debug`")]
    code: String,
    #[expect(dead_code, reason = "shown by `Debug`")]
    message: String,
}

/// An element of the page that was loaded when it was found.
#[derive(Debug, Clone)]
pub struct Element(String);

/// How often the driver is started at most.
const STARTS_MAX: usize = 3;

impl Driver {
    /// Starts a browser that asks for pages in this language.
    pub async fn start(chromium: Chromium, language: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").env("TMPDIR", home.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        // Ended with everything that it starts.
        command.process_group(0);
        let mut attempts = 1..=STARTS_MAX;
        let (child, stdout, port) = loop {
            let mut child = command.spawn().unwrap_or_else(|error| {
                panic!("chromedriver: {error}; run `scripts/install-servers --tests`")
            });
            let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
            if let Some(port) = told_port(&mut stdout) {
                break (child, stdout, port);
            }
            // It ends if another process has taken the port that it chose.
            let ended = child.wait();
            attempts
                .next()
                .unwrap_or_else(|| panic!("chromedriver ended without a port: {ended:?}"));
        };
        let mut this = Self {
            child,
            port,
            session: String::new(),
            client: client(),
            _stdout: stdout,
            _home: home,
        };
        let args = [
            "--headless",
            // Chromium has no sandbox for root, and containers have a small /dev/shm.
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            &format!("--accept-lang={language}"),
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": args, "binary": chromium.program()},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let started = this.send(Method::POST, "session", wanted).await.unwrap();
        let session = started["sessionId"].as_str().unwrap();
        this.session = session.to_owned();
        this
    }

    /// Loads a page.
    pub async fn navigate(&self, url: &str) {
        let loaded = self.post("url", json!({"url": url})).await;
        loaded.unwrap_or_else(|refusal| panic!("`{url}` cannot be loaded: {refusal:?}"));
    }

    /// Opens another window, and goes there.
    pub async fn open_window(&self) {
        let made = self.post("window/new", json!({"type": "window"})).await;
        let made = made.unwrap();
        let there = json!({"handle": made["handle"]});
        self.post("window", there).await.unwrap();
    }

    /// Goes to a window, counted from 0 in the order in which they were opened.
    pub async fn go_to_window(&self, number: usize) {
        let path = format!("session/{}/window/handles", self.session);
        let handles = self.send(Method::GET, &path, Value::Null).await.unwrap();
        let there = json!({"handle": handles[number]});
        self.post("window", there).await.unwrap();
    }

    /// Runs the body of a function in the page. Returns what it returns.
    pub async fn execute(&self, body: &str, args: Value) -> Result<Value, Refusal> {
        let script = json!({"script": body, "args": args});
        self.post("execute/sync", script).await
    }

    /// As [`execute`](Self::execute), for a body that calls its last argument with the result.
    pub async fn execute_async(&self, body: &str, args: Value) -> Result<Value, Refusal> {
        let script = json!({"script": body, "args": args});
        self.post("execute/async", script).await
    }

    /// The element that the body of a function returns; `None` if it returns none.
    pub async fn find(&self, body: &str, args: Value) -> Option<Element> {
        let found = self.execute(body, args).await.ok()?;
        found[ELEMENT].as_str().map(|id| Element(id.to_owned()))
    }

    /// Clicks where the element is, as a mouse does: it must be visible and not covered.
    pub async fn click(&self, element: &Element) -> Result<(), Refusal> {
        let path = format!("element/{}/click", element.0);
        self.post(&path, json!({})).await.map(drop)
    }

    /// Types into an element.
    pub async fn type_into(&self, element: &Element, text: &str) -> Result<(), Refusal> {
        let path = format!("element/{}/value", element.0);
        self.post(&path, json!({"text": text})).await.map(drop)
    }

    /// A command of the Chrome DevTools protocol.
    pub async fn devtools(&self, command: &str, params: Value) -> Value {
        let sent = json!({"cmd": command, "params": params});
        let answer = self.post("goog/cdp/execute", sent).await;
        answer.unwrap_or_else(|refusal| panic!("{command}: {refusal:?}"))
    }

    /// What the console has said since the last call: objects with `level`, `source` and `message`.
    pub async fn console(&self) -> Vec<Value> {
        let said = self.post("se/log", json!({"type": "browser"})).await;
        said.unwrap().as_array().unwrap().clone()
    }

    async fn post(&self, path: &str, body: Value) -> Result<Value, Refusal> {
        let path = format!("session/{}/{path}", self.session);
        self.send(Method::POST, &path, body).await
    }

    async fn send(&self, method: Method, path: &str, body: Value) -> Result<Value, Refusal> {
        let url = format!("http://127.0.0.1:{}/{path}", self.port);
        let mut request = self.client.request(method, &url);
        if !body.is_null() {
            request = request.body(body.to_string());
        }
        let response = request.send().await.unwrap();
        let is_good = response.status().is_success();
        let mut answer: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
        let value = answer["value"].take();
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        match is_good {
            true => Ok(value),
            false => Err(Refusal {
                code: text("error"),
                message: text("message"),
            }),
        }
    }
}

impl Drop for Driver {
    /// Asks the driver to end the browser, and ends both by force.
    fn drop(&mut self) {
        let _ = self.end_session();
        let group = Pid::from_raw(self.child.id().cast_signed()).expect("it has an id");
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Driver {
    fn end_session(&self) -> std::io::Result<()> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(
            stream,
            "DELETE /session/{} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nconnection: close\r\n\r\n",
            self.session, self.port
        )?;
        stream.read_exact(&mut [0]).map(drop)
    }
}

/// A client for plain HTTP on this machine.
pub fn client() -> Client {
    // reqwest asks for a provider, though nothing is encrypted. An error means that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().no_proxy().timeout(PATIENCE);
    client.build().unwrap()
}

/// Reads the port that the driver has chosen; `None` if it ended before.
fn told_port(stdout: &mut impl BufRead) -> Option<u16> {
    let mut line = String::new();
    loop {
        line.clear();
        let read = stdout.read_line(&mut line).unwrap();
        if read == 0 {
            return None;
        }
        if let Some((_, port)) = line.split_once("successfully on port ") {
            return Some(port.trim_end().trim_end_matches('.').parse().unwrap());
        }
    }
}
