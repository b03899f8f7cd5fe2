//! Daemons that share a ledger but do not adopt, or do not hear, the same keys.

use lapsed::Config;
use lapsed_sandbox::PrivateRedis;

use crate::support::daemon::Daemon;
use crate::support::handlers::handlers;
use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::tasks::create_many;
use crate::support::wait::until;

/// Starts a daemon with each configuration, in this order of seniority. All know of each other and have audited: no audit
/// finds a key any more.
async fn connected(configs: &[Config]) -> Vec<Daemon> {
    let mut daemons: Vec<Daemon> = Vec::new();
    for config in configs {
        let daemon = Daemon::start(config, handlers());
        daemon.hears_events().await;
        daemons.push(daemon);
        for daemon in &daemons {
            until("all know of each other", async || {
                daemon.status.members() == daemons.len()
            })
            .await;
        }
    }
    for daemon in &daemons {
        daemon.has_audited().await;
    }
    daemons
}

/// Bare keys over tasks that are done, bare keys that expire soon, and bare keys that are deleted.
async fn every_key_counts(rig: &Rig, daemons: &[Daemon]) {
    const COUNT: i64 = 20;
    create_many(&daemons[0].tasks, "Job@record@again", COUNT, 0, 0).await;
    rig.until_done(COUNT as usize).await;
    for n in 0..COUNT {
        rig.arm(&format!("Job@record@again{n}"), 2_000).await;
        rig.arm(&format!("Job@record@soon{n}"), 500).await;
        rig.arm(&format!("Job@record@deleted{n}"), 600_000).await;
        rig.arm(&format!("Job@record@moved{n}"), 600_000).await;
    }
    until("the far keys are adopted", async || {
        let far = "SELECT COUNT(*) FROM tb_time_limit_task WHERE adopted = 1 AND end_time > UNIX_TIMESTAMP() + 60";
        rig.number(far).await == 2 * COUNT
    })
    .await;
    for n in 0..COUNT {
        let deleted = format!("Job@record@deleted{n}");
        assert_eq!(rig.redis_says::<i64>(&["DEL", &deleted]).await, 1);
        rig.arm(&format!("Job@record@moved{n}"), 2_000).await;
    }
    rig.until_done(3 * COUNT as usize).await;
    until("the deleted keys are withdrawn", async || {
        rig.with_status(3).await == COUNT
    })
    .await;
    let count = async |what: &str| {
        let count = format!("SELECT COUNT(*) FROM runs WHERE name LIKE 'Job@record@{what}%'");
        rig.number(count).await
    };
    let counts = [
        count("again").await,
        count("soon").await,
        count("moved").await,
        count("deleted").await,
    ];
    assert_eq!(counts, [2 * COUNT, COUNT, COUNT, 0]);
}

#[tokio::test]
async fn an_adopting_daemon_listens_for_those_that_do_not_adopt() {
    let not_adopting = "adopt.enabled = false";
    for others in [2, 4] {
        let rig = Rig::new("").await;
        let mut configs = vec![rig.config_with(not_adopting); others];
        configs.push(rig.config());
        let daemons = connected(&configs).await;
        every_key_counts(&rig, &daemons).await;
    }
}

#[tokio::test]
async fn a_key_that_expires_unheard_is_adopted_although_its_owner_does_not_adopt() {
    const COUNT: usize = 40;
    // Without `g`, and without the right to add it, arming is silent.
    let redis = PrivateRedis::options().set("notify-keyspace-events", "Ex");
    let rig = Setup::new("").redis(redis).start().await;
    let rules: Vec<&str> = "ACL SETUSER default -config|set".split(' ').collect();
    let () = rig.redis_says(&rules).await;
    let mut configs = vec![rig.config_with("adopt.enabled = false"); 2];
    configs.push(rig.config());
    let daemons = connected(&configs).await;
    for n in 0..COUNT {
        rig.arm(&format!("Job@record@{n}"), 1_000).await;
    }
    rig.until_done(COUNT).await;
    rig.each_ran_once(COUNT).await;
    drop(daemons);
}

#[tokio::test]
async fn a_daemon_with_arming_events_listens_for_those_without() {
    for others in [2, 3] {
        let rig = Rig::new("").await;
        let user: &[&str] = &[
            "ACL",
            "SETUSER",
            "expired",
            "on",
            ">pw",
            "~*",
            "resetchannels",
            "&__keyevent@0__:expired",
            "&#lapsed:hint:*",
            "+@all",
        ];
        let () = rig.redis_says(user).await;
        let url = format!("redis://expired:pw@127.0.0.1:{}/0", rig.redis.port());
        let config = rig.config_with(&format!("redis.url = '{url}'"));
        let mut configs = vec![config; others];
        configs.push(rig.config());
        let daemons = connected(&configs).await;
        every_key_counts(&rig, &daemons).await;
    }
}
