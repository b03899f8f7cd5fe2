//! Scenario `sizes`: what operations cost by the size of the table.

mod load;
mod operations;
mod rows_read;

use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use tokio::time::sleep;

use self::load::{Originals, rows_of};
use self::operations::Operations;
use super::by_size::Curve;
use super::environment::Environment;
use super::options::{Common, number, seconds, span};
use super::report::Report;

#[derive(Args, Serialize)]
pub struct Sizes {
    /// Sizes of the table, ascending: half of these tasks are pending, half are done; beside each sixty of them is a dead one
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "100k,300k,1M", value_parser = number)]
    pub sizes: Vec<u32>,
    /// Calls of each operation at each size
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub calls: u32,
    /// Pause between loading and measuring
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = span)]
    #[serde(serialize_with = "seconds")]
    pub rest: Duration,
    /// Buffer pool of the private database, in megabytes; its log has a quarter of that [default: as large as the table, at most
    /// half of the memory]
    #[arg(long, value_name = "MB", requires = "private", value_parser = clap::value_parser!(u64).range(64..=1_000_000))]
    pub buffer_pool: Option<u64>,
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

impl Sizes {
    /// Rows of the largest table.
    pub fn rows(&self) -> u64 {
        let largest = self.sizes.iter().copied().max().unwrap_or(0);
        u64::from(rows_of(largest))
    }

    /// Whether each size is larger than the one before it.
    pub fn are_ascending(&self) -> bool {
        self.sizes.is_sorted_by(|a, b| a < b)
    }

    pub async fn run(&self, environment: &mut Environment) -> anyhow::Result<Report> {
        let environment = &*environment;
        environment.store().create_archive().await?;
        let sql = environment.store().sql().await?;
        let mut sql = sql.context("this scenario needs a database server")?;
        let originals = Originals::make(environment, &mut sql).await?;
        let mut operations = Operations::new(environment, self.calls * self.common.runs).await?;
        let mut loaded = 0;
        for size in &self.sizes {
            let rows = rows_of(*size);
            originals.copy(environment, &mut sql, loaded, rows).await?;
            load::check(environment, loaded).await?;
            // What loading left is written to the disk meanwhile.
            sleep(self.rest).await;
            operations.measure(loaded, rows).await?;
            loaded = rows;
        }
        let (curves, failures) = operations.end();
        Ok(Report {
            rows: curves.iter().flat_map(Curve::report).collect(),
            by_size: curves,
            failures,
            ..Report::default()
        })
    }
}
