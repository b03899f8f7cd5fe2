//! Servers that are not there, hang, or fall silent half-way.

use lapsed_doctor::{self as doctor, Severity};
use lapsed_sandbox::PrivateMaria;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::doctor::rig::{Result, assert_contains, config, finding, ledger, redis};
use crate::support::maria;
use crate::support::tcp_proxy::in_front_of;
use crate::support::wait::DEADLINE;

/// An address where connecting is refused.
fn nowhere() -> Result<String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?.to_string())
}

#[tokio::test]
async fn servers_that_are_not_there_are_errors() -> Result {
    let (redis, maria) = (nowhere()?, nowhere()?);
    let config = config(
        &format!("redis://{redis}/0"),
        &format!("mysql://root:s3cret@{maria}/x"),
    )?;
    let report = doctor::examine(&config).await;
    for (check, address) in [("redis.reachable", redis), ("ledger.reachable", maria)] {
        let found = finding(&report, check, Severity::Error);
        assert_contains(&found.found, &address);
        assert_contains(&found.found, "refused");
    }
    assert_eq!(report.findings.len(), 2, "{report}");
    assert!(!report.to_string().contains("s3cret"), "{report}");

    let report = doctor::fix(&config).await;
    assert_eq!(report.findings[0].severity, Severity::Error, "{report}");
    Ok(())
}

#[tokio::test]
async fn servers_that_hang_do_not_hang_the_doctor() -> Result {
    let redis = redis().await?;
    let maria = PrivateMaria::start().await?;
    let config = config(&redis.url(), &maria.create_database("hung").await?)?;
    redis.stop_process()?;
    maria.stop_process()?;
    let fixed = tokio::spawn(async move { doctor::fix(&config).await });
    let report = timeout(DEADLINE, fixed).await??;
    for check in ["fix", "redis.reachable", "ledger.reachable"] {
        finding(&report, check, Severity::Error);
    }
    Ok(())
}

/// Passes everything on until a client says `word`; from then on, nothing.
async fn mute_at(word: &'static str, port: u16) -> u16 {
    in_front_of(port, move |client, server| async move {
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        let answers = async {
            let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
        };
        let questions = async {
            let mut said = vec![0; 65536];
            while let Ok(length @ 1..) = from_client.read(&mut said).await {
                if String::from_utf8_lossy(&said[..length]).contains(word) {
                    std::future::pending::<()>().await;
                }
                if to_server.write_all(&said[..length]).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = answers => {}
            () = questions => {}
        }
    })
    .await
}

#[tokio::test]
async fn doctor_keeps_its_findings_if_a_server_stops_answering() -> Result {
    let redis = redis().await?;
    let ledger = ledger("silent").await?;
    let maria_port = maria::server().await.port();
    let (redis_port, ledger_port) = (
        mute_at("NUMSUB", redis.port()).await,
        mute_at("SHOW VARIABLES", maria_port).await,
    );
    let config = config(
        &redis
            .url()
            .replace(&redis.port().to_string(), &redis_port.to_string()),
        // Readable on its way: MySQL has TLS switched on.
        &(ledger.replace(&maria_port.to_string(), &ledger_port.to_string()) + "?ssl-mode=disabled"),
    )?;
    let report = timeout(DEADLINE, doctor::examine(&config)).await?;
    finding(&report, "redis.role", Severity::Ok);
    finding(&report, "ledger.session", Severity::Ok);
    for check in ["redis.listeners", "ledger.version"] {
        let silent = finding(&report, check, Severity::Error);
        assert_contains(&silent.found, "stopped answering");
    }
    Ok(())
}
