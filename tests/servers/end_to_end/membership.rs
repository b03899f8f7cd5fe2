//! Who counts as a member, and what members leave to each other.

use lapsed::engine::DropReason;
use lapsed::membership::VERSION;

use crate::end_to_end::sharing::{connected, create_many, know_each_other, won};
use crate::support::daemon::Daemon;
use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::wait::until;

/// The name of the hash in which daemons show themselves.
pub async fn members_of(rig: &Rig) -> String {
    let mut names: Vec<String> = rig.redis_says(&["KEYS", "#lapsed:members:*"]).await;
    names.pop().expect("somebody shows itself")
}

#[tokio::test]
async fn a_process_that_is_no_member_is_not_counted() {
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
    assert_eq!(daemon.dropped(DropReason::NotOurs), 0.0);
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
    assert!(daemon.dropped(DropReason::NotOurs) > 0.0);
    // Even where the hash is something else altogether.
    rig.redis_says::<()>(&["SET", &hash, "x"]).await;
    until("nobody else is known", async || {
        daemon.status.members() == 1
    })
    .await;
    create_many(&rig, "alone", 50, 500, 10).await;
    rig.until_done(150).await;
}

/// Creates tasks for the first of two daemons, which runs them all: each is the only member that it knows.
async fn count_alone(rig: &Rig, daemons: &[Daemon; 2]) {
    until("both show themselves", async || {
        rig.redis_says::<Vec<String>>(&["KEYS", "#lapsed:members:*"])
            .await
            .len()
            == 2
    })
    .await;
    create_many(rig, "", 50, 2_500, 10).await;
    rig.until_done(50).await;
    assert_eq!(
        daemons.each_ref().map(|daemon| daemon.status.members()),
        [1, 1]
    );
    assert_eq!(won(&daemons[0]), 50.0);
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
    count_alone(&rig, &daemons).await;
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
    count_alone(&rig, &daemons).await;
    assert_eq!(daemons[0].dropped(DropReason::NotOurs), 0.0);
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
async fn one_daemon_audits_a_redis_that_lost_its_data() {
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
    assert_eq!(weak.dropped(DropReason::NotOurs), 0.0);
    assert_eq!(daemons[0].status.members(), 2);
}
