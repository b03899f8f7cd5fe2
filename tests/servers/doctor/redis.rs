//! What is found of Redis.

use lapsed_doctor::{self as doctor, Severity};
use lapsed_sandbox::PrivateRedis;
use tempfile::NamedTempFile;

use crate::doctor::rig::{
    Result, assert_contains, config, config_with, finding, ledger, redis, remedy, run,
};
use crate::support::process::Process;
use crate::support::wait::until;

#[tokio::test]
async fn missing_flags_are_an_error_and_fix_adds_them_to_the_others() -> Result {
    let redis = PrivateRedis::options()
        .set("notify-keyspace-events", "Kg")
        .start()
        .await?;
    let config = config(&redis.url(), &ledger("flags").await?)?;
    let report = doctor::examine(&config).await;
    let off = finding(&report, "redis.notifications", Severity::Error);
    assert_contains(remedy(off), "lapsed doctor --fix");

    let report = doctor::fix(&config).await;
    assert!(report.worst() < Severity::Warning, "{report}");
    let done = &report.findings[0];
    assert_eq!((done.check, done.severity), ("fix", Severity::Ok));
    assert_contains(&done.found, "until the server restarts");
    assert_contains(remedy(done), "redis.conf");
    let flags: Vec<String> = run(&redis, &["CONFIG", "GET", "notify-keyspace-events"]).await?;
    for flag in ["K", "g", "E", "x"] {
        assert_contains(&flags[1], flag);
    }

    let report = doctor::fix(&config).await;
    assert_contains(&report.findings[0].found, "nothing to do");
    Ok(())
}

#[tokio::test]
async fn missing_redis_permissions_are_reported_with_a_remedy() -> Result {
    let redis = redis().await?;
    let acl = "ACL SETUSER weak on >s3cret allkeys resetchannels -@all +pttl +get +getrange +psubscribe +ping +select +hello";
    let words: Vec<&str> = acl.split(' ').collect();
    let () = run(&redis, &words).await?;
    let url = redis.url().replace("redis://", "redis://weak:s3cret@");
    let config = config(&url, &ledger("weak").await?)?;
    let report = doctor::examine(&config).await;

    finding(&report, "redis.reachable", Severity::Ok);
    for check in ["redis.notifications", "redis.role", "redis.output_buffer"] {
        let unknown = finding(&report, check, Severity::Note);
        assert_contains(&unknown.found, "could not be checked");
    }
    let lacking: Vec<_> = report
        .findings
        .iter()
        .filter(|finding| finding.check == "redis.rights")
        .map(|finding| &finding.found[..])
        .collect();
    assert_eq!(lacking.len(), 3, "{report}");
    for (found, part) in lacking.iter().zip(["`SET`", "`DEL`", "`PSUBSCRIBE`"]) {
        assert_contains(found, part);
    }
    let rights = finding(&report, "redis.rights", Severity::Error);
    assert_contains(remedy(rights), "&__keyevent@0__:expired");

    let report = doctor::fix(&config).await;
    assert_eq!(report.findings[0].severity, Severity::Note, "{report}");
    assert_contains(&report.findings[0].found, "nothing was changed");
    assert!(!report.to_string().contains("s3cret"), "{report}");
    Ok(())
}

#[tokio::test]
async fn a_probe_finds_missing_events_where_the_flags_are_not_shown() -> Result {
    let redis = redis().await?;
    let acl = "ACL SETUSER managed on >s3cret allkeys allchannels +@all -config";
    let words: Vec<&str> = acl.split(' ').collect();
    let () = run(&redis, &words).await?;
    let url = redis.url().replace("redis://", "redis://managed:s3cret@");
    let config = config(&url, &ledger("managed").await?)?;
    for (flags, severity) in [
        ("", Severity::Error),
        ("Ex", Severity::Warning),
        ("Exg", Severity::Ok),
    ] {
        let () = run(&redis, &["CONFIG", "SET", "notify-keyspace-events", flags]).await?;
        let report = doctor::examine(&config).await;
        let unknown = finding(&report, "redis.notifications", Severity::Note);
        assert_contains(&unknown.found, "could not be checked");
        let events = finding(&report, "redis.events", severity);
        if severity != Severity::Ok {
            assert_contains(remedy(events), "notify-keyspace-events Exg");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_ledger_that_does_not_answer_is_no_fault_of_redis() -> Result {
    let redis = redis().await?;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")?;
    let silent = format!("mysql://root@{}/x", nobody.local_addr()?);
    let report = doctor::examine(&config(&redis.url(), &silent)?).await;
    finding(&report, "ledger.reachable", Severity::Error);
    let daemons = finding(&report, "fleet.daemons", Severity::Note);
    assert_contains(&daemons.found, "could not be read");
    finding(&report, "redis.rights", Severity::Ok);
    Ok(())
}

#[tokio::test]
async fn a_missing_redis_database_is_reported_as_missing() -> Result {
    let redis = redis().await?;
    let url = redis.url().replace("/0", "/99");
    let report = doctor::examine(&config(&url, &ledger("db99").await?)?).await;
    let found = finding(&report, "redis.reachable", Severity::Error);
    assert_contains(&found.found, "redis refuses `SELECT`");
    Ok(())
}

#[tokio::test]
async fn rejected_redis_credentials_are_reported_and_not_shown() -> Result {
    let redis = redis().await?;
    // Set afterwards, because the sandbox would be refused, too.
    let () = run(&redis, &["CONFIG", "SET", "requirepass", "right"]).await?;
    let ledger = ledger("redis_credentials").await?;
    for user_info in ["", ":s3cret@", "nobody:s3cret@"] {
        let url = redis
            .url()
            .replace("redis://", &format!("redis://{user_info}"));
        let report = doctor::examine(&config(&url, &ledger)?).await;
        let refused = finding(&report, "redis.reachable", Severity::Error);
        assert_contains(&refused.found, "refuses the credentials");
        assert_contains(remedy(refused), "redis.url");
        assert!(!report.to_string().contains("s3cret"), "{report}");
        finding(&report, "ledger.table", Severity::Ok);
    }
    Ok(())
}

#[tokio::test]
async fn a_policy_that_evicts_keys_is_a_warning() -> Result {
    let redis = redis().await?;
    for words in [
        ["CONFIG", "SET", "maxmemory", "100mb"],
        ["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"],
        [
            "CONFIG",
            "SET",
            "client-output-buffer-limit",
            "pubsub 256kb 128kb 60",
        ],
    ] {
        let () = run(&redis, &words).await?;
    }
    let report = doctor::examine(&config(&redis.url(), &ledger("eviction").await?)?).await;
    let evicts = finding(&report, "redis.eviction", Severity::Warning);
    assert_contains(&evicts.found, "`allkeys-lru`");
    assert_contains(remedy(evicts), "noeviction");
    let buffer = finding(&report, "redis.output_buffer", Severity::Warning);
    assert_contains(&buffer.found, "about 2,221 events");
    Ok(())
}

#[tokio::test]
async fn a_replica_is_an_error_that_names_its_master() -> Result {
    let (master, replica) = (redis().await?, redis().await?);
    let port = master.port().to_string();
    let () = run(&replica, &["REPLICAOF", "127.0.0.1", &port]).await?;
    let report = doctor::examine(&config(&replica.url(), &ledger("replica").await?)?).await;
    let role = finding(&report, "redis.role", Severity::Error);
    assert_contains(remedy(role), &format!("127.0.0.1:{port}"));
    Ok(())
}

#[tokio::test]
async fn a_cluster_is_an_error() -> Result {
    let redis = PrivateRedis::options()
        .set("cluster-enabled", "yes")
        .start()
        .await?;
    let ledger = ledger("cluster").await?;
    let report = doctor::examine(&config(&redis.url(), &ledger)?).await;
    finding(&report, "redis.cluster", Severity::Error);

    // The daemon says so, too.
    let file = NamedTempFile::new()?;
    let settings = format!(
        "redis.url = '{}'\nledger.url = '{ledger}'\nhttp.listen = ''",
        redis.url()
    );
    std::fs::write(file.path(), settings)?;
    let daemon = Process::listen_with(file, &[]);
    daemon.until_logged("is a node of a cluster").await;
    Ok(())
}

#[tokio::test]
async fn any_other_listener_is_noted() -> Result {
    let redis = redis().await?;
    let config = config(&redis.url(), &ledger("listeners").await?)?;
    let client = redis::Client::open(redis.url())?;
    let mut by_pattern = client.get_async_pubsub().await?;
    by_pattern.psubscribe("__keyevent@*__:expired").await?;
    let mut by_name = client.get_async_pubsub().await?;
    by_name.subscribe("__keyevent@0__:expired").await?;
    let mut elsewhere = client.get_async_pubsub().await?;
    elsewhere.subscribe("news").await?;

    let report = doctor::examine(&config).await;
    let listeners = finding(&report, "redis.listeners", Severity::Note);
    assert_contains(&listeners.found, "2 other clients listen");
    assert_contains(remedy(listeners), "PHP");
    Ok(())
}

#[tokio::test]
async fn a_daemon_that_runs_is_named_and_is_no_other_listener() -> Result {
    let redis = redis().await?;
    let config = config_with(&redis.url(), &ledger("daemons").await?, "http.listen = ''")?;
    let report = doctor::examine(&config).await;
    let none = finding(&report, "fleet.daemons", Severity::Note);
    assert_contains(&none.found, "no daemon is running");
    assert_contains(remedy(none), "lapsed listen");

    let stop = tokio_util::sync::CancellationToken::new();
    let engine = lapsed::Engine::new(config.clone(), lapsed::Handlers::new()).unwrap();
    let running = tokio::spawn(engine.run_until(stop.clone().cancelled_owned()));
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    let report = loop {
        let report = doctor::examine(&config).await;
        let of = |check: &str| report.findings.iter().find(|found| found.check == check);
        let seen = |check| of(check).is_some_and(|found| found.severity == Severity::Ok);
        // Redis 7.2 and Valkey tell which library a client is of, so that daemons are no other clients.
        let listens = of("redis.listeners").is_some_and(|found| {
            found.found.contains("daemons listen") || found.found.contains("no other client")
        });
        if seen("fleet.daemons") && listens {
            break report;
        }
        assert!(tokio::time::Instant::now() < deadline, "{report}");
    };
    let one = finding(&report, "fleet.daemons", Severity::Ok);
    assert_contains(&one.found, "1 daemon is running: ");
    stop.cancel();
    running.await??;
    Ok(())
}

#[tokio::test]
async fn a_daemon_that_no_list_names_is_no_other_listener() -> Result {
    let redis = redis().await?;
    // Other daemons do not see it, as in its first moments.
    let settings = "http.listen = ''\nfleet.share = false";
    let config = config_with(&redis.url(), &ledger("unlisted").await?, settings)?;
    let stop = tokio_util::sync::CancellationToken::new();
    let engine = lapsed::Engine::new(config.clone(), lapsed::Handlers::new()).unwrap();
    let handle = engine.handle();
    let running = tokio::spawn(engine.run_until(stop.clone().cancelled_owned()));
    until("the daemon listens", async || {
        handle.is_listening() == Some(true)
    })
    .await;
    let report = doctor::examine(&config).await;
    finding(&report, "redis.listeners", Severity::Ok);
    stop.cancel();
    running.await??;
    Ok(())
}

#[tokio::test]
async fn the_lateness_of_bare_events_is_predicted_from_the_keys_that_expire() -> Result {
    let redis = redis().await?;
    let script = "for i = 1, 5000 do redis.call('SET', 'k' .. i, '', 'EX', 100000) end";
    let () = run(&redis, &["EVAL", script, "0"]).await?;
    let () = run(&redis, &["CONFIG", "SET", "active-expire-effort", "2"]).await?;
    let ledger = ledger("lateness").await?;
    let report = doctor::examine(&config(&redis.url(), &ledger)?).await;
    let late = finding(&report, "redis.lateness", Severity::Note);
    // 5 000 / (10 * 25)
    assert_contains(&late.found, "up to 20 s late");
    let config = config_with(&redis.url(), &ledger, "nudge.enabled = false")?;
    finding(
        &doctor::examine(&config).await,
        "redis.lateness",
        Severity::Warning,
    );
    Ok(())
}
