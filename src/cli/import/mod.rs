//! `lapsed import`: waiting jobs of other systems become tasks.

mod asynq;
mod bullmq;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod intake;
mod job;
mod live_keys;
mod options;
mod php;
mod protobuf;
mod rules;
mod scripts;
mod seed000;
mod seed001;
mod seed002;
mod seed003;
mod seed004;
mod sets;
mod sidekiq;
mod sorted_set_jobs;
mod source;
mod store;
mod string_jobs;
mod table;
mod tally;

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use lapsed::Config;
use lapsed::compose::Adapters;

use self::intake::Intake;
use self::job::Job;
use self::options::Options;
use self::rules::Rules;
use self::source::Source;
use self::tally::Tally;
use super::log::stderr_line;
use super::output::Output;
use super::progress::Progress;
use super::usage;

#[derive(Args)]
pub struct Import {
    #[command(flatten)]
    options: Options,
}

impl Import {
    pub async fn run(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        let options = self.options;
        if let Some(problem) = options.problem() {
            return usage(&problem);
        }
        let adapters = Adapters::new(config)?;
        adapters.ledger.check().await?;
        let tasks = adapters.client();
        let now = tasks.now().await?;
        let clock = adapters.ledger.clock().clone();
        let opened = options.open(config, clock).await;
        let mut source = opened.map_err(source::explain)?;
        let count = source.count().await.map_err(source::explain)?;
        let progress = Progress::new(count);
        let mut intake = Intake {
            ledger: &*adapters.ledger,
            tasks: &tasks,
            rules: Rules::new(&config.import, options.source),
            routes: &config.routes,
            progress: &progress,
            dry_run: options.dry_run,
            needs_route: options.take && !options.unrouted,
            started: now,
            tally: Tally::default(),
        };
        let done = match options.take {
            true => take_all(&mut *source, &mut intake).await,
            false => copy_all(&mut *source, &mut intake).await,
        };
        progress.finish();
        let tally = intake.tally;
        let complete = done.map_err(source::explain).with_context(|| {
            format!(
                "stopped after {} jobs; start the same import again, it continues",
                tally.read()
            )
        })?;
        if complete && tally.read() == 0 {
            stderr_line!("note: no job waits there: {}", options.place(config));
        }
        if complete {
            for remark in source.remarks().await? {
                stderr_line!("note: {remark}");
            }
        }
        tally.print(options.source, options.dry_run, complete, output)
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

/// Creates the tasks of all jobs, and removes those that are committed from the source, a page at a time. A task whose job
/// is not there any more is cancelled. Returns false if it
/// was interrupted.
async fn take_all(source: &mut dyn Source, intake: &mut Intake<'_>) -> anyhow::Result<bool> {
    while let Some(page) = source.page().await? {
        let committed: Vec<Job> = intake.write(page).await?;
        if !committed.is_empty() {
            let taken = source.take(&committed).await?;
            intake.tally.taken += taken.taken;
            let stay = committed.len() as u64 - taken.taken;
            intake.tally.changed += stay - taken.gone.len() as u64;
            let gone = taken.gone.iter().map(|index| &committed[*index]);
            intake.undo(gone.collect()).await?;
        }
        if intake.progress.show(intake.tally.read()).is_break() {
            return Ok(false);
        }
    }
    Ok(true)
}
