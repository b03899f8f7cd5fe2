//! Each framework with `lapsed` and by itself, side by side: every job runs once with both. How late they start is printed,
//! and is on docs/coming-from/php-frameworks.md.

use super::{Fate, Framework, HYPERF, LARAVEL, Shop, THINK_QUEUE, WEBMAN};
use crate::coming_from::owner::{tasks, window};
use crate::support::process::Process;
use crate::support::wait::until;

/// Jobs for each side, over this many seconds.
async fn side_by_side(framework: &'static Framework) {
    let (mut with, mut without) = (Shop::new(framework).await, Shop::new(framework).await);
    let _daemon = Process::listen(&with.rig, &[]);
    let (workers, polling) = (with.work(false), without.work(true));
    let count = tasks() / 4;
    for shop in [&mut with, &mut without] {
        let job = |number: usize| {
            let delay = 3 + number * window() / count;
            (format!("run-plain-{number}"), Fate::Runs, delay)
        };
        shop.delay((0..count).map(job).collect());
    }
    for shop in [&with, &without] {
        until("all jobs have run", async || shop.ran().len() == count).await;
    }
    with.all_is_well().await;
    drop((workers, polling));
    for (side, shop) in [("with lapsed", &with), ("by itself", &without)] {
        let ran = shop.ran();
        let mut late: Vec<i64> = Vec::new();
        for job in &shop.jobs {
            let runs = &ran[&job.name];
            assert_eq!(runs.len(), 1, "{side}: {}: {runs:?}", job.name);
            late.push(runs[0].1 - job.due_s * 1_000);
        }
        late.sort_unstable();
        let at = |part: usize| late[(late.len() - 1) * part / 100];
        let name = framework.name;
        println!(
            "{name} {side}: {count} jobs; late in ms: p50 {}, p99 {}, max {}",
            at(50),
            at(99),
            at(100)
        );
    }
}

#[tokio::test]
async fn each_job_of_laravel_runs_once_with_lapsed_and_without() {
    side_by_side(&LARAVEL).await;
}

#[tokio::test]
async fn each_job_of_think_queue_runs_once_with_lapsed_and_without() {
    side_by_side(&THINK_QUEUE).await;
}

#[tokio::test]
async fn each_job_of_webman_runs_once_with_lapsed_and_without() {
    side_by_side(&WEBMAN).await;
}

#[tokio::test]
async fn each_job_of_hyperf_runs_once_with_lapsed_and_without() {
    side_by_side(&HYPERF).await;
}
