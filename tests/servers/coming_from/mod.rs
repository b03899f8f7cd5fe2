//! Owners of other designs, who follow the pages of docs/coming-from: their producers as they are today, through the takeover,
//! failures, retries, cancellations, a restart of the daemon, and Redis back from a snapshot. No task is lost, runs twice, or
//! is early.
//!
//! `LAPSED_TEST_TASKS` sets the number of tasks of each test, 200 by default.

mod celery;
mod frameworks;
mod jobs;
mod owner;
mod sorted_sets;
mod switched;
mod tables;
mod wheel;
