//! A daemon whose pages a test reads as a browser without JavaScript does.

use std::cell::RefCell;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::process::Process;
use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::wait::{DEADLINE, until};

/// A daemon process that serves HTTP.
pub struct Pages {
    pub rig: Rig,
    address: SocketAddr,
    _daemon: Process,
}

/// An answer.
pub struct Page {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Pages {
    /// Starts a daemon with these settings.
    pub async fn start(settings: &str) -> Self {
        let rig = Setup::new(settings).start().await;
        let daemon = Process::listen(&rig, &[("LAPSED__HTTP__LISTEN", "127.0.0.1:0")]);
        Self {
            rig,
            address: daemon.address("http").await,
            _daemon: daemon,
        }
    }

    pub async fn get(&self, path: &str) -> Page {
        self.get_with(path, &[]).await
    }

    /// As [`get`](Self::get), with more header fields.
    pub async fn get_with(&self, path: &str, fields: &[(&str, &str)]) -> Page {
        let fields = fields
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"));
        let fields: String = fields.collect();
        let get = async {
            let mut stream = TcpStream::connect(self.address).await?;
            let host = self.address;
            let request =
                format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{fields}\r\n");
            stream.write_all(request.as_bytes()).await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            std::io::Result::Ok(answer)
        };
        let answer = timeout(DEADLINE, get).await.expect("an answer in time");
        let answer = answer.unwrap_or_else(|error| panic!("GET {path}: {error}"));
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Page {
            status,
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }

    /// The body of a page that is there.
    pub async fn body(&self, path: &str) -> String {
        let Page { status, body, .. } = self.get(path).await;
        assert_eq!(status, 200, "GET {path}: {body}");
        body
    }

    /// A panel as it loads again by itself, until the ledger answers within the time that a page has.
    pub async fn panel(&self, name: &str) -> String {
        let path = format!("/panels/{name}");
        let found = RefCell::new(String::new());
        until(format!("GET {path} is answered"), async || {
            let page = self.get(&path).await;
            assert!([200, 504].contains(&page.status), "{path}: {}", page.body);
            found.replace(page.body);
            page.status == 200
        })
        .await;
        found.into_inner()
    }
}

impl Page {
    /// A field of the header.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// The values of an attribute in a page, unescaped as far as addresses need it.
pub fn attributes(body: &str, name: &str) -> Vec<String> {
    let begin = format!(" {name}=\"");
    let values = body.split(&begin).skip(1);
    let values = values.map(|rest| rest.split('"').next().unwrap_or_default());
    values
        .map(|value| value.replace("&#38;", "&").replace("&amp;", "&"))
        .collect()
}
