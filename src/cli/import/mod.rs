//! `lapsed import`: waiting jobs of other systems become tasks.

mod bullmq;
mod intake;
mod job;
mod rules;
mod sets;
mod source;
mod store;
mod tally;

use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, ValueEnum};
use lapsed::Config;
use lapsed::compose::Adapters;
use lapsed::config::{ImportSource, Secret};
use lapsed::ledger::Ledger;

use self::bullmq::Bullmq;
use self::intake::Intake;
use self::job::Job;
use self::rules::Rules;
use self::source::Source;
use self::store::Store;
use self::tally::Tally;
use super::output::Output;
use super::progress::Progress;

#[derive(Args)]
pub struct Import {
    /// System that the jobs are in
    #[arg(value_enum)]
    source: System,
    /// Redis of the source [default: redis.url]
    #[arg(long, value_name = "URL")]
    from_redis: Option<Secret>,
    /// Only this queue [default: all]; of bullmq, sidekiq, asynq
    #[arg(long)]
    queue: Option<String>,
    /// Beginning of the source's keys: of bullmq [default: bull], of sidekiq a namespace
    #[arg(long)]
    prefix: Option<String>,
    /// Count and show what would be created, and report what is refused; writes nothing
    #[arg(long, conflicts_with = "take")]
    dry_run: bool,
    /// Remove each job at the source once its task is committed, if it has not changed since it was read
    #[arg(long)]
    take: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum System {
    Bullmq,
}

impl System {
    fn source(self) -> ImportSource {
        match self {
            Self::Bullmq => ImportSource::Bullmq,
        }
    }
}

impl Import {
    pub async fn run(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        let adapters = Adapters::new(config)?;
        adapters.ledger.check().await?;
        let tasks = adapters.client();
        let mut source = self.open(config).await?;
        let progress = Progress::new(source.count().await?);
        let mut intake = Intake {
            ledger: &adapters.ledger,
            tasks: &tasks,
            rules: Rules::new(&config.import, self.source.source()),
            routes: &config.routes,
            progress: &progress,
            dry_run: self.dry_run,
            tally: Tally::default(),
        };
        let done = match self.take {
            true => take_all(&mut *source, &mut intake).await,
            false => copy_all(&mut *source, &mut intake).await,
        };
        progress.finish();
        let tally = intake.tally;
        let complete = done.with_context(|| {
            format!(
                "stopped after {} jobs; start the same import again, it continues",
                tally.read()
            )
        })?;
        tally.tell(self.source.source(), self.dry_run, complete, output)
    }

    async fn open(&self, config: &Config) -> anyhow::Result<Box<dyn Source>> {
        let url = self.from_redis.as_ref().unwrap_or(&config.redis.url);
        let store = Store::connect(url.expose(), &config.redis).await?;
        Ok(match self.source {
            System::Bullmq => {
                let prefix = self.prefix.as_deref().unwrap_or("bull");
                Box::new(Bullmq::open(store, prefix, self.queue.as_deref()).await?)
            }
        })
    }
}

/// Creates the tasks of all jobs; while a page is written, the next one is read. Returns false if it was interrupted.
async fn copy_all(source: &mut dyn Source, intake: &mut Intake<'_>) -> anyhow::Result<bool> {
    let mut next = source.page().await?;
    while let Some(page) = next {
        let (written, read) = tokio::join!(intake.write(page), source.page());
        written?;
        if intake.progress.show(intake.tally.read()).is_break() {
            return Ok(false);
        }
        next = read?;
    }
    Ok(true)
}

/// Creates the tasks of all jobs, and removes those that are committed from the source, a page at a time. Returns false if it
/// was interrupted.
async fn take_all(source: &mut dyn Source, intake: &mut Intake<'_>) -> anyhow::Result<bool> {
    while let Some(page) = source.page().await? {
        let committed: Vec<Job> = intake.write(page).await?;
        if !committed.is_empty() {
            let taken = source.take(&committed).await?;
            intake.tally.taken += taken;
            intake.tally.changed += committed.len() as u64 - taken;
        }
        if intake.progress.show(intake.tally.read()).is_break() {
            return Ok(false);
        }
    }
    Ok(true)
}
