//! Daemons share the work, and come in for each other.

use lapsed::membership::VERSION;
use lapsed::{Handlers, TaskContext};

use crate::support::daemon::Daemon;
use crate::support::handlers::write_down;
use crate::support::maria::counter;
use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::tasks::{self, create};
use crate::support::wait::until;

/// Creates `Job@record@{prefix}0` and so on; see [`tasks::create_many`].
async fn create_many(rig: &Rig, prefix: &str, count: i64, first_ms: i64, apart_ms: i64) {
    let prefix = format!("Job@record@{prefix}");
    let client = rig.client().await;
    tasks::create_many(&client, &prefix, count, first_ms, apart_ms).await;
}

/// Daemons that hear events and know of each other.
async fn connected<const N: usize>(rig: &Rig) -> [Daemon; N] {
    let daemons = std::array::from_fn(|_| rig.daemon());
    know_each_other(&daemons).await;
    daemons
}

async fn know_each_other(daemons: &[Daemon]) {
    for daemon in daemons {
        daemon.hears_events().await;
        until("all know of each other", async || {
            daemon.status.members() == daemons.len()
        })
        .await;
    }
}

fn won(daemon: &Daemon) -> f64 {
    daemon.metric("lapsed_claims_total{result=\"won\"}")
}

#[tokio::test]
async fn two_daemons_share_the_tasks_alike() {
    let rig = Rig::new("").await;
    let daemons: [Daemon; 2] = connected(&rig).await;
    create_many(&rig, "", 400, 1_500, 10).await;
    rig.until_done(400).await;
    rig.each_ran_once(400).await;
    for daemon in &daemons {
        assert!((120.0..=280.0).contains(&won(daemon)), "{}", won(daemon));
        assert!(daemon.dropped("not_ours") > 100.0);
    }
    let missed = daemons
        .iter()
        .map(|daemon| daemon.metric("lapsed_claims_total{result=\"missed\"}"));
    // On a busy machine the sweep comes in for one or the other. Two that both did all would lose 400.
    let missed = missed.sum::<f64>();
    assert!(missed < 200.0, "{missed} claims in vain");
}

/// What the servers were asked for.
#[derive(Debug)]
struct Asked {
    updates: i64,
    selects: i64,
    pttls: i64,
}

async fn asked(rig: &Rig) -> Asked {
    Asked {
        updates: counter(&rig.sql, "Com_update").await,
        selects: counter(&rig.sql, "Com_select").await,
        pttls: rig.redis_calls("pttl").await,
    }
}

/// What is asked for while so many tasks fall due, at a pace that a busy machine keeps up with too.
async fn asked_for_tasks(rig: &Rig, prefix: &str, count: i64) -> Asked {
    let done = rig.with_status(1).await;
    create_many(rig, prefix, count, 1_500, 10).await;
    let before = asked(rig).await;
    rig.until_done((done + count) as usize).await;
    let after = asked(rig).await;
    Asked {
        updates: after.updates - before.updates,
        selects: after.selects - before.selects,
        pttls: after.pttls - before.pttls,
    }
}

#[tokio::test]
async fn a_second_daemon_asks_for_little_more() {
    const COUNT: i64 = 400;
    let rig = Setup::new("").own_maria().start().await;
    let first = rig.listening_daemon().await;
    let alone = asked_for_tasks(&rig, "a", COUNT).await;
    let daemons = [first, rig.daemon()];
    know_each_other(&daemons).await;
    let shared = asked_for_tasks(&rig, "b", COUNT).await;
    rig.each_ran_once(2 * COUNT as usize).await;
    println!("alone {alone:?}, shared {shared:?}");
    // At worst a claim and a settlement for each task, and some claims in vain; two that both did all would ask three times.
    assert!(shared.updates <= COUNT * 5 / 2, "{alone:?} {shared:?}");
    // Its owner asks three times (`costs.rs`), the next in line twice at most; two that both did all would ask six times.
    assert!(shared.pttls <= COUNT * 11 / 2, "{alone:?} {shared:?}");
    let missed = daemons
        .iter()
        .map(|daemon| daemon.metric("lapsed_claims_total{result=\"missed\"}"));
    let missed = missed.sum::<f64>();
    // Two that both did all would lose one claim for each task.
    let bound = COUNT as f64 / 2.0;
    println!("{missed} claims in vain");
    assert!(missed < bound, "{missed} of {COUNT} claimed in vain");
}

#[tokio::test]
async fn what_a_killed_daemon_owned_is_started_by_the_other() {
    let rig = Rig::new("").await;
    let [first, second]: [Daemon; 2] = connected(&rig).await;
    create_many(&rig, "", 200, 1_000, 25).await;
    first.kill();
    rig.until_done(200).await;
    rig.each_ran_once(200).await;
    let left = second.dropped("not_ours");
    assert!(left > 0.0, "none was the killed one's");
    until("it is not counted any more", async || {
        second.status.members() == 1
    })
    .await;
}

/// Holds a slot for as long as the test lasts.
fn able_to_hold(handlers: Handlers) -> Handlers {
    let mut handlers = handlers;
    handlers.on(("Job", "hold"), |_: Vec<String>| std::future::pending());
    handlers
}

#[tokio::test]
async fn a_full_daemon_does_not_keep_its_share_waiting() {
    let rig = Rig::new("engine.concurrency = 2").await;
    let full = rig.daemon_with(able_to_hold(crate::support::handlers::handlers()));
    for number in 0..2 {
        create(&full.tasks, &format!("Job@hold@{number}"), 0).await;
    }
    until("its slots are taken", async || full.status.running() == 2).await;
    let daemons = [full, rig.daemon()];
    know_each_other(&daemons).await;
    let left_waiting = || daemons[1].dropped("not_ours");
    // Each round of these would have some for the full one.
    let mut probes = 0;
    loop {
        let before = left_waiting();
        create_many(&rig, &format!("probe{probes}-"), 20, 100, 1).await;
        probes += 20;
        rig.until_done(probes).await;
        if left_waiting() == before {
            break;
        }
        assert!(probes < 2_000, "the second leaves tasks to the full one");
    }
    let before = left_waiting();
    create_many(&rig, "", 100, 500, 20).await;
    rig.until_done(probes + 100).await;
    rig.each_ran_once(probes + 100).await;
    assert_eq!(left_waiting(), before);
}

#[tokio::test]
async fn without_redis_each_daemon_owns_all() {
    let mut rig = Rig::new("").await;
    let [first, second]: [Daemon; 2] = connected(&rig).await;
    rig.redis.kill();
    create_many(&rig, "a", 100, 500, 40).await;
    rig.until_done(100).await;
    until("neither counts with the other", async || {
        first.status.members() == 1 && second.status.members() == 1
    })
    .await;
    second.kill();
    create_many(&rig, "b", 100, 1_500, 10).await;
    rig.until_done(200).await;
    rig.each_ran_once(200).await;
    rig.redis.start_again().await.unwrap();
    let other = rig.daemon();
    know_each_other(&[first, other]).await;
}

#[tokio::test]
async fn a_task_that_only_one_daemon_can_run_is_its_own() {
    let rig = Rig::new("").await;
    let with = |method: &str| {
        let mut handlers = Handlers::new();
        handlers.on(
            ("Job", method),
            |task: TaskContext, _: Vec<String>| async move { write_down(&task).await },
        );
        handlers
    };
    let daemons = [
        rig.daemon_with(with("record")),
        rig.daemon_with(with("other")),
    ];
    know_each_other(&daemons).await;
    for number in 0..60 {
        create(&daemons[0].tasks, &format!("Job@other@{number}"), 1_500).await;
    }
    create_many(&rig, "", 60, 1_500, 10).await;
    rig.until_done(120).await;
    rig.each_ran_once(120).await;
    assert_eq!(daemons.each_ref().map(won), [60.0, 60.0]);
}

#[tokio::test]
async fn a_stopping_daemon_hands_over() {
    let rig = Rig::new("").await;
    let [first, second]: [Daemon; 2] = connected(&rig).await;
    create_many(&rig, "", 300, 1_000, 20).await;
    first.stop().await;
    assert_eq!(
        rig.redis_says::<i64>(&["HLEN", &members_of(&rig).await])
            .await,
        1
    );
    until("it is not counted any more", async || {
        second.status.members() == 1
    })
    .await;
    let left = second.dropped("not_ours");
    rig.until_done(300).await;
    rig.each_ran_once(300).await;
    // From then on all are its own. That none is late is tested on a paused clock (`tests/core/membership/sharing.rs`).
    assert_eq!(second.dropped("not_ours"), left);
}

/// The name of the hash in which daemons show themselves.
async fn members_of(rig: &Rig) -> String {
    let mut names: Vec<String> = rig.redis_says(&["KEYS", "#lapsed:members:*"]).await;
    names.pop().expect("somebody shows itself")
}

#[tokio::test]
async fn nobody_is_counted_who_is_no_member() {
    let rig = Rig::new("").await;
    let daemon = rig.listening_daemon().await;
    until("it shows itself", async || {
        !rig.redis_says::<Vec<String>>(&["KEYS", "#lapsed:members:*"])
            .await
            .is_empty()
    })
    .await;
    let hash = members_of(&rig).await;
    let now_ms = rig.now_ms().await;
    let note = |v: u32, until: i64| {
        format!(
            r#"{{"v":{v},"name":"ghost","since":1,"until":{until},"readiness":"ready","listening":false,"passes_on":false,"handlers":["Job@record"],"routes":[]}}"#
        )
    };
    let forever = "9".repeat(18).parse().unwrap();
    for (id, note) in [
        ("not an id", "{}".to_owned()),
        ("00000000000000a1", "\u{0}\u{1}".to_owned()),
        ("00000000000000a2", "x".repeat(100_000)),
        ("00000000000000a3", note(99, now_ms + 3_000)),
        ("00000000000000a4", note(VERSION, now_ms - 1)),
        ("00000000000000a5", note(VERSION, forever)),
        ("00000000000000a6", note(VERSION, now_ms - 3_600_000)),
    ] {
        rig.redis_says::<i64>(&["HSET", &hash, id, &note]).await;
    }
    until("what is long over is removed", async || {
        rig.redis_says::<i64>(&["HEXISTS", &hash, "00000000000000a6"])
            .await
            == 0
    })
    .await;
    create_many(&rig, "", 50, 500, 10).await;
    rig.until_done(50).await;
    rig.each_ran_once(50).await;
    assert_eq!(daemon.status.members(), 1);
    assert_eq!(daemon.dropped("not_ours"), 0.0);
    // Believed for as long as it could be one: its tasks are come in for.
    until("it is counted", async || {
        let ghost = note(VERSION, rig.now_ms().await + 3_000);
        rig.redis_says::<i64>(&["HSET", &hash, "00000000000000a7", &ghost])
            .await;
        daemon.status.members() == 2
    })
    .await;
    create_many(&rig, "ghost", 50, 100, 1).await;
    rig.until_done(100).await;
    rig.each_ran_once(100).await;
    assert!(daemon.dropped("not_ours") > 0.0);
    // Even where the hash is something else altogether.
    rig.redis_says::<()>(&["SET", &hash, "x"]).await;
    until("nobody else is known", async || {
        daemon.status.members() == 1
    })
    .await;
    create_many(&rig, "alone", 50, 500, 10).await;
    rig.until_done(150).await;
}

#[tokio::test]
async fn daemons_of_different_tables_do_not_count_with_each_other() {
    let rig = Rig::new("").await;
    let config = rig.config_with("ledger.table = 'other_tasks'");
    let ledger = lapsed::ledger::mysql::MysqlLedger::new(&config.ledger).unwrap();
    ledger.migrate().await.unwrap();
    let other = Daemon::start(&config, crate::support::handlers::handlers());
    other.hears_events().await;
    let daemons = [rig.listening_daemon().await, other];
    until("both show themselves", async || {
        rig.redis_says::<Vec<String>>(&["KEYS", "#lapsed:members:*"])
            .await
            .len()
            == 2
    })
    .await;
    create_many(&rig, "", 50, 2_500, 10).await;
    rig.until_done(50).await;
    assert_eq!(
        daemons.each_ref().map(|daemon| daemon.status.members()),
        [1, 1]
    );
    assert_eq!(won(&daemons[0]), 50.0);
}

#[tokio::test]
async fn daemons_of_two_ledgers_of_one_name_do_not_count_with_each_other() {
    // Two servers, and on both the database `lapsed` and the same table.
    let setup = || Setup::new("").own_maria().start();
    let (rig, other) = tokio::join!(setup(), setup());
    let redis = format!("redis.url = 'redis://127.0.0.1:{}/0'", rig.redis.port());
    let other = Daemon::start(
        &other.config_with(&redis),
        crate::support::handlers::handlers(),
    );
    other.hears_events().await;
    let daemons = [rig.listening_daemon().await, other];
    until("both show themselves", async || {
        rig.redis_says::<Vec<String>>(&["KEYS", "#lapsed:members:*"])
            .await
            .len()
            == 2
    })
    .await;
    create_many(&rig, "", 50, 2_500, 10).await;
    rig.until_done(50).await;
    assert_eq!(
        daemons.each_ref().map(|daemon| daemon.status.members()),
        [1, 1]
    );
    assert_eq!(won(&daemons[0]), 50.0);
    assert_eq!(daemons[0].dropped("not_ours"), 0.0);
}

#[tokio::test]
async fn daemons_that_start_together_audit_or_leave_it_to_one_that_does() {
    let rig = Rig::new("").await;
    let daemons: [Daemon; 3] = connected(&rig).await;
    let counted = |name: &str| {
        daemons
            .iter()
            .map(|daemon| daemon.metric(name))
            .sum::<f64>()
    };
    let skipped = || counted("lapsed_audits_skipped_total");
    let audits = || {
        let causes = ["start", "subscribed"];
        let counts =
            causes.map(|cause| counted(&format!("lapsed_audits_total{{reason=\"{cause}\"}}")));
        counts.iter().sum::<f64>()
    };
    // Which of them can leave it depends on who began when; see `tests/core/membership/audits.rs`.
    until("each has audited or left it", async || {
        audits() >= 1.0 && audits() + skipped() >= 3.0
    })
    .await;
}

#[tokio::test]
async fn a_redis_that_came_back_empty_is_audited_by_one() {
    let mut rig = Rig::new("").await;
    let daemons: [Daemon; 2] = connected(&rig).await;
    create_many(&rig, "far", 20, 3_600_000, 1_000).await;
    rig.redis.kill();
    rig.redis.start_again().await.unwrap();
    let armed = async || {
        let keys: Vec<String> = rig.redis_says(&["KEYS", "Job@record@far*"]).await;
        keys.len() == 20
    };
    until("its keys are armed again", armed).await;
    let rearmed = daemons
        .iter()
        .map(|daemon| daemon.metric("lapsed_rearmed_total"));
    until("it is counted", async || {
        rearmed.clone().sum::<f64>() == 20.0
    })
    .await;
}

#[tokio::test]
async fn the_documented_rights_are_enough_to_share_and_without_them_each_daemon_owns_all() {
    let rig = Rig::new("").await;
    let user = async |name: &str, more: &[&str]| {
        let least = [
            "ACL",
            "SETUSER",
            name,
            "on",
            ">pw",
            "resetkeys",
            "~*@*",
            "~#SILCK`*",
            "~#lapsed:*",
            "resetchannels",
            "&__keyevent@0__:expired",
            "-@all",
            "+set",
            "+del",
            "+pttl",
            "+getrange",
            "+psubscribe",
            "+ping",
        ];
        rig.redis_says::<()>(&[&least, more].concat()).await;
        let url = format!("redis://{name}:pw@127.0.0.1:{}/0", rig.redis.port());
        Daemon::start(
            &rig.config_with(&format!("redis.url = '{url}'")),
            crate::support::handlers::handlers(),
        )
    };
    rig.redis_says::<()>(&["CONFIG", "SET", "notify-keyspace-events", "Ex"])
        .await;
    let rights = ["+hset", "+hgetall", "+hdel"];
    let daemons = [user("a", &rights).await, user("b", &rights).await];
    know_each_other(&daemons).await;
    until("an audit has left its mark", async || {
        let marks: Vec<String> = rig.redis_says(&["KEYS", "#lapsed:audit:*"]).await;
        !marks.is_empty()
    })
    .await;
    let weak = user("c", &[]).await;
    weak.hears_events().await;
    create_many(&rig, "", 60, 1_500, 20).await;
    rig.until_done(60).await;
    rig.each_ran_once(60).await;
    assert_eq!(weak.status.members(), 1);
    assert_eq!(weak.dropped("not_ours"), 0.0);
    assert_eq!(daemons[0].status.members(), 2);
}
