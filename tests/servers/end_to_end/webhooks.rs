//! Somebody's server as a target.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use lapsed::task::State;
use lapsed::{Due, Handlers, Task};
use rustix::process::Signal;
use sha2::Sha256;

use crate::end_to_end::receiver::{Answer, Receiver, Request};
use crate::support::daemon::Daemon;
use crate::support::process::Process;
use crate::support::rig::Rig;
use crate::support::tasks::{create, key};
use crate::support::wait::until;

const NEW: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OLD: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// A daemon that posts `Hook@..` to a receiver.
struct Shop {
    rig: Rig,
    daemon: Daemon,
    receiver: Receiver,
}

impl Shop {
    async fn new(
        path: &str,
        webhook: &str,
        route: &str,
        answer: impl Fn(&Request, usize) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let receiver = Receiver::start(answer).await;
        let settings = format!(
            "{route}\n[[routes]]\nmatch = '^Hook@'\nwebhook = {{ url = '{}', allow = ['127.0.0.1'], {webhook} }}",
            receiver.url(path)
        );
        let rig = Rig::new(&settings).await;
        let daemon = rig.daemon_with(Handlers::new());
        Self {
            rig,
            daemon,
            receiver,
        }
    }

    async fn error(&self, name: &str) -> String {
        self.rig.record(name).await.last_error.unwrap_or_default()
    }
}

/// As a receiver does it: any of its keys makes one of the signatures.
fn is_signed_with(request: &Request, secret: &str) -> bool {
    let key = STANDARD.decode(&secret["whsec_".len()..]).unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
    let head = |name: &str| request.headers[name].clone();
    let text = format!(
        "{}.{}.{}",
        head("webhook-id"),
        head("webhook-timestamp"),
        request.body
    );
    mac.update(text.as_bytes());
    let wanted = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    head("webhook-signature")
        .split(' ')
        .any(|found| found == wanted)
}

#[tokio::test]
async fn a_task_is_posted_as_json_and_signed_with_each_key() {
    let shop = Shop::new(
        "/h/{class}/{method}?id={id}",
        &format!("secret = ['{NEW}', '{OLD}'], headers = {{ authorization = 'Bearer t', X-Shop = 'one' }}"),
        "",
        |_, _| Answer::status(204),
    )
    .await;
    let task = Task::from(key("Hook@a:b@1@ü"))
        .payload("{\"amount\": 5}")
        .tag("shop");
    let made = shop.daemon.tasks.create(task, Due::NOW).await.unwrap();
    shop.rig.until_done(1).await;
    let requests = shop.receiver.requests();
    let [request] = &requests[..] else {
        panic!("{requests:?}")
    };
    let id = made.id();
    assert_eq!(request.path, format!("/h/Hook/a%3Ab?id={id}"));
    let head = |name: &str| request.headers.get(name).map(String::as_str);
    assert_eq!(head("webhook-id"), Some(&id[..]));
    assert_eq!(head("content-type"), Some("application/json"));
    assert_eq!(head("lapsed-attempt"), Some("1"));
    assert_eq!(head("authorization"), Some("Bearer t"));
    assert_eq!(head("x-shop"), Some("one"));
    let agent = concat!("lapsed/", env!("CARGO_PKG_VERSION"));
    assert_eq!(head("user-agent"), Some(agent));
    assert_eq!(head("traceparent"), None);
    let sent: i64 = head("webhook-timestamp").unwrap().parse().unwrap();
    let now = shop.rig.now_ms().await / 1000;
    assert!((now - 60..=now + 1).contains(&sent), "{sent}, now {now}");
    for secret in [NEW, OLD] {
        assert!(is_signed_with(request, secret), "{request:?}");
    }
    let other = format!("whsec_{}", "A".repeat(32));
    assert!(!is_signed_with(request, &other));
    let task: serde_json::Value = serde_json::from_str(&request.body).unwrap();
    assert_eq!(task["key"], "Hook@a:b@1@ü");
    assert_eq!(task["payload"]["amount"], 5);
    assert_eq!(task["id"], id);
}

#[tokio::test]
async fn an_answer_says_done_dead_or_try_again() {
    let shop = Shop::new(
        "/{method}",
        "",
        "retry.ladder = ['100ms']",
        |request, before| {
            let never = "lapsed-retry: no\r\n";
            match (&request.path[..], before) {
                ("/fine", _) => Answer::status(202),
                ("/gone", _) => Answer::status(410),
                ("/never", _) => Answer::Say(422, never, "no such order".to_owned()),
                ("/moved", 0) => Answer::Say(307, "location: /fine\r\n", String::new()),
                ("/broken", 0) => Answer::Say(500, "", "\u{1b}[31mno".to_owned()),
                ("/reset", 0) => Answer::Reset,
                _ => Answer::status(200),
            }
        },
    )
    .await;
    let again = ["moved", "broken", "reset"];
    for name in ["fine", "gone", "never"].into_iter().chain(again) {
        shop.daemon.create(&format!("Hook@{name}"), 0).await;
    }
    shop.rig.until_done(4).await;
    shop.rig.until_state("Hook@gone", State::Dead).await;
    shop.rig.until_state("Hook@never", State::Dead).await;
    let count = |name: &str| shop.receiver.requests_to(&format!("/{name}")).len();
    assert_eq!([count("fine"), count("gone"), count("never")], [1, 1, 1]);
    for name in again {
        let requests = shop.receiver.requests_to(&format!("/{name}"));
        let heads = |name: &str| -> Vec<String> {
            requests
                .iter()
                .map(|request| request.headers[name].clone())
                .collect()
        };
        assert_eq!(heads("lapsed-attempt"), ["1", "2"], "{name}");
        let ids = heads("webhook-id");
        assert_eq!(ids[0], ids[1], "the id stays");
    }
    let error = shop.error("Hook@never").await;
    let wanted = "answered 422 Unprocessable Entity: no such order";
    assert!(
        error.contains("permanent") && error.contains(wanted),
        "{error}"
    );
    let error = shop.error("Hook@gone").await;
    assert!(error.contains("answered 410 Gone"), "{error}");
}

#[tokio::test]
async fn a_failure_says_what_it_was() {
    let shop = Shop::new(
        "/{method}",
        "connect_timeout = '500ms'",
        "retry.max_attempts = 1\nengine.timeout = '700ms'",
        |request, _| match &request.path[..] {
            "/silent" => Answer::Silence,
            "/reset" => Answer::Reset,
            "/moved" => Answer::Say(302, "location: http://169.254.169.254/\r\n", String::new()),
            "/flood" => Answer::Flood(500),
            _ => Answer::Say(500, "", "\u{1b}[31m no\u{202e}".to_owned()),
        },
    )
    .await;
    let told = [
        ("silent", "timed out after 700 ms"),
        ("reset", "webhook http://127.0.0.1:"),
        ("moved", "answered 302 Found (redirects are not followed"),
        ("flood", "answered 500 Internal Server Error: zzzz"),
        (
            "broken",
            r"answered 500 Internal Server Error: \u{1b}[31m no\u{202e}",
        ),
    ];
    for (name, _) in told {
        shop.daemon.create(&format!("Hook@{name}"), 0).await;
    }
    for (name, words) in told {
        let name = format!("Hook@{name}");
        shop.rig.until_state(&name, State::Dead).await;
        let error = shop.error(&name).await;
        assert!(
            error.contains(words) && error.len() < 500,
            "{name}: {error}"
        );
    }
    // What is in kernels' buffers counts too; far more would have come in a second.
    let taken = shop.receiver.bytes_written();
    assert!(taken < 16 * 1024 * 1024, "{taken}");
}

#[tokio::test]
async fn a_task_is_done_when_the_first_line_says_so_whatever_follows() {
    let timeout = "engine.timeout = '15s'";
    let shop = Shop::new("/{method}", "", timeout, |request, _| {
        match &request.path[..] {
            "/flood" => Answer::Flood(200),
            _ => Answer::Stall(200),
        }
    })
    .await;
    shop.daemon.create("Hook@flood", 0).await;
    shop.daemon.create("Hook@stall", 0).await;
    shop.rig.until_done(2).await;
    assert_eq!(shop.receiver.requests().len(), 2);
}

#[tokio::test]
async fn a_busy_server_is_left_alone_for_as_long_as_it_says() {
    let shop = Shop::new(
        "/",
        "",
        "retry.ladder = ['10ms']",
        |_, before| match before {
            0 => Answer::Say(429, "retry-after: 3600\r\n", String::new()),
            _ => Answer::status(200),
        },
    )
    .await;
    let made = shop.daemon.create("Hook@it", 0).await;
    until("it was asked to wait", async || {
        shop.rig.record("Hook@it").await.due_at.0 > made.due().0
    })
    .await;
    let record = shop.rig.record("Hook@it").await;
    let wait = Duration::from_millis((record.due_at.0 - record.due.0) as u64);
    let hour = Duration::from_secs(3600);
    assert!(
        wait >= hour && wait < hour + Duration::from_secs(60),
        "{wait:?}"
    );
}

#[tokio::test]
async fn one_connection_serves_many_tasks() {
    let shop = Shop::new("/", "", "engine.concurrency = 1", |_, _| {
        Answer::Say(200, "", "thanks".to_owned())
    })
    .await;
    for number in 0..60 {
        shop.daemon.create(&format!("Hook@it@{number}"), 0).await;
    }
    shop.rig.until_done(60).await;
    assert_eq!(shop.receiver.requests().len(), 60);
    // One, unless this machine is so busy that it rested for seconds.
    let connections = shop.receiver.connections();
    assert!(connections <= 3, "{connections} connections");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_tried_again() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = nobody.local_addr().unwrap().port();
    drop(nobody);
    let rig = Rig::new(&format!(
        "retry.max_attempts = 2\n[[routes]]\nmatch = '^Hook@'\nwebhook = {{ url = 'http://127.0.0.1:{port}/T0/secret?x', allow = ['127.0.0.0/8'] }}"
    ))
    .await;
    let daemon = rig.daemon_with(Handlers::new());
    daemon.create("Hook@it", 0).await;
    rig.until_state("Hook@it", State::Dead).await;
    let error = rig.record("Hook@it").await.last_error.unwrap();
    assert!(
        error.contains("after 2 of 2") && error.contains("Connection refused"),
        "{error}"
    );
    assert!(
        error.contains(&format!("webhook http://127.0.0.1:{port}: ")),
        "{error}"
    );
    assert!(!error.contains("secret"), "{error}");
}

#[tokio::test]
async fn keys_change_with_a_hangup_no_proxy_is_asked_and_nothing_secret_is_logged() {
    let receiver = Receiver::start(|_, before| match before {
        0 => Answer::Say(500, "", "no".to_owned()),
        _ => Answer::status(200),
    })
    .await;
    let proxy = Receiver::start(|_, _| Answer::status(200)).await;
    let keys = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(keys.path(), OLD).unwrap();
    let rig = Rig::new(&format!(
        "[[routes]]\nmatch = '^Hook@'\nwebhook = {{ url = '{}', allow = ['127.0.0.1'], secret_file = '{}', headers = {{ authorization = 'Bearer s3cret' }} }}",
        receiver.url("/T0/t0ken"),
        keys.path().display()
    ))
    .await;
    let address = proxy.url("/");
    let env =
        ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"].map(|name| (name, &address[..]));
    let env: Vec<_> = env.into_iter().chain([("LAPSED_LOG", "trace")]).collect();
    let daemon = Process::listen(&rig, &env);
    let client = rig.client().await;
    create(&client, "Hook@first", 0).await;
    rig.until_done(1).await;
    std::fs::write(keys.path(), NEW).unwrap();
    daemon.signal(Signal::HUP);
    daemon.until_logged("reloaded the routes").await;
    create(&client, "Hook@second", 0).await;
    rig.until_done(2).await;
    let requests = receiver.requests();
    let signed: Vec<_> = requests
        .iter()
        .map(|request| (is_signed_with(request, OLD), is_signed_with(request, NEW)))
        .collect();
    assert_eq!(signed, [(true, false), (true, false), (false, true)]);
    assert_eq!(proxy.connections(), 0);
    let log = daemon.log();
    assert!(log.contains("webhook answered"), "it does log much");
    for secret in ["s3cret", "t0ken", &OLD[6..], &NEW[6..]] {
        let shown = log.lines().find(|line| line.contains(secret));
        assert_eq!(shown, None, "{secret}");
    }
}

#[tokio::test]
async fn the_response_is_stored_with_the_task_if_the_route_requires_it() {
    let receiver = Receiver::start(|request, _| match &request.path[..] {
        "/json" => Answer::Say(200, "", r#"{"charged": 12.50}"#.to_owned()),
        "/text" => Answer::Say(201, "", "paid".to_owned()),
        "/refused" => Answer::Say(410, "", "gone".to_owned()),
        _ => Answer::status(204),
    })
    .await;
    let settings = format!(
        "[[routes]]\nmatch = '.'\nwebhook = {{ url = '{}', allow = ['127.0.0.1'] }}\nkeep_result = true\n",
        receiver.url("/{method}")
    );
    let rig = Rig::new(&settings).await;
    let daemon = rig.daemon_with(Handlers::new());
    for (method, state, result) in [
        ("json", State::Done, Some(r#"{"charged": 12.50}"#)),
        ("text", State::Done, Some(r#""paid""#)),
        ("nothing", State::Done, None),
        ("refused", State::Dead, None),
    ] {
        let name = format!("Hook@{method}");
        daemon.create(&name, 0).await;
        rig.until_state(&name, state).await;
        assert_eq!(rig.record(&name).await.result.as_deref(), result, "{name}");
    }
}
