//! Alerts: what the receiver of their webhook gets from the program.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::{NamedTempFile, TempDir};

use crate::end_to_end::receiver::{Answer, Receiver, Request};
use crate::support::process::Process;
use crate::support::program::{lapsed, said};
use crate::support::rig::Rig;
use crate::support::wait::until;

/// An SQLite file with its configuration: `Job@bad` dies, `Job@good` succeeds.
struct Place {
    directory: TempDir,
    alerts: String,
}

impl Place {
    fn new(alerts: &str) -> Self {
        let place = Self {
            directory: tempfile::tempdir().unwrap(),
            alerts: alerts.to_owned(),
        };
        place.run(&["migrate"]);
        place
    }

    fn config(&self) -> NamedTempFile {
        let file = NamedTempFile::new().unwrap();
        let database = self.directory.path().join("lapsed.db");
        let text = format!(
            "http.listen = ''\nledger.url = 'sqlite://{}'\n\
             [[routes]]\nmatch = '^Job@bad'\nexec = ['sh', '-c', 'exit 65']\n\
             [[routes]]\nmatch = '^Job@good'\nexec = ['true']\n\
             [alerts]\nallow = ['127.0.0.1']\nwindow = '2s'\nclear_after = '500ms'\n{}\n",
            database.display(),
            self.alerts
        );
        std::fs::write(file.path(), text).unwrap();
        file
    }

    fn run(&self, args: &[&str]) -> String {
        let config = self.config();
        let mut command = lapsed();
        command.arg("--config").arg(config.path()).args(args);
        let (code, stdout, stderr) = said(command.output().unwrap());
        assert_eq!(code, 0, "{args:?}: {stderr}");
        stdout
    }

    fn listen(&self) -> Process {
        Process::listen_with(self.config(), &[])
    }

    async fn until_done(&self, key: &str) {
        until(format!("`{key}` is done"), async || {
            let shown: Value = serde_json::from_str(&self.run(&["--json", "show", key])).unwrap();
            shown["state"] == "done"
        })
        .await;
    }
}

fn state(request: &Request) -> String {
    let message: Value = serde_json::from_str(&request.body).unwrap();
    message["state"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_dead_task_raises_an_alert_that_clears_afterwards() {
    // The receiver is down at first.
    let receiver = Receiver::start(|_, before| Answer::status(if before == 0 { 503 } else { 204 }));
    let receiver = receiver.await;
    let url = receiver.url("/s3cret");
    let place = Place::new(&format!(
        "url = '{url}'\nsecret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'"
    ));
    let daemon = place.listen();
    place.run(&["schedule", "Job@bad@1", "--in", "0s"]);
    until("both messages are accepted", async || {
        receiver.requests().len() >= 3
    })
    .await;
    let requests = receiver.requests();
    let states: Vec<String> = requests.iter().map(state).collect();
    assert_eq!(states, ["firing", "firing", "resolved"]);
    let id = |request: &Request| request.headers["webhook-id"].clone();
    assert_eq!(id(&requests[0]), id(&requests[1]), "it is the same message");
    assert_ne!(id(&requests[1]), id(&requests[2]));
    let message: Value = serde_json::from_str(&requests[1].body).unwrap();
    assert_eq!(message["id"], id(&requests[1]));
    assert_eq!(message["alert"], "dead");
    assert_eq!(message["summary"], "tasks died in the last 2 s: 1");
    assert!(requests[1].headers["webhook-signature"].starts_with("v1,"));
    let log = daemon.log();
    assert!(
        log.contains("could not deliver a message about an alert"),
        "{log}"
    );
    assert!(!log.contains("s3cret"), "{log}");
}

#[tokio::test]
async fn a_chat_gets_a_text() {
    let receiver = Receiver::start(|_, _| Answer::status(200)).await;
    let url = receiver.url("/services/T0");
    let place = Place::new(&format!("url = '{url}'\nformat = 'slack'"));
    let _daemon = place.listen();
    place.run(&["schedule", "Job@bad@1", "--in", "0s"]);
    until("the chat has a text", async || {
        !receiver.requests().is_empty()
    })
    .await;
    let body: Value = serde_json::from_str(&receiver.requests()[0].body).unwrap();
    let text = body["text"].as_str().unwrap();
    assert!(
        text.starts_with("[firing] lapsed dead: tasks died in the last 2 s: 1."),
        "{text}"
    );
}

#[tokio::test]
async fn an_unresponsive_receiver_delays_nothing() {
    let receiver = Receiver::start(|_, _| Answer::Silence).await;
    let place = Place::new(&format!("url = '{}'", receiver.url("/")));
    let mut daemon = place.listen();
    place.run(&["schedule", "Job@bad@1", "--in", "0s"]);
    until("the receiver has a message", async || {
        !receiver.requests().is_empty()
    })
    .await;
    place.run(&["schedule", "Job@good@1", "--in", "0s"]);
    place.until_done("Job@good@1").await;
    daemon.signal(Signal::TERM);
    let ended = tokio::time::timeout(Duration::from_secs(20), daemon.until_ended()).await;
    assert!(ended.expect("it stops while a message waits").success());
}

#[tokio::test]
async fn a_daemon_that_is_killed_is_reported_by_another_one() {
    let receiver = Receiver::start(|_, _| Answer::status(204)).await;
    let rig = Rig::new(&format!(
        "alerts = {{ url = '{}', allow = ['127.0.0.1'], window = '60s', down_for = '1s' }}",
        receiver.url("/")
    ))
    .await;
    let (first, mut second) = (Process::listen(&rig, &[]), Process::listen(&rig, &[]));
    for daemon in [&first, &second] {
        daemon.until_logged("other daemons came or went").await;
    }
    second.kill();
    until("it is reported", async || {
        let mut requests = receiver.requests().into_iter();
        requests.any(|request| {
            let message: Value = serde_json::from_str(&request.body).unwrap();
            message["alert"] == "daemon"
        })
    })
    .await;
}
