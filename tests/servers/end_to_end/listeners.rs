//! The eldest daemons hear what happens to keys, for all; what they have heard outlives two of them.

use std::time::Duration;

use lapsed::task::State;

use crate::support::daemon::Daemon;
use crate::support::rig::Rig;
use crate::support::tasks::{create, key};
use crate::support::wait::{until, until_within};

/// Daemons that know of each other, the eldest first, and have audited: no audit helps out any more.
async fn connected(rig: &Rig, count: usize) -> Vec<Daemon> {
    let mut daemons: Vec<Daemon> = Vec::new();
    for _ in 0..count {
        let daemon = rig.listening_daemon().await;
        let joined = daemons.len() + 1;
        until("it is counted", async || daemon.status.members() == joined).await;
        daemons.push(daemon);
    }
    for daemon in &daemons {
        until("all know of each other", async || {
            daemon.status.members() == count
        })
        .await;
        daemon.has_audited().await;
    }
    daemons
}

async fn setex(rig: &Rig, name: &str, seconds: u32) {
    let seconds = seconds.to_string();
    let () = rig.redis_says(&["SETEX", name, &seconds, ""]).await;
}

/// How many of the subscribed clients hear all events, and how many there are.
async fn subscribed(rig: &Rig) -> (usize, usize) {
    let clients: String = rig.redis_says(&["CLIENT", "LIST", "TYPE", "pubsub"]).await;
    let hear_all = clients.lines().filter(|line| !line.contains(" psub=0 "));
    (hear_all.count(), clients.lines().count())
}

async fn until_three_of(rig: &Rig, count: usize) {
    until("three hear all, and the others are told", async || {
        subscribed(rig).await == (3, count)
    })
    .await;
}

#[tokio::test]
async fn events_received_by_two_killed_daemons_of_three_are_not_lost() {
    let rig = Rig::new("").await;
    let mut daemons = connected(&rig, 3).await;
    for n in 0..60 {
        setex(&rig, &format!("Job@record@moved{n}"), 600).await;
        setex(&rig, &format!("Job@record@deleted{n}"), 600).await;
    }
    rig.until_adopted("Job@record@moved59").await;
    rig.until_adopted("Job@record@deleted59").await;
    until("all are adopted", async || rig.with_status(0).await == 120).await;

    daemons.drain(..2).for_each(Daemon::kill);
    for n in 0..150 {
        setex(&rig, &format!("Job@record@one{n}"), 1).await;
        setex(&rig, &format!("Job@record@two{n}"), 2).await;
    }
    for n in 0..60 {
        setex(&rig, &format!("Job@record@moved{n}"), 10).await;
        let name = format!("Job@record@deleted{n}");
        let _: i64 = rig.redis_says(&["DEL", &name]).await;
    }
    rig.until_done(360).await;
    rig.each_ran_once(360).await;
    for n in 0..60 {
        let name = format!("Job@record@deleted{n}");
        rig.until_state(&name, State::Cancelled).await;
    }
}

#[tokio::test]
async fn of_eight_daemons_three_receive_all_events_and_send_hints_to_the_others() {
    const COUNT: usize = 8;
    let rig = Rig::new("engine.concurrency = 16\nledger.max_connections = 6").await;
    let mut daemons = connected(&rig, COUNT).await;
    let client = rig.client().await;
    let counted = |daemons: &[Daemon], name: &str| {
        let counts = daemons.iter().map(|daemon| daemon.metric(name));
        counts.sum::<f64>()
    };
    let events = |daemons: &[Daemon]| counted(daemons, "lapsed_redis_events_total");
    let recovered = "lapsed_sweep_recovered_total{reason=\"overdue\"}";
    let mut done = 0;
    // A heartbeat that a busy machine delays for seconds makes another daemon subscribe for a while. Events are
    // counted in a round in which none did.
    loop {
        // Read first: one that subscribes once three do shows in it, too.
        let subscriptions = rig.redis_calls("psubscribe").await;
        until_three_of(&rig, COUNT).await;
        let (events_before, recovered_before) = (events(&daemons), counted(&daemons, recovered));
        for n in done..done + 100 {
            // Due before any look-ahead comes by.
            create(&client, &format!("Job@record@near{n}"), 150).await;
            setex(&rig, &format!("Job@record@bare{n}"), 1).await;
            create(&client, &format!("Job@record@far{n}"), 3_000).await;
        }
        done += 300;
        rig.until_done(done).await;
        rig.each_ran_once(done).await;
        // Armed and expired, three times; and what daemons write for themselves.
        let heard = || events(&daemons) - events_before;
        until("three have heard all", async || heard() >= 1_800.0).await;
        if rig.redis_calls("psubscribe").await != subscriptions {
            assert!(
                done < 3_000,
                "in each of 10 rounds another daemon subscribed"
            );
            continue;
        }
        assert!(heard() < 2_100.0, "{} events", heard());
        let recovered = counted(&daemons, recovered) - recovered_before;
        assert!(
            recovered < 100.0,
            "{recovered} of 300 were left to the sweep"
        );
        break;
    }
    let won = daemons
        .iter()
        .map(|daemon| daemon.metric("lapsed_claims_total{result=\"won\"}"));
    assert!(
        won.clone().all(|won| won >= 8.0),
        "{:?}",
        won.collect::<Vec<_>>()
    );

    // Two that hear, and one that owns some of the keys.
    for index in [5, 1, 0] {
        daemons.remove(index).kill();
    }
    for n in 0..150 {
        setex(&rig, &format!("Job@record@one{n}"), 1).await;
        setex(&rig, &format!("Job@record@two{n}"), 2).await;
    }
    rig.until_done(done + 300).await;
    rig.each_ran_once(done + 300).await;
    until_three_of(&rig, COUNT - 3).await;
}

#[tokio::test]
async fn daemons_that_may_not_receive_hints_subscribe_to_all_events() {
    let rig = Rig::new("").await;
    let user: &[&str] = &[
        "ACL",
        "SETUSER",
        "quiet",
        "on",
        ">pw",
        "~*",
        "resetchannels",
        "&__keyevent@0__:expired",
        "&__keyevent@0__:expire",
        "&__keyevent@0__:del",
        "&__keyevent@0__:persist",
        "+@all",
    ];
    let () = rig.redis_says(user).await;
    let url = format!("redis://quiet:pw@127.0.0.1:{}/0", rig.redis.port());
    let config = rig.config_with(&format!("redis.url = '{url}'"));
    let mut daemons = Vec::new();
    for _ in 0..5 {
        let daemon = Daemon::start(&config, crate::support::handlers::handlers());
        daemon.hears_events().await;
        daemons.push(daemon);
    }
    for daemon in &daemons {
        until("all know of each other", async || {
            daemon.status.members() == 5
        })
        .await;
    }
    for n in 0..50 {
        setex(&rig, &format!("Job@record@{n}"), 1).await;
    }
    rig.until_done(50).await;
    rig.each_ran_once(50).await;
    assert_eq!(subscribed(&rig).await, (5, 5));
}

#[tokio::test]
async fn a_daemon_that_receives_hints_recovers_when_its_connection_is_cut() {
    let rig = Rig::new("").await;
    let daemons = connected(&rig, 4).await;
    until_three_of(&rig, 4).await;
    let _: i64 = rig.redis_says(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    until_within(Duration::from_secs(20), "all are subscribed", async || {
        subscribed(&rig).await.1 == 4
    })
    .await;
    until_three_of(&rig, 4).await;
    for n in 0..40 {
        setex(&rig, &format!("Job@record@{n}"), 1).await;
    }
    rig.until_done(40).await;
    rig.each_ran_once(40).await;
    assert!(rig.record(key("Job@record@1").as_str()).await.adopted);
    drop(daemons);
}
