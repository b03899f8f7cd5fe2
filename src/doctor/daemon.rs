//! Readiness check: asks the daemon at `http.listen`, if one answers there, whether tasks start. It knows what no query of
//! another process finds, such as claims that cannot be read back.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use lapsed::Config;
use lapsed::diagnosis::Finding;

const READY: &str = "daemon.ready";

/// Time limit of the question.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Longest answer that is read, in bytes.
const ANSWER_MAX: u64 = 16 * 1024;

/// What `/readyz` answers.
#[derive(Debug, Deserialize)]
struct Readiness {
    ready: bool,
    ledger: bool,
    reasons: Vec<String>,
}

/// The finding; `None` if no daemon answers.
pub(super) async fn examine(config: &Config) -> Option<Finding> {
    let address = reachable(config.http.listen?);
    let (_, body) = probe(address, "/readyz").await.ok()?;
    Some(judge(address, &parse(&body)?))
}

/// Asks a daemon of this machine for a path. Returns the status and the body.
///
/// # Errors
/// If there is no answer within 2 s, or it is not HTTP.
pub async fn probe(listen: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    let asked = timeout(ANSWER_WITHIN, ask(reachable(listen), path)).await;
    let answer = asked.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    split(&answer).ok_or_else(|| io::Error::other("the answer is not HTTP"))
}

/// An address at which a listener on every address is reached.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    address
}

async fn ask(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let question = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(question.as_bytes()).await?;
    let mut answer = String::new();
    stream.take(ANSWER_MAX).read_to_string(&mut answer).await?;
    Ok(answer)
}

/// The status and the body of an answer.
fn split(answer: &str) -> Option<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    Some((status, body.to_owned()))
}

/// `None` if it is the answer of another program.
fn parse(body: &str) -> Option<Readiness> {
    serde_json::from_str(body).ok()
}

fn judge(address: SocketAddr, readiness: &Readiness) -> Finding {
    if readiness.ready {
        return Finding::ok(READY, format!("the daemon at {address} is ready"));
    }
    let found = format!(
        "the daemon at {address} is not ready: {}",
        readiness.reasons.join(" ")
    );
    let finding = match readiness.ledger {
        true => Finding::warning(READY, found),
        false => Finding::error(READY, found),
    };
    finding.remedy("look for `ERROR` in its log, which has the whole reason")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assertions::assert_is;
    use lapsed::diagnosis::Severity;

    #[test]
    fn a_daemon_that_is_not_ready_is_found_with_its_reasons() {
        let head = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\r\n";
        let body = r#"{"ready":false,"ledger":false,"subscription":null,"stopping":false,"members":1,
            "reasons":["The ledger does not answer, so no task starts: could not claim tasks."]}"#;
        let address = "127.0.0.1:8787".parse().unwrap();
        let (status, body) = split(&format!("{head}{body}")).unwrap();
        assert_eq!(status, 503);
        let found = judge(address, &parse(&body).unwrap());
        assert_is(&found, Severity::Error, "is not ready: The ledger does not");
        let body = r#"{"ready":true,"ledger":true,"reasons":[]}"#;
        let found = judge(address, &parse(body).unwrap());
        assert_is(&found, Severity::Ok, "127.0.0.1:8787 is ready");
        for other in ["", "HTTP/1.1 200 OK\r\n\r\n<html>", "220 mail\r\n\r\n{}"] {
            let read = split(other).and_then(|(_, body)| parse(&body));
            assert!(read.is_none(), "{other}");
        }
    }

    #[tokio::test]
    async fn without_a_daemon_there_is_nothing_to_say() {
        let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let config = Config::from_toml(&format!("http.listen = '{address}'")).unwrap();
        assert!(examine(&config).await.is_none());
        let config = Config::from_toml("http.listen = ''").unwrap();
        assert!(examine(&config).await.is_none());
    }
}
