//! Links that are gone without a word: nobody closes the connections on them.

use std::time::Duration;

use lapsed::Config;
use lapsed::ledger::Ledger;
use lapsed::ledger::mysql::MysqlLedger;
use lapsed_sandbox::PrivateMaria;
use tokio::io::copy_bidirectional;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::mysql::rig::start;
use crate::support::tcp_proxy::in_front_of;

/// Far below the minute for which a handler waits for a connection.
const PATIENCE: Duration = Duration::from_secs(30);

const CONNECTIONS: u32 = 10;

/// A ledger with idle connections in both pools, whose links are gone. A new one leads to the server.
async fn with_dead_links() -> (PrivateMaria, MysqlLedger, watch::Sender<bool>) {
    let (server, _, url) = start().await;
    let (cut, is_cut) = watch::channel(false);
    let port = in_front_of(server.port(), move |mut client, mut server| {
        let mut is_cut = is_cut.clone();
        let is_new = *is_cut.borrow();
        async move {
            let forwards = copy_bidirectional(&mut client, &mut server);
            tokio::select! {
                _ = forwards => return,
                _ = is_cut.wait_for(|cut| *cut && !is_new) => {}
            }
            // Neither side hears of it.
            std::future::pending().await
        }
    })
    .await;
    let mut config = Config::default().ledger;
    let url = url.replace(&server.port().to_string(), &port.to_string());
    config.url = url.as_str().into();
    config.max_connections = CONNECTIONS;
    let ledger = MysqlLedger::new(&config).unwrap();
    let mut transactions = JoinSet::new();
    let mut statements = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (one, other) = (ledger.clone(), ledger.clone());
        transactions.spawn(async move { one.begin().await.unwrap() });
        statements.spawn(async move { other.sync_clock().await.unwrap() });
    }
    for transaction in transactions.join_all().await {
        transaction.rollback().await.unwrap();
    }
    statements.join_all().await;
    cut.send(true).unwrap();
    (server, ledger, cut)
}

#[tokio::test]
async fn a_handler_gets_a_new_connection_when_the_link_of_an_idle_one_is_gone() {
    let (_server, ledger, _cut) = with_dead_links().await;
    let begun = timeout(PATIENCE, ledger.begin()).await;
    begun.expect("it does not wait for the link").unwrap();
}

#[tokio::test]
async fn the_engine_gets_a_new_connection_when_the_links_of_all_idle_ones_are_gone() {
    let (_server, ledger, _cut) = with_dead_links().await;
    // The connection that was used last is taken to be alive.
    let _ = ledger.sync_clock().await;
    ledger.sync_clock().await.unwrap();
}
