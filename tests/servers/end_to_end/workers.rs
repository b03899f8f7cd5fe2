//! The examples for other programs: workers on a stream and a list, and a receiver of webhooks.

use std::process::{Child, Command, Stdio};

use lapsed::Handlers;
use lapsed::task::State;
use tokio::net::TcpStream;

use crate::support::rig::Rig;
use crate::support::wait::until;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/workers");

type Entry = (String, Vec<String>);

/// The routes of the examples, with another port for the receiver.
fn routes(port: u16) -> String {
    let text = std::fs::read_to_string(format!("{EXAMPLES}/lapsed.toml")).unwrap();
    let routes = text.find("[[routes]]").unwrap();
    text[routes..].replace(":8080/", &format!(":{port}/"))
}

fn php(arguments: &[&str]) -> Command {
    let mut command = Command::new("php");
    command.current_dir(EXAMPLES).args(arguments);
    command
}

/// Runs a worker until it has had so many tasks.
async fn worker(rig: &Rig, script: &'static str, tasks: usize) -> String {
    let mut command = php(&[script, &tasks.to_string()]);
    command.env(
        "LAPSED_WORKER_REDIS",
        format!("redis://127.0.0.1:{}/0", rig.redis.port()),
    );
    let ended = tokio::task::spawn_blocking(move || command.output());
    let output = ended.await.unwrap();
    let output = output.expect("`php` was not found; run `scripts/install-servers`");
    let said = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    said + &errors
}

#[tokio::test]
async fn php_takes_tasks_from_a_stream_and_a_list_and_does_each_once() {
    let rig = Rig::new(&routes(1)).await;
    let daemon = rig.daemon_with(Handlers::new());
    for name in ["Order@close@1", "Order@close@2", "Mail@remind@3"] {
        daemon.create(name, 0).await;
    }
    rig.until_done(3).await;
    let said = worker(&rig, "stream.php", 2).await;
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["closing order 1", "closing order 2"]);
    assert_eq!(worker(&rig, "list.php", 1).await, "reminding customer 3\n");
    let left: redis::Value = rig
        .redis_says(&["XPENDING", "lapsed:orders", "workers"])
        .await;
    let nothing = format!("{left:?}");
    assert!(nothing.starts_with("array([int(0)"), "{nothing}");

    // What a worker took and never acknowledged comes to another: as if it had been taken an hour ago.
    daemon.create("Order@close@4", 0).await;
    rig.until_done(4).await;
    let read = [
        "XREADGROUP",
        "GROUP",
        "workers",
        "dead",
        "STREAMS",
        "lapsed:orders",
        ">",
    ];
    let taken: Vec<(String, Vec<Entry>)> = rig.redis_says(&read).await;
    let entry = &taken[0].1[0].0;
    let aged = [
        "XCLAIM",
        "lapsed:orders",
        "workers",
        "dead",
        "0",
        entry,
        "IDLE",
        "3600000",
        "JUSTID",
    ];
    let _: Vec<String> = rig.redis_says(&aged).await;
    assert_eq!(worker(&rig, "stream.php", 1).await, "closing order 4\n");

    // The same again, as after a lost answer.
    let first: Vec<Entry> = rig
        .redis_says(&["XRANGE", "lapsed:orders", "-", "+", "COUNT", "1"])
        .await;
    let mut again = vec!["XADD", "lapsed:orders", "*"];
    again.extend(first[0].1.iter().map(String::as_str));
    let _: String = rig.redis_says(&again).await;
    assert_eq!(worker(&rig, "stream.php", 1).await, "");
}

#[tokio::test]
async fn an_entry_that_fails_each_time_is_moved_away_and_the_worker_goes_on() {
    let rig = Rig::new(&routes(1)).await;
    let group = [
        "XGROUP",
        "CREATE",
        "lapsed:orders",
        "workers",
        "0",
        "MKSTREAM",
    ];
    let _: String = rig.redis_says(&group).await;
    // Without the argument that the worker expects.
    let task =
        r#"{"id": "1-1", "key": "Order@close", "class": "Order", "method": "close", "args": []}"#;
    let _: String = rig
        .redis_says(&["XADD", "lapsed:orders", "*", "task", task])
        .await;
    for delivery in 1..=5 {
        let said = worker(&rig, "stream.php", 1).await;
        assert!(said.contains("failed: Undefined array key 0"), "{said}");
        let pending: Vec<(String, String, i64, i64)> = rig
            .redis_says(&["XPENDING", "lapsed:orders", "workers", "-", "+", "1"])
            .await;
        let failed: i64 = rig.redis_says(&["XLEN", "lapsed:orders:failed"]).await;
        if delivery == 5 {
            assert_eq!((pending.len(), failed), (0, 1));
            break;
        }
        assert_eq!((pending[0].3, failed), (delivery, 0));
        // As if it had been taken an hour ago.
        let (entry, count) = (&pending[0].0, delivery.to_string());
        let aged = [
            "XCLAIM",
            "lapsed:orders",
            "workers",
            "dead",
            "0",
            entry,
            "IDLE",
            "3600000",
            "RETRYCOUNT",
            &count,
            "JUSTID",
        ];
        let _: Vec<String> = rig.redis_says(&aged).await;
    }
}

struct Receiver(Child);

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn php_takes_webhooks_that_are_signed_with_a_key_it_knows() {
    let known = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let other = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    for (secrets, state) in [(known, State::Done), (other, State::Dead)] {
        let port = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        };
        let mut command = php(&["-S", &format!("127.0.0.1:{port}"), "receiver.php"]);
        command.env("LAPSED_WEBHOOK_SECRETS", secrets);
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        let _receiver = Receiver(command.spawn().expect("`php` is there"));
        until("the receiver listens", async || {
            TcpStream::connect(("127.0.0.1", port)).await.is_ok()
        })
        .await;
        let rig = Rig::new(&format!("retry.max_attempts = 1\n{}", routes(port))).await;
        let daemon = rig.daemon_with(Handlers::new());
        daemon.create("Hook@ring@1", 0).await;
        rig.until_state("Hook@ring@1", state).await;
        let error = rig.record("Hook@ring@1").await.last_error;
        let refused = error.is_some_and(|error| {
            error.contains("answered 401 Unauthorized: the signature is not right")
        });
        assert_eq!(refused, state == State::Dead);
    }
}
