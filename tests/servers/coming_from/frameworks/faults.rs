//! Redis loses its data, daemons die, and the framework's own poller is first.

use super::{Fate, Framework, HYPERF, LARAVEL, Shop, WEBMAN};
use crate::support::process::Process;
use crate::support::wait::until;

impl Shop {
    /// Delays jobs that all run once, by this many seconds.
    fn delay_by(&mut self, count: usize, seconds: usize) {
        let jobs = (0..count).map(|number| (format!("run-plain-{number}"), Fate::Runs, seconds));
        self.delay(jobs.collect());
    }

    /// How many tasks have a result with this text.
    async fn with_result(&self, text: &str) -> i64 {
        let results = "SELECT COUNT(*) FROM tb_time_limit_task WHERE status = 1 AND result LIKE";
        self.rig.number(format!("{results} '%{text}%'")).await
    }
}

async fn jobs_that_redis_lost_are_pushed(framework: &'static Framework) {
    let mut shop = Shop::new(framework).await;
    let mut daemon = Process::listen(&shop.rig, &[]);
    shop.delay_by(20, 6);
    shop.until_mirrored().await;
    let () = shop.rig.redis_says(&["FLUSHALL"]).await;
    // A daemon that starts with an empty Redis does the same.
    daemon.kill();
    let _daemon = Process::listen(&shop.rig, &[]);
    let workers = shop.work(true);
    shop.all_is_well().await;
    assert_eq!(shop.with_result("Redis had lost the job").await, 20);
    drop(workers);
}

#[tokio::test]
async fn a_job_of_laravel_that_redis_lost_is_pushed_once_when_it_is_due() {
    jobs_that_redis_lost_are_pushed(&LARAVEL).await;
}

#[tokio::test]
async fn a_job_of_hyperf_that_redis_lost_is_pushed_once_when_it_is_due() {
    jobs_that_redis_lost_are_pushed(&HYPERF).await;
}

async fn several_daemons_share_the_jobs(framework: &'static Framework) {
    let mut shop = Shop::new(framework).await;
    let mut daemons = [(); 3].map(|()| Process::listen(&shop.rig, &[]));
    // Without the framework's own poller.
    let workers = shop.work(false);
    let job = |number: usize| (format!("run-plain-{number}"), Fate::Runs, 3 + number / 20);
    shop.delay((0..200).map(job).collect());
    until("half of the jobs have run", async || {
        shop.ran().len() >= 100
    })
    .await;
    daemons[0].kill();
    let _joins = Process::listen(&shop.rig, &[]);
    shop.all_is_well().await;
    drop(workers);
}

#[tokio::test]
async fn several_daemons_move_each_job_of_laravel_once_while_one_dies_and_one_joins() {
    several_daemons_share_the_jobs(&LARAVEL).await;
}

#[tokio::test]
async fn several_daemons_move_each_job_of_webman_once_while_one_dies_and_one_joins() {
    several_daemons_share_the_jobs(&WEBMAN).await;
}

#[tokio::test]
async fn a_job_that_the_frameworks_poller_has_moved_is_done_and_says_so() {
    let mut shop = Shop::new(&WEBMAN).await;
    let mut daemon = Process::listen(&shop.rig, &[]);
    shop.delay_by(20, 4);
    shop.until_mirrored().await;
    daemon.kill();
    let workers = shop.work(true);
    until("all jobs have run", async || shop.ran().len() == 20).await;
    let _daemon = Process::listen(&shop.rig, &[]);
    shop.all_is_well().await;
    assert_eq!(
        shop.with_result("another program has removed the job")
            .await,
        20
    );
    drop(workers);
}

#[tokio::test]
async fn a_job_is_moved_when_its_task_is_run_at_once_or_at_another_time() {
    let mut shop = Shop::new(&LARAVEL).await;
    let _daemon = Process::listen(&shop.rig, &[]);
    let workers = shop.work(false);
    shop.delay_by(2, 600);
    shop.until_mirrored().await;
    let keys = [shop.jobs[0].key.clone(), shop.jobs[1].key.clone()];
    shop.shell.text(&["run", &keys[0]]);
    until("the job has run", async || shop.ran().len() == 1).await;
    let left: i64 = shop.rig.redis_says(&["ZCARD", LARAVEL.set]).await;
    assert_eq!(left, 1);
    let moved = shop.shell.json(&["reschedule", &keys[1], "--in", "3s"]);
    until("the other one has run", async || shop.ran().len() == 2).await;
    let due: jiff::Timestamp = moved["due"].as_str().unwrap().parse().unwrap();
    let runs = &shop.ran()[&shop.jobs[1].name];
    assert!(runs[0].1 >= due.as_millisecond(), "{runs:?}, {moved}");
    drop(workers);
}
