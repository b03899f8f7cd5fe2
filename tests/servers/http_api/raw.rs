//! HTTP as it is on the wire: an answer counts only if it is complete.

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::wait::DEADLINE;

/// A connection, and what was read from it.
pub struct Raw {
    stream: TcpStream,
    read: Vec<u8>,
}

/// A complete answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

/// Sends a request, and returns the answer.
pub async fn ask(address: &str, method: &str, path: &str, body: Option<Value>) -> Answer {
    let connection = Raw::send(address, method, path, body).await;
    connection.answer().await
}

impl Raw {
    pub async fn connect(address: &str) -> Self {
        let connecting = timeout(DEADLINE, TcpStream::connect(address));
        Self {
            stream: connecting.await.expect("it connects in time").unwrap(),
            read: Vec::new(),
        }
    }

    /// Sends the only request of a connection.
    pub async fn send(address: &str, method: &str, path: &str, body: Option<Value>) -> Self {
        let mut connection = Self::connect(address).await;
        let body = body.map(|body| body.to_string());
        let of_body = body.as_ref().map_or(String::new(), |body| {
            let length = body.len();
            format!("content-type: application/json\r\ncontent-length: {length}\r\n")
        });
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{of_body}\r\n"
        );
        connection.write(&(head + &body.unwrap_or_default())).await;
        connection
    }

    pub async fn write(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads until this has arrived.
    pub async fn until(&mut self, text: &str) {
        let arrives = async {
            while !self.text().contains(text) {
                let length = self.stream.read_buf(&mut self.read).await.unwrap();
                assert!(length > 0, "it ended without `{text}`: {}", self.text());
            }
        };
        let arrived = timeout(DEADLINE, arrives).await;
        assert!(arrived.is_ok(), "`{text}` has not arrived: {}", self.text());
    }

    /// Reads to the end of the connection. A reset is no end.
    pub async fn rest(mut self) -> String {
        let ending = self.stream.read_to_end(&mut self.read);
        let ended = timeout(DEADLINE, ending).await;
        ended.expect("the connection ends").unwrap();
        self.text().into_owned()
    }

    /// Reads to the end of the connection: exactly one answer, which is complete.
    pub async fn answer(self) -> Answer {
        let text = self.rest().await;
        let (head, rest) = text.split_once("\r\n\r\n").expect("a head");
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1));
        let status = status.expect("a status line").parse().unwrap();
        let mut length = None;
        for line in lines {
            let (name, value) = line.split_once(": ").expect("a header");
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = Some(value.parse::<usize>().unwrap()),
                "transfer-encoding" => assert_eq!(value, "chunked"),
                _ => {}
            }
        }
        let body = match length {
            Some(length) => {
                assert_eq!(rest.len(), length, "{text}");
                rest.to_owned()
            }
            None if status == 204 => rest.to_owned(),
            None => chunks(rest),
        };
        Answer { status, body }
    }

    fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.read)
    }
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

/// The body of an answer in chunks, which has the last one.
fn chunks(mut text: &str) -> String {
    let mut body = String::new();
    loop {
        let (size, rest) = text.split_once("\r\n").expect("the size of a chunk");
        let size = usize::from_str_radix(size, 16).unwrap();
        body += rest.get(..size).expect("a whole chunk");
        text = rest[size..]
            .strip_prefix("\r\n")
            .expect("the end of a chunk");
        if size == 0 {
            assert_eq!(text, "", "nothing follows");
            return body;
        }
    }
}
