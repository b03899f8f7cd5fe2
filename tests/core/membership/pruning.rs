//! Who forgets what is finished.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lapsed::ledger::Ledger;
use lapsed::membership::{REFRESH, Readiness};
use lapsed::timer::ledger_poll::LedgerPoll;
use lapsed::timer::{
    Alarm, AlarmStore, ArmMode, Armed, EngineSink, Listening, Remaining, Timer, TimerError,
};
use lapsed::{Config, TaskKey};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

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

/// A timer whose keys outlive their tasks.
struct Lasting;

#[async_trait]
impl AlarmStore for Lasting {
    async fn arm(&self, _: &[Alarm], _: ArmMode) -> Result<Armed, TimerError> {
        Ok(Armed::default())
    }

    async fn disarm(&self, _: &[TaskKey]) -> Result<(), TimerError> {
        Ok(())
    }

    async fn remaining(&self, keys: &[TaskKey]) -> Result<Vec<Remaining>, TimerError> {
        Ok(vec![Remaining::Ms(1); keys.len()])
    }
}

#[async_trait]
impl Timer for Lasting {
    async fn run(&self, _: Arc<dyn EngineSink>, stop: CancellationToken) {
        stop.cancelled().await;
    }

    fn expect(&self, _: Vec<Alarm>) {}

    fn listening(self: Arc<Self>) -> Option<Arc<dyn Listening>> {
        Some(self)
    }
}

impl Listening for Lasting {
    fn is_listening(&self) -> bool {
        true
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_outlives_its_key_where_another_daemon_adopts() {
    let config = Config::from_toml("retention.done = '60s'\nadopt.enabled = false").unwrap();
    for another in [false, true] {
        let ground = Ground::new();
        if another {
            let shown = ground.clone();
            // The member with the lowest id prunes.
            tokio::spawn(async move {
                loop {
                    shown.show(u64::MAX, Readiness::Away, "Job@run").await;
                    sleep(REFRESH).await;
                }
            });
        }
        let daemon = ground.daemon_by(Arc::new(Lasting), &config);
        daemon.until_members(1 + usize::from(another)).await;
        ground.create("", 10, Duration::ZERO).await;
        ground.until_done(10).await;
        sleep(Duration::from_secs(600)).await;
        let pruned = daemon.metric("lapsed_pruned_total{state=\"done\"}");
        assert_eq!(pruned, if another { 0 } else { 10 });
        daemon.stop().await;
    }
}
