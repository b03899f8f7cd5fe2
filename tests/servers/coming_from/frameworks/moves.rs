//! A job is moved once, however late a command arrives.

use lapsed_redis::{Commands, DelayedSet, DueJob, Endpoint, MovedJob, SeenJob};
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::support::process::{Process, config_file};
use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::tcp_proxy::in_front_of;
use crate::support::wait::until;

const JOB: DueJob<'_> = DueJob {
    key: "webman@mail@1",
    member: b"{}",
    due_ms: 100_000,
    list: "waiting",
    command: "LPUSH",
    notify: None,
    confirmed: false,
};

struct Scene {
    rig: Rig,
    set: DelayedSet,
}

impl Scene {
    async fn new() -> Self {
        let rig = Rig::new("timer = 'ledger_poll'").await;
        let commands = Commands::new(Endpoint::new(&rig.config().redis).unwrap());
        let set = DelayedSet::new(commands, "jobs", "jobs:register");
        Self { rig, set }
    }

    /// A program delays the job, and a daemon sees it.
    async fn delay(&self, score: f64) {
        let text = score.to_string();
        let _: i64 = self.rig.redis_says(&["ZADD", "jobs", &text, "{}"]).await;
        let job = SeenJob {
            key: JOB.key.to_owned(),
            member: JOB.member.to_vec(),
            score,
        };
        assert_eq!(self.set.see(&[job]).await.unwrap(), [true]);
    }

    async fn moved(&self, job: DueJob<'_>) -> MovedJob {
        self.set.move_due(job).await.unwrap()
    }

    async fn pushed(&self) -> i64 {
        self.rig.redis_says(&["LLEN", "waiting"]).await
    }

    async fn known(&self) -> i64 {
        self.rig.redis_says(&["HLEN", "jobs:register"]).await
    }
}

#[tokio::test]
async fn a_move_that_is_repeated_after_the_frameworks_poller_pushes_nothing() {
    let scene = Scene::new().await;
    scene.delay(100.0).await;
    let _: i64 = scene.rig.redis_says(&["ZREM", "jobs", "{}"]).await;
    // The daemon is killed between the move and the end of its task.
    for _ in 0..2 {
        assert_eq!(scene.moved(JOB).await, MovedJob::Gone);
    }
    assert_eq!(scene.pushed().await, 0);
    scene.set.settle(&[(JOB.key, JOB.due_ms)]).await.unwrap();
    assert_eq!(scene.known().await, 0);
}

#[tokio::test]
async fn a_job_that_is_in_no_place_is_pushed_only_under_a_confirmed_claim() {
    let scene = Scene::new().await;
    scene.delay(100.0).await;
    assert_eq!(scene.moved(JOB).await, MovedJob::Moved);
    assert_eq!(scene.moved(JOB).await, MovedJob::Before);
    scene.set.settle(&[(JOB.key, JOB.due_ms)]).await.unwrap();
    assert_eq!(scene.known().await, 0);
    assert_eq!(scene.moved(JOB).await, MovedJob::Unconfirmed);
    assert_eq!(scene.pushed().await, 1);
    let confirmed = true;
    let moved = scene.moved(DueJob { confirmed, ..JOB }).await;
    assert_eq!((moved, scene.pushed().await), (MovedJob::Lost, 2));
}

#[tokio::test]
async fn a_job_that_was_delayed_again_is_not_moved_for_the_time_before() {
    let scene = Scene::new().await;
    scene.delay(100.0).await;
    assert_eq!(scene.moved(JOB).await, MovedJob::Moved);
    scene.set.settle(&[(JOB.key, JOB.due_ms)]).await.unwrap();
    scene.delay(160.0).await;
    assert_eq!(scene.moved(JOB).await, MovedJob::Unconfirmed);
    assert_eq!(scene.pushed().await, 1);
    // The task was run at once, and the score does not say so yet.
    let confirmed = true;
    let moved = scene.moved(DueJob { confirmed, ..JOB }).await;
    assert_eq!((moved, scene.pushed().await), (MovedJob::Moved, 2));
}

/// What became of a move that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    NotYet,
    Held,
    Passes,
    Answered,
}

/// Forwards, and holds a move until it may pass.
async fn hold_moves(client: TcpStream, server: TcpStream, sent: watch::Sender<Sent>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let there = async {
        let mut buffer = [0; 64 * 1024];
        while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
            let bytes = &buffer[..count];
            let moves = b"return score and 'moved'";
            if bytes.windows(moves.len()).any(|part| part == moves) {
                sent.send_replace(Sent::Held);
                let mut passes = sent.subscribe();
                passes.wait_for(|sent| *sent == Sent::Passes).await.unwrap();
            }
            to_server.write_all(bytes).await.unwrap();
        }
    };
    let back = async {
        let mut buffer = [0; 64 * 1024];
        while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
            sent.send_if_modified(|sent| {
                let answers = *sent == Sent::Passes;
                *sent = if answers { Sent::Answered } else { *sent };
                answers
            });
            if to_client.write_all(&buffer[..count]).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = there => {}
        () = back => {}
    }
}

#[tokio::test]
async fn a_daemon_that_was_frozen_beyond_its_lease_moves_no_job_again() {
    let settings = "delayed_sets = [{ profile = 'webman' }]\nengine.lease = '1s'";
    let rig = Setup::new(settings).start().await;
    let sent = watch::Sender::new(Sent::NotYet);
    let of_proxy = sent.clone();
    let hold = move |client, server| hold_moves(client, server, of_proxy.clone());
    let port = in_front_of(rig.redis.port(), hold).await;
    let config = config_file(&rig);
    let (text, direct) = (rig.config_text(), format!(":{}/", rig.redis.port()));
    assert!(text.contains(&direct), "{text}");
    std::fs::write(config.path(), text.replace(&direct, &format!(":{port}/"))).unwrap();
    let frozen = Process::listen_with(config, &[]);
    let due_s = (rig.now_ms().await / 1_000 + 3).to_string();
    let job = r#"{"id":1,"queue":"mail"}"#;
    let add = ["ZADD", "{redis-queue}-delayed", &due_s, job];
    let _: i64 = rig.redis_says(&add).await;
    let until_sent = async |stage| {
        until("a move is held, or answered", async || {
            *sent.borrow() == stage
        })
        .await;
    };
    until_sent(Sent::Held).await;
    frozen.freeze();
    let _daemon = Process::listen(&rig, &[]);
    until("another daemon has run it", async || {
        rig.with_status(1).await == 1
    })
    .await;
    let pushed = async || -> i64 { rig.redis_says(&["LLEN", "{redis-queue}-waitingmail"]).await };
    assert_eq!(pushed().await, 1);
    sent.send_replace(Sent::Passes);
    until_sent(Sent::Answered).await;
    frozen.signal(Signal::CONT);
    frozen.until_logged("result discarded").await;
    assert_eq!(pushed().await, 1);
}
