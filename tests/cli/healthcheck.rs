//! What the image of a container runs: `lapsed listen --migrate-sqlite` and `lapsed healthcheck`.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;

use crate::support::program::{lapsed, said};
use crate::support::wait::until;
use crate::unwritable_log::{Daemon, ended, signal};

fn run(config: &Path, words: &[&str]) -> (i32, String, String) {
    said(
        lapsed()
            .arg("--config")
            .arg(config)
            .args(words)
            .output()
            .unwrap(),
    )
}

#[tokio::test]
async fn a_daemon_creates_its_file_and_is_healthy_until_it_stops() {
    let place = tempfile::tempdir().unwrap();
    let (config, file) = (
        place.path().join("lapsed.toml"),
        place.path().join("lapsed.db"),
    );
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    // A listener on every address is asked on the loopback address.
    let settings = format!(
        "ledger.url = 'sqlite://{}'\nhttp.listen = '0.0.0.0:{port}'\nhttp.tokens = ['0123456789abcdef0123456789abcdef']\n",
        file.display()
    );
    std::fs::write(&config, settings).unwrap();

    let (code, _, error) = run(&config, &["healthcheck"]);
    assert_eq!(code, 1);
    let expected = format!("error: ask the daemon at `0.0.0.0:{port}` (`http.listen`)");
    assert!(error.starts_with(&expected), "{error}");

    // At the first start and at a later one.
    for _ in 0..2 {
        let mut listen = lapsed();
        listen
            .arg("--config")
            .arg(&config)
            .args(["listen", "--migrate-sqlite"]);
        let mut daemon = Daemon(listen.stderr(Stdio::null()).spawn().unwrap());
        let (healthy, ready) = (["healthcheck"], ["healthcheck", "--ready"]);
        until("the daemon is healthy", async || {
            run(&config, &healthy).0 == 0
        })
        .await;
        until("the daemon is ready", async || run(&config, &ready).0 == 0).await;
        let (_, text, _) = run(&config, &healthy);
        assert_eq!(text, format!("the daemon at 0.0.0.0:{port} is healthy\n"));
        signal(daemon.0.id(), Signal::TERM);
        assert_eq!(ended(&mut daemon.0).await.code(), Some(0));
    }
}

#[test]
fn without_http_the_health_is_not_known() {
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("lapsed.toml");
    std::fs::write(&config, "http.listen = ''").unwrap();
    let (code, _, error) = run(&config, &["healthcheck"]);
    assert_eq!(code, 2);
    assert_eq!(
        error,
        "error: `lapsed healthcheck` asks over HTTP: set `http.listen`\n"
    );
}

/// An answer other than 200 is not healthy.
#[test]
fn a_daemon_that_is_not_ready_fails_with_its_answer() {
    use std::io::{Read as _, Write as _};
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = server.local_addr().unwrap();
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("lapsed.toml");
    std::fs::write(&config, format!("http.listen = '{address}'")).unwrap();
    let answering = std::thread::spawn(move || {
        let (mut client, _) = server.accept().unwrap();
        // All of it: closing a connection with bytes that were not read resets it.
        let mut question = Vec::new();
        while !question.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            question.extend(byte);
        }
        let answer = b"HTTP/1.1 503 Service Unavailable\r\n\r\n{\"ready\":false}";
        client.write_all(answer).unwrap();
        String::from_utf8(question).unwrap()
    });
    let (code, _, error) = run(&config, &["healthcheck", "--ready"]);
    let question = answering.join().unwrap();
    assert!(
        question.starts_with("GET /readyz HTTP/1.1\r\n"),
        "{question}"
    );
    assert_eq!(code, 1);
    let expected = format!(
        "error: the daemon at `{address}` is not healthy: /readyz answers 503: {{\"ready\":false}}\n"
    );
    assert_eq!(error.lines().next(), expected.lines().next());
}
