//! The RESP server of the program: TLS, a ledger that is away, transactions, and the end of the daemon.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;

use redis::{AsyncCommands as _, TlsCertificates};
use rustix::process::Signal;

use crate::support::certificate::write_certificate;
use crate::support::process::Process;
use crate::support::program::said;
use crate::support::resp_wire::{Reply, Wire};
use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::wait::{DEADLINE, until};

const RESP: &str = "timer = 'ledger_poll'\nresp.listen = '127.0.0.1:0'";

/// A daemon on a file in this directory, with these settings, and the port of its RESP server.
async fn on_a_file(directory: &Path, settings: &str) -> (Process, u16) {
    let settings = format!("http.listen = ''\nresp.listen = '127.0.0.1:0'\n{settings}");
    let daemon = Process::on_a_file(directory, &settings);
    let port = daemon.address("resp").await.port();
    (daemon, port)
}

fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

#[tokio::test]
async fn clients_that_trust_the_certificate_are_served_and_no_others() {
    let place = tempfile::tempdir().unwrap();
    write_certificate(place.path(), "127.0.0.1");
    let path = |name: &str| place.path().join(name).display().to_string();
    let settings = format!(
        "resp.tls_cert = '{}'\nresp.tls_key = '{}'",
        path("cert.pem"),
        path("key.pem")
    );
    let (daemon, port) = on_a_file(place.path(), &settings).await;

    // Another test may have chosen it already.
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    let url = format!("rediss://127.0.0.1:{port}");
    let trusting = TlsCertificates {
        client_tls: None,
        root_cert: Some(std::fs::read(path("ca.pem")).unwrap()),
    };
    let client = redis::Client::build_with_tls(url.as_str(), trusting).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    let () = redis.set_ex("Job@tls@1", "{}", 1000).await.unwrap();
    let ttl: i64 = redis.ttl("Job@tls@1").await.unwrap();
    assert!((990..=1000).contains(&ttl), "{ttl}");

    let cli = |trust: &[&str]| {
        let mut cli = Command::new("redis-cli");
        cli.args(["-p", &port.to_string(), "--tls"]).args(trust);
        cli.args(["EXISTS", "Job@tls@1"]);
        said(cli.output().unwrap())
    };
    let (code, stdout, stderr) = cli(&["--cacert", &path("ca.pem")]);
    assert_eq!((code, stdout.trim()), (0, "1"), "{stderr}");
    let (code, _, stderr) = cli(&[]);
    assert_ne!(code, 0, "it does not trust the certificate: {stderr}");

    let doubting = redis::Client::open(url).unwrap();
    let refused = doubting.get_multiplexed_async_connection().await;
    assert!(refused.is_err());

    let mut plain = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    plain.set_read_timeout(Some(DEADLINE)).unwrap();
    plain.write_all(b"PING\r\n").unwrap();
    let mut answer = Vec::new();
    // A reset is an end, too.
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"+"), "{answer:?}");
    drop(daemon);
}

#[tokio::test]
async fn a_ledger_that_is_away_is_an_error_and_the_connection_goes_on() {
    let mut rig = Setup::new(RESP).own_maria().start().await;
    let daemon = Process::listen(&rig, &[]);
    let mut client = Wire::connect(daemon.address("resp").await.port());
    assert_eq!(client.ask(&["SETEX", "Job@a@1", "1000", ""]), ok());
    // A daemon that starts while its ledger is away ends with an error.
    daemon.until_logged("audited").await;
    rig.maria().kill();
    for command in [
        &["SETEX", "Job@a@2", "1000", ""][..],
        &["TTL", "Job@a@1"],
        &["DEL", "Job@a@1"],
    ] {
        let answer = client.ask(command);
        let Reply::Error(text) = &answer else {
            panic!("{command:?}: {answer:?}");
        };
        assert!(text.starts_with("ERR "), "{text}");
    }
    assert_eq!(
        client.ask(&["PING"]),
        Reply::Simple("PONG".to_owned()),
        "what needs no ledger is answered"
    );
    rig.maria().restart().await.unwrap();
    let client = std::cell::RefCell::new(client);
    until("it is acknowledged again", async || {
        client.borrow_mut().ask(&["SETEX", "Job@a@3", "1000", ""]) == ok()
    })
    .await;
    for (name, there) in [("Job@a@1", true), ("Job@a@3", true)] {
        let answer = client.borrow_mut().ask(&["EXISTS", name]);
        assert_eq!(answer, Reply::Integer(i64::from(there)), "{name}");
    }
}

#[tokio::test]
async fn a_transaction_is_one_in_mysql() {
    let rig = Rig::new(RESP).await;
    let daemon = Process::listen(&rig, &[]);
    let port = daemon.address("resp").await.port();
    let (mut client, mut other) = (Wire::connect(port), Wire::connect(port));
    let queued = || Reply::Simple("QUEUED".to_owned());
    let setex = |name: &str| {
        vec![
            "SETEX".to_owned(),
            name.to_owned(),
            "1000".into(),
            "".into(),
        ]
    };
    let exists = |other: &mut Wire, name: &str| other.ask(&["EXISTS", name]) == Reply::Integer(1);

    assert_eq!(client.ask(&["MULTI"]), ok());
    for name in ["Job@t@1", "Job@t@2"] {
        assert_eq!(client.ask(&setex(name)), queued());
    }
    assert!(!exists(&mut other, "Job@t@1"), "before EXEC");
    assert_eq!(client.ask(&["EXEC"]), Reply::Array(vec![ok(), ok()]));
    let written = "SELECT COUNT(*) FROM tb_time_limit_task WHERE status = 0";
    assert_eq!(rig.number(written).await, 2);

    // A command that is refused while it is queued aborts all.
    client.ask(&["MULTI"]);
    client.ask(&setex("Job@t@3"));
    assert!(matches!(client.ask(&["SETEX", "Job@t@4"]), Reply::Error(_)));
    let aborted = client.ask(&["EXEC"]);
    assert!(
        matches!(&aborted, Reply::Error(text) if text.starts_with("EXECABORT")),
        "{aborted:?}"
    );
    assert!(!exists(&mut other, "Job@t@3"));

    // A key that changed since it was watched aborts all.
    assert_eq!(client.ask(&["WATCH", "Job@t@1"]), ok());
    assert_eq!(other.ask(&["DEL", "Job@t@1"]), Reply::Integer(1));
    client.ask(&["MULTI"]);
    client.ask(&setex("Job@t@5"));
    assert_eq!(client.ask(&["EXEC"]), Reply::NoArray);
    assert!(!exists(&mut other, "Job@t@5"));

    client.ask(&["MULTI"]);
    client.ask(&setex("Job@t@6"));
    assert_eq!(client.ask(&["DISCARD"]), ok());
    assert!(!exists(&mut other, "Job@t@6"));
    assert_eq!(rig.number(written).await, 1);
}

#[tokio::test]
async fn a_stopping_daemon_answers_waiting_clients_and_closes() {
    let place = tempfile::tempdir().unwrap();
    let route = "[[routes]]\nmatch = '^Mail@'\npull = { queue = 'mail' }";
    let (mut daemon, port) = on_a_file(place.path(), route).await;
    let (mut waiting, mut idle) = (Wire::connect(port), Wire::connect(port));
    waiting.send(b"LAPSED.TAKE mail BLOCK 0\r\n");
    assert_eq!(idle.ask(&["SETEX", "Job@a@1", "1000", ""]), ok());
    daemon.signal(Signal::TERM);
    assert_eq!(waiting.reply(), Reply::Array(Vec::new()));
    assert!(waiting.is_closed() && idle.is_closed());
    assert_eq!(daemon.until_ended().await.code(), Some(0));
    // It is there for the next daemon.
    let (_daemon, port) = on_a_file(place.path(), route).await;
    let answer = Wire::connect(port).ask(&["EXISTS", "Job@a@1"]);
    assert_eq!(answer, Reply::Integer(1));
}
