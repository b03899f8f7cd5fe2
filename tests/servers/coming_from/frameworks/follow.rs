//! Daemons and workers are killed, jobs are cancelled and tried again: each job runs as often as it shall.

use super::{Fate, Framework, HYPERF, LARAVEL, Shop, THINK_QUEUE, WEBMAN};
use crate::coming_from::owner::tasks;
use crate::support::not_tried::not_tried;
use crate::support::process::Process;
use crate::support::wait::until;

/// A directory with checkouts of top-think/think-queue and hyperf/hyperf: see programs/packages.php.
pub(super) const PACKAGES: &str = "LAPSED_TEST_PHP_PACKAGES";

async fn follow(framework: &'static Framework) {
    let is_package = framework.name == "laravel" || std::env::var_os(PACKAGES).is_some();
    if !is_package || framework.name == "webman" {
        let what = format!(
            "the package itself; its commands are sent instead. {PACKAGES} names a directory with think-queue and hyperf"
        );
        not_tried(framework.name, &what);
    }
    let mut shop = Shop::new(framework).await;
    let part = tasks() / 4;
    // These wait before there is a daemon.
    shop.produce("before", part);
    let mut daemon = Process::listen(&shop.rig, &[]);
    let workers = shop.work(false);
    shop.produce("first", part);
    shop.until_mirrored().await;
    shop.cancel("before").await;
    shop.cancel("first").await;
    until("the removed jobs are cancelled", async || {
        let removed = shop
            .jobs
            .iter()
            .filter(|job| matches!(job.fate, Fate::Cancelled | Fate::Removed));
        shop.rig.with_status(3).await == removed.count() as i64
    })
    .await;
    until("some jobs have run", async || shop.ran().len() > part / 4).await;
    // Jobs fall due while there is no daemon, and nobody moves them.
    daemon.kill();
    shop.produce("unwatched", part);
    let now = shop.rig.now_ms().await;
    shop.rig.until_clock(lapsed::UnixMs(now + 2_000)).await;
    let mut daemon = Process::listen(&shop.rig, &[]);
    shop.until_mirrored().await;
    shop.cancel("unwatched").await;
    // From here on the framework's poller takes part, and has the jobs for itself while there is no daemon.
    let polling = shop.work(true);
    shop.produce("polled", tasks() - 3 * part);
    shop.until_mirrored().await;
    shop.cancel("polled").await;
    until("jobs of the last batch have run", async || {
        shop.ran().keys().any(|name| name.contains("-polled-"))
    })
    .await;
    daemon.kill();
    let now = shop.rig.now_ms().await;
    shop.rig.until_clock(lapsed::UnixMs(now + 2_000)).await;
    let _daemon = Process::listen(&shop.rig, &[]);
    shop.all_is_well().await;
    drop((workers, polling));
    let set: i64 = shop.rig.redis_says(&["ZCARD", framework.set]).await;
    assert_eq!(set, 0);
}

#[tokio::test]
async fn each_job_of_laravel_runs_once_through_everything() {
    follow(&LARAVEL).await;
}

#[tokio::test]
async fn each_job_of_think_queue_runs_once_through_everything() {
    follow(&THINK_QUEUE).await;
}

#[tokio::test]
async fn each_job_of_webman_runs_once_through_everything() {
    follow(&WEBMAN).await;
}

#[tokio::test]
async fn each_job_of_hyperf_runs_once_through_everything() {
    follow(&HYPERF).await;
}
