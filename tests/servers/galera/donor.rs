//! A writer that sends all its data to another node by `rsync`, and takes no writes meanwhile.

use std::cell::Cell;
use std::sync::Arc;

use lapsed_sandbox::PrivateGalera;
use sqlx::{Connection, MySqlConnection};
use tokio::time::Instant;

use super::synced_node;
use crate::replicated::{Load, each_took_effect_once, until_none_waits, until_one_runs};
use crate::support::setup::Setup;
use crate::support::wait::until;

/// 600 MB in one node alone, so that it takes a while to send them.
const DATA: &str = "SET SESSION wsrep_on = OFF; CREATE TABLE bulk (data LONGTEXT); \
     INSERT INTO bulk SELECT REPEAT('x', 1000000) FROM seq_1_to_600";

/// Statements about tasks that wait while the node is a donor: how many, and for what.
const HELD: &str = "SELECT CAST(COUNT(*) AS SIGNED), CAST(GROUP_CONCAT(DISTINCT state) AS CHAR) \
     FROM information_schema.PROCESSLIST \
     WHERE state LIKE 'Waiting for % lock' AND info LIKE '%tb_time_limit_task%' AND '2' = \
       (SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'wsrep_local_state')";

#[ignore = "a copy of 600 MB needs the disk for itself: scripts/soak runs it"]
#[tokio::test]
async fn each_task_takes_effect_once_and_never_early_while_the_writer_sends_its_data_by_rsync() {
    let mut cluster = PrivateGalera::start(3, "lapsed").await.unwrap();
    let mut writer = MySqlConnection::connect(&cluster.nodes[0].url("lapsed"))
        .await
        .unwrap();
    let rig = Setup::new("engine.lease = '5s'\nledger.statement_timeout = '1s'")
        .ledger(cluster.nodes[0].url("lapsed"))
        .start()
        .await;
    sqlx::raw_sql(DATA).execute(&mut writer).await.unwrap();
    println!("the data are there");
    cluster.nodes[2].shutdown().await.unwrap();
    let daemon = Arc::new(rig.daemon());
    let other = rig.daemon();
    daemon.hears_events().await;
    other.hears_events().await;
    let load = Load::start(&daemon);
    until_one_runs(&rig).await;

    let writer = tokio::sync::Mutex::new(writer);
    let held = async || {
        let held: (i64, Option<String>) = sqlx::query_as(HELD)
            .fetch_one(&mut *writer.lock().await)
            .await
            .unwrap();
        held
    };
    let began = Cell::new(Instant::now());
    let holds = async {
        until("the donor lets statements wait", async || {
            let (count, states) = held().await;
            if count > 0 {
                println!("{count} statements wait: {states:?}");
            }
            count > 0
        })
        .await;
        began.set(Instant::now());
        until("the donor lets none wait", async || held().await.0 == 0).await;
        println!("the donor took no writes for {:?}", began.get().elapsed());
        until_one_runs(&rig).await;
        println!("tasks run after {:?}", began.get().elapsed());
    };
    let (joined, ()) = tokio::join!(cluster.copy_by_rsync(2, 0), holds);
    joined.unwrap();

    let acknowledged = load.stop().await;
    let node = synced_node(&cluster).await;
    until_none_waits(&node).await;
    each_took_effect_once(&acknowledged, &node).await;
}
