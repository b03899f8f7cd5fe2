//! A daemon with HTTP, and requests to it as they are on the wire.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lapsed::Config;
use lapsed::config::hash_token;
use lapsed::ledger::sqlite::SqliteLedger;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::program::{lapsed, said};

/// `lapsed listen` on an SQLite file. Killed on drop.
pub struct Site {
    child: Child,
    pub address: SocketAddr,
    /// Of the server for Redis clients, if the settings have one.
    pub resp: Option<SocketAddr>,
    directory: TempDir,
}

impl Site {
    /// Starts with these settings in `[http]`, after which there may be other tables. Without `[[routes]]` in them, one route logs all
    /// tasks.
    pub fn start(http: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (child, address, resp) = listen(&directory, http);
        Self {
            child,
            address,
            resp,
            directory,
        }
    }

    /// Starts again on the same file, with other settings.
    pub fn restart(&mut self, http: &str) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        (self.child, self.address, self.resp) = listen(&self.directory, http);
    }

    pub fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send("GET", path, headers, "")
    }

    pub fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut headers = headers.to_vec();
        headers.push(("Content-Type", "application/json"));
        self.send("POST", path, &headers, body)
    }

    /// Sends the form of the login page.
    pub fn log_in(&self, path: &str, headers: &[(&str, &str)], form: &str) -> Answer {
        let mut headers = headers.to_vec();
        headers.push(("Content-Type", "application/x-www-form-urlencoded"));
        self.send("POST", path, &headers, form)
    }

    /// Creates a task.
    pub fn create(&self, key: &str, headers: &[(&str, &str)]) -> Answer {
        let body =
            serde_json::json!({ "key": key, "in": "1h", "payload": { "secret": "p4yl0ad" } });
        self.post("/v1/tasks", headers, &body.to_string())
    }

    /// Sends a request. `Host` is the address, unless the headers have one.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "Host") {
            text += &format!("Host: {}\r\n", self.address);
        }
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        Answer::read(&String::from_utf8_lossy(&answer))
    }

    /// True if there is a task of this key, in the file itself.
    pub fn has(&self, key: &str) -> bool {
        let mut command = lapsed();
        command
            .arg("--config")
            .arg(self.directory.path().join("lapsed.toml"));
        let (code, stdout, stderr) = said(command.args(["ttl", key]).output().unwrap());
        assert_eq!(code, 0, "{stderr}");
        stdout.trim() != "-2"
    }

    /// The ledger in the file.
    pub fn ledger(&self) -> Arc<SqliteLedger> {
        let mut config = Config::default().ledger;
        let file = self.directory.path().join("lapsed.db");
        config.url = format!("sqlite://{}", file.display()).into();
        Arc::new(SqliteLedger::new(&config).unwrap())
    }
}

fn listen(directory: &TempDir, http: &str) -> (Child, SocketAddr, Option<SocketAddr>) {
    let file = directory.path().join("lapsed.db");
    let config = directory.path().join("lapsed.toml");
    let routes = match http.contains("[[routes]]") {
        true => "",
        false => "[[routes]]\nmatch = '.'\nlog = {}\n",
    };
    let text = format!(
        "ledger.url = 'sqlite://{}'\n{routes}[http]\nlisten = '127.0.0.1:0'\n{http}",
        file.display()
    );
    std::fs::write(&config, &text).unwrap();
    let command = |name: &str| {
        let mut command = lapsed();
        command.arg("--config").arg(&config).arg(name);
        command
    };
    let (code, _, stderr) = said(command("migrate").output().unwrap());
    assert_eq!(code, 0, "{stderr}");
    let mut child = command("listen")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut said = String::new();
    let mut address_of = |field: &str| loop {
        let mut line = String::new();
        assert!(log.read_line(&mut line).unwrap() > 0, "it ended: {said}");
        said += &line;
        if let Some((_, rest)) = line.split_once(field) {
            let address: String = rest
                .chars()
                .take_while(|c| c.is_ascii_digit() || ".:[]".contains(*c))
                .collect();
            break address.parse().unwrap();
        }
    };
    let address = address_of("http.address=");
    let resp = text.contains("[resp]").then(|| address_of("resp.address="));
    // The pipe must not fill.
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    (child, address, resp)
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    fn read(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1));
        let headers = lines.filter_map(|line| line.split_once(": "));
        Self {
            status: status.expect("a status").parse().unwrap(),
            headers: headers
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
                .collect(),
            body: body.to_owned(),
        }
    }

    /// A header; empty if there is none.
    pub fn header(&self, name: &str) -> &str {
        let mut headers = self.headers.iter();
        let found = headers.find(|(found, _)| found == name);
        found.map_or("", |(_, value)| value)
    }

    /// The kind of a problem.
    pub fn problem(&self) -> String {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        let kind = body["type"].as_str().unwrap_or_default();
        kind.trim_start_matches("/problems/").to_owned()
    }

    /// `name=value` of a cookie that is set.
    pub fn cookie(&self) -> String {
        let cookie = self.header("set-cookie").split(';').next();
        cookie.unwrap_or_default().to_owned()
    }

    #[track_caller]
    pub fn assert_problem(&self, status: u16, kind: &str) {
        assert_eq!((self.status, &*self.problem()), (status, kind), "{self:?}");
    }

    #[track_caller]
    pub fn assert_ok(&self) {
        assert!((200..300).contains(&self.status), "{self:?}");
    }
}

/// An entry of `[[http.clients]]`.
pub fn client(name: &str, token: &str, scopes: &str, more: &str) -> String {
    let hash: String = hash_token(token)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!(
        "[[http.clients]]\nname = '{name}'\ntoken_sha256 = '{hash}'\nscopes = {scopes}\n{more}\n"
    )
}

/// The header of a program.
pub fn bearer(token: &str) -> (&'static str, String) {
    ("Authorization", format!("Bearer {token}"))
}
