//! Who forgets what is finished.

use std::sync::Arc;
use std::time::Duration;

use lapsed::Config;
use lapsed::ledger::Ledger;
use lapsed::timer::ledger_poll::LedgerPoll;
use tokio::time::sleep;

use crate::membership::rig::{Daemon, Ground};

#[tokio::test(start_paused = true)]
async fn one_daemon_prunes_and_another_when_that_has_gone() {
    const PRUNED: &str = "lapsed_pruned_total{state=\"done\"}";
    let ground = Ground::new();
    let config = Config::from_toml("retention.done = '60s'").unwrap();
    let daemons = [(); 3].map(|()| {
        let timer = LedgerPoll::new(ground.ledger.clock().clone());
        ground.daemon_by(Arc::new(timer), &config)
    });
    for daemon in &daemons {
        daemon.until_members(3).await;
    }
    // Something is old enough whenever anybody looks, and each looks twenty times.
    let many_looks = async |ground: &Ground, prefix: &str| {
        for n in 0..100 {
            ground
                .create(&format!("{prefix}{n}-"), 1, Duration::ZERO)
                .await;
            sleep(Duration::from_secs(2)).await;
        }
    };
    many_looks(&ground, "a").await;
    let pruned = |daemon: &Daemon| daemon.metric(PRUNED);
    let (pruning, mut idle): (Vec<Daemon>, Vec<Daemon>) =
        daemons.into_iter().partition(|daemon| pruned(daemon) > 0);
    assert_eq!(pruning.len(), 1, "one of them prunes");
    assert!(pruned(&pruning[0]) > 50);
    for daemon in pruning {
        daemon.stop().await;
    }
    idle[0].until_members(2).await;
    many_looks(&ground, "b").await;
    idle.retain(|daemon| pruned(daemon) > 0);
    assert_eq!(idle.len(), 1, "one of those that are left prunes");
}
