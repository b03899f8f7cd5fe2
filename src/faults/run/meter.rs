//! Measures a daemon while a run goes on.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::MySqlPool;
use tokio::time::{Instant, sleep_until, timeout};

use crate::file_rig;
use crate::mysql_rig;
use crate::samples::{Sample, bytes, of_process};
use crate::target::now;

/// Time between samples.
const EVERY: Duration = Duration::from_secs(5);

/// Where rows are counted.
pub enum Rows {
    Sql(MySqlPool),
    File(PathBuf),
}

pub struct Meter {
    /// Of the daemon.
    pub pid: u32,
    /// Of all daemons.
    pub logs: Vec<PathBuf>,
    pub rows: Rows,
}

impl Meter {
    /// Measures until `ended` is true. A time at which the ledger does not answer is left out.
    pub async fn measure(self, ended: Arc<AtomicBool>) -> Vec<Sample> {
        let mut samples = Vec::new();
        let (mut next, mut logged) = (Instant::now() + EVERY, bytes(&self.logs));
        while !ended.load(Ordering::Relaxed) {
            sleep_until(next).await;
            next += EVERY;
            let written = bytes(&self.logs);
            let of_log = written.saturating_sub(logged);
            logged = written;
            let rows = match &self.rows {
                Rows::Sql(sql) => timeout(EVERY, mysql_rig::unfinished(sql)).await,
                Rows::File(file) => Ok(file_rig::unfinished(file)),
            };
            if let (Some([rss, descriptors, threads]), Ok(Ok(rows))) = (of_process(self.pid), rows)
            {
                let values = [rss, descriptors, threads, rows.cast_unsigned(), of_log];
                samples.push(Sample { at: now(), values });
            }
        }
        samples
    }
}
