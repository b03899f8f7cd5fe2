//! Streams, lists and channels of Redis as targets.

use std::collections::BTreeMap;
use std::sync::Arc;

use lapsed::handler::Router;
use lapsed::task::State;
use lapsed::{Due, Handlers, Task};
use lapsed_sandbox::PrivateRedis;
use serde_json::Value;
use tokio_stream::StreamExt;

use crate::support::daemon::Daemon;
use crate::support::rig::Rig;
use crate::support::tasks::key;
use crate::support::wait::until;

/// Settings of a route for `Out@..`.
fn route(target: &str) -> String {
    format!("[[routes]]\nmatch = '^Out@'\n{target}\n")
}

async fn start(target: &str) -> (Rig, Daemon) {
    let rig = Rig::new(&route(target)).await;
    let daemon = rig.daemon_with(Handlers::new());
    (rig, daemon)
}

/// What one command says to a server.
async fn says<T: redis::FromRedisValue>(server: &PrivateRedis, words: &[&str]) -> T {
    let mut connection = server.connect(0).await.unwrap();
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(&mut connection).await.unwrap()
}

type Entry = (String, BTreeMap<String, String>);

#[tokio::test]
async fn a_worker_gets_a_task_from_a_stream_and_acknowledges_it() {
    let (rig, daemon) = start("stream = { key = 'lapsed:{class}', maxlen = 1000 }").await;
    let task = Task::from(key("Out@go@1@x")).payload("{\"amount\": 5}");
    let made = daemon.tasks.create(task, Due::NOW).await.unwrap();
    rig.until_done(1).await;
    let () = rig
        .redis_says(&["XGROUP", "CREATE", "lapsed:Out", "workers", "0"])
        .await;
    let read = [
        "XREADGROUP",
        "GROUP",
        "workers",
        "w1",
        "COUNT",
        "10",
        "STREAMS",
        "lapsed:Out",
        ">",
    ];
    let found: Vec<(String, Vec<Entry>)> = rig.redis_says(&read).await;
    let (entry, fields) = &found[0].1[0];
    let field = |name: &str| fields[name].as_str();
    assert_eq!(field("id"), made.id());
    assert_eq!(field("key"), "Out@go@1@x");
    assert_eq!(
        [field("class"), field("method"), field("attempt")],
        ["Out", "go", "1"]
    );
    let task: Value = serde_json::from_str(field("task")).unwrap();
    assert_eq!(task["args"], serde_json::json!(["1", "x"]));
    assert_eq!(task["payload"]["amount"], 5);
    assert_eq!(fields.len(), 6);
    let acknowledged: u64 = rig
        .redis_says(&["XACK", "lapsed:Out", "workers", entry])
        .await;
    assert_eq!(acknowledged, 1);
}

#[tokio::test]
async fn a_stream_is_cut_to_about_its_length_and_only_if_the_route_says_so() {
    // Redis cuts whole nodes, of 100 entries at most.
    for (maxlen, kept) in [(", maxlen = 1", 1..=100), ("", 300..=300)] {
        let (rig, daemon) = start(&format!("stream = {{ key = 's'{maxlen} }}")).await;
        let tasks = (0..300).map(|number| Task::from(key(&format!("Out@go@{number}"))));
        let tasks: Vec<_> = tasks.map(|task| (task, Due::NOW)).collect();
        for chunk in tasks.chunks(100) {
            for (task, due) in chunk {
                daemon.tasks.create(task.clone(), *due).await.unwrap();
            }
        }
        rig.until_done(300).await;
        let length: usize = rig.redis_says(&["XLEN", "s"]).await;
        assert!(kept.contains(&length), "{length}");
    }
}

#[tokio::test]
async fn a_worker_takes_tasks_from_a_list_in_their_order() {
    let (rig, daemon) = start("list = { key = 'jobs:{method}' }").await;
    for number in 1..=3 {
        daemon.create(&format!("Out@go@{number}"), 0).await;
        rig.until_done(number).await;
    }
    for number in 1..=3 {
        let (list, task): (String, String) = rig.redis_says(&["BRPOP", "jobs:go", "5"]).await;
        let task: Value = serde_json::from_str(&task).unwrap();
        assert_eq!(list, "jobs:go");
        assert_eq!(task["key"], format!("Out@go@{number}"));
    }
}

#[tokio::test]
async fn a_message_waits_for_subscribers_if_the_route_requires_them() {
    let deaf = "publish = { channel = 'news:{class}' }";
    let (rig, daemon) = start(deaf).await;
    daemon.create("Out@nobody", 0).await;
    rig.until_done(1).await;

    let (rig, daemon) =
        start("publish = { channel = 'news:{class}', require_receivers = true }").await;
    daemon.create("Out@go", 0).await;
    until("it was tried in vain", async || {
        rig.record("Out@go").await.last_error.is_some()
    })
    .await;
    let error = rig.record("Out@go").await.last_error.unwrap();
    assert!(
        error.contains("publish news:{class}: `news:Out` has no subscriber"),
        "{error}"
    );
    let client = redis::Client::open(rig.redis.url()).unwrap();
    let mut listener = client.get_async_pubsub().await.unwrap();
    listener.subscribe("news:Out").await.unwrap();
    let message = listener.on_message().next().await.unwrap();
    let task: Value = serde_json::from_slice(message.get_payload_bytes()).unwrap();
    assert_eq!(task["method"], "go");
    rig.until_done(1).await;
}

#[tokio::test]
async fn a_task_is_done_only_when_the_server_has_answered() {
    let mut other = PrivateRedis::options()
        .set("appendonly", "yes")
        .start()
        .await
        .unwrap();
    let target = format!("stream = {{ key = 's', url = '{}' }}", other.url());
    let (rig, daemon) = start(&target).await;
    daemon.create("Out@first", 0).await;
    rig.until_done(1).await;

    other.stop_process().unwrap();
    let made = daemon.create("Out@silent", 0).await;
    until("it was tried in vain", async || {
        rig.record("Out@silent").await.last_error.is_some()
    })
    .await;
    assert_eq!(rig.with_status(1).await, 1);
    other.continue_process().unwrap();
    rig.until_done(2).await;
    let entries: Vec<Entry> = says(&other, &["XRANGE", "s", "-", "+"]).await;
    let silent: Vec<_> = entries
        .iter()
        .filter(|(_, fields)| fields["method"] == "silent")
        .collect();
    assert!(!silent.is_empty());
    // At least once, and each time with the same id.
    assert!(
        silent.iter().all(|(_, fields)| fields["id"] == made.id()),
        "{silent:?}"
    );

    other.kill();
    daemon.create("Out@dead", 0).await;
    until("it was tried in vain", async || {
        rig.record("Out@dead").await.last_error.is_some()
    })
    .await;
    let error = rig.record("Out@dead").await.last_error.unwrap();
    assert!(
        error.contains("stream s on redis://127.0.0.1:") && error.contains("cannot reach redis"),
        "{error}"
    );
    other.start_again().await.unwrap();
    rig.until_done(3).await;
    let entries: Vec<Entry> = says(&other, &["XRANGE", "s", "-", "+"]).await;
    assert!(entries.iter().any(|(_, fields)| fields["method"] == "dead"));
}

#[tokio::test]
async fn an_idle_connection_that_was_closed_costs_no_attempt() {
    let other = PrivateRedis::start().await.unwrap();
    let target = format!("list = {{ key = 'l', url = '{}' }}", other.url());
    let (rig, daemon) = start(&target).await;
    daemon.create("Out@first", 0).await;
    rig.until_done(1).await;
    let killed: u64 = says(
        &other,
        &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
    )
    .await;
    assert!(killed >= 1);
    daemon.create("Out@second", 0).await;
    rig.until_done(2).await;
    assert_eq!(rig.record("Out@second").await.attempt, 1);
}

#[tokio::test]
async fn a_refusal_says_what_to_do_about_it() {
    let other = PrivateRedis::start().await.unwrap();
    let url = other.url();
    let denied = format!("redis://mallory:s3cret@127.0.0.1:{}/0", other.port());
    let settings = format!(
        "retry.max_attempts = 1\n\
         [[routes]]\nmatch = '@type$'\nstream = {{ key = 'text', url = '{url}' }}\n\
         [[routes]]\nmatch = '@denied$'\nlist = {{ key = 'jobs:{{class}}', url = '{denied}' }}\n\
         [[routes]]\nmatch = '@full$'\nlist = {{ key = 'l', url = '{url}' }}\n\
         [[routes]]\nmatch = '@replica$'\nlist = {{ key = 'l', url = '{url}' }}\n"
    );
    let rig = Rig::new(&settings).await;
    let daemon = rig.daemon_with(Handlers::new());
    let () = says(&other, &["SET", "text", "x"]).await;
    let acl = [
        "ACL", "SETUSER", "mallory", "on", ">s3cret", "+ping", "+client",
    ];
    let () = says(&other, &acl).await;
    let fail = async |name: &str| {
        let name = format!("Out@{name}");
        daemon.create(&name, 0).await;
        rig.until_state(&name, State::Dead).await;
        rig.record(&name).await.last_error.unwrap()
    };
    let error = fail("type").await;
    assert!(
        error.contains("WRONGTYPE") && error.contains("choose another"),
        "{error}"
    );
    let error = fail("denied").await;
    assert!(
        error.contains("give the user `+lpush ~jobs:*`") && !error.contains("s3cret"),
        "{error}"
    );
    let () = says(&other, &["CONFIG", "SET", "maxmemory", "1"]).await;
    let error = fail("full").await;
    assert!(error.contains("raise its `maxmemory`"), "{error}");
    let () = says(&other, &["CONFIG", "SET", "maxmemory", "0"]).await;
    let () = says(&other, &["REPLICAOF", "127.0.0.1", "1"]).await;
    let error = fail("replica").await;
    assert!(error.contains("name the master"), "{error}");
}

#[tokio::test]
async fn routes_to_one_server_share_a_connection_and_keep_it_when_they_are_reloaded() {
    let other = PrivateRedis::start().await.unwrap();
    let url = other.url();
    let routes = format!(
        "[[routes]]\nmatch = '^Out@a'\nstream = {{ key = 's', url = '{url}' }}\n\
         [[routes]]\nmatch = '^Out@b'\nlist = {{ key = 'l', url = '{url}' }}\n\
         [[routes]]\nmatch = '^Out@c'\npublish = {{ channel = 'c', url = '{url}' }}\n"
    );
    let rig = Rig::new(&routes).await;
    let daemon = rig.daemon_with(Handlers::new());
    let clients = async || {
        let list: String = says(&other, &["CLIENT", "LIST", "TYPE", "normal"]).await;
        let ids = list.lines().filter(|line| !line.contains("cmd=client"));
        let id = |line: &str| line.split(' ').next().unwrap().to_owned();
        ids.map(id).collect::<Vec<_>>()
    };
    for name in ["a", "b", "c"] {
        daemon.create(&format!("Out@{name}"), 0).await;
    }
    rig.until_done(3).await;
    let before = clients().await;
    assert_eq!(before.len(), 1, "{before:?}");
    let router: Arc<Router> = daemon.router();
    router.reload(&rig.config());
    daemon.create("Out@b@2", 0).await;
    rig.until_done(4).await;
    assert_eq!(clients().await, before);
}
