//! The options of `lapsed import`, and the source that they select.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use jiff::tz::TimeZone;
use lapsed::Config;
use lapsed::clock::LedgerClock;
use lapsed::config::{ImportSource, Secret};
use lapsed::task::{Due, TableName};

use super::seed000::Seed000;
use super::seed002::Seed002;
use super::seed003::Seed003;
use super::seed004::Seed004;
use super::sorted_set_jobs::SortedSetJobs;
use super::source::Source;
use super::store::Store;
use super::string_jobs::{self, Framework};
use super::table::Table;
use super::{asynq, bullmq, seed001, sidekiq};

#[derive(Args)]
pub struct Options {
    /// System that the jobs are in
    #[arg(value_name = "SOURCE", value_parser = sources())]
    pub source: ImportSource,
    /// Redis of the source [default: redis.url]
    #[arg(
        long,
        value_name = "URL",
        env = "LAPSED_IMPORT_FROM_REDIS",
        hide_env_values = true
    )]
    from_redis: Option<Secret>,
    /// Database of the source: seed000, seed002, seed003 [default: ledger.url]
    #[arg(
        long,
        value_name = "URL",
        env = "LAPSED_IMPORT_FROM_MYSQL",
        hide_env_values = true
    )]
    from_mysql: Option<Secret>,
    /// Only this queue: bullmq, sidekiq, asynq, laravel, think-queue [default: all]
    #[arg(long)]
    queue: Option<String>,
    /// How the source's keys begin: bullmq [default: bull], sidekiq (a namespace), laravel, think-queue and seed003
    /// [default: redis.key_prefix], seed004 [default: redis.key_prefix and wheel.key]
    #[arg(long)]
    prefix: Option<String>,
    /// Sorted set: seed000 [default: delay_queue_job], seed001 [default: order]
    #[arg(long, value_name = "KEY")]
    set: Option<String>,
    /// Table: seed000 [default: delay_queue], seed002 [default: jobs], seed003 [default: tb_time_limit_task]
    #[arg(long)]
    table: Option<String>,
    /// Time zone of `available_at`, which is that of the programs that write it, such as `date.timezone` of PHP: needed for
    /// seed002
    #[arg(long, value_name = "ZONE", value_parser = zone)]
    tz: Option<TimeZone>,
    /// When the wheel's consumer was stopped: needed for seed004. Give the same time in each import
    #[arg(long, value_name = "RFC3339", value_parser = Due::parse_moment)]
    stopped_at: Option<Due>,
    /// Count and show what would be created, and report what is refused; writes nothing
    #[arg(long, conflicts_with = "take")]
    pub dry_run: bool,
    /// Remove each job at the source once its task is committed, if it has not changed since it was read
    #[arg(long)]
    pub take: bool,
    /// With `--take`: also jobs whose tasks no route of this configuration runs
    #[arg(long, requires = "take")]
    pub unrouted: bool,
}

/// Parses the name of a system.
fn sources() -> impl TypedValueParser<Value = ImportSource> {
    PossibleValuesParser::new(ImportSource::ALL.map(ImportSource::as_str)).map(|name| {
        let mut all = ImportSource::ALL.into_iter();
        let source = all.find(|source| source.as_str() == name);
        source.expect("it is one of the possible values")
    })
}

fn zone(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name).map_err(|error| error.to_string())
}

impl Options {
    /// Names an option that the source does not have, or a value that is none.
    pub fn problem(&self) -> Option<String> {
        use ImportSource as S;
        let of = |sources: &[S]| sources.contains(&self.source);
        let options = [
            (
                "--from-redis",
                self.from_redis.is_some(),
                !of(&[S::Seed002]),
            ),
            (
                "--from-mysql",
                self.from_mysql.is_some(),
                of(&[S::Seed000, S::Seed002, S::Seed003]),
            ),
            (
                "--queue",
                self.queue.is_some(),
                of(&[S::Bullmq, S::Sidekiq, S::Asynq, S::Laravel, S::ThinkQueue]),
            ),
            (
                "--prefix",
                self.prefix.is_some(),
                of(&[
                    S::Bullmq,
                    S::Sidekiq,
                    S::Laravel,
                    S::ThinkQueue,
                    S::Seed003,
                    S::Seed004,
                ]),
            ),
            ("--set", self.set.is_some(), of(&[S::Seed000, S::Seed001])),
            (
                "--table",
                self.table.is_some(),
                of(&[S::Seed000, S::Seed002, S::Seed003]),
            ),
            ("--tz", self.tz.is_some(), of(&[S::Seed002])),
            ("--stopped-at", self.stopped_at.is_some(), of(&[S::Seed004])),
        ];
        if let Some((name, ..)) = options.into_iter().find(|(_, given, fits)| *given && !fits) {
            return Some(format!("`{name}` is no option of {}", self.source));
        }
        let table = self.table.as_deref().map(TableName::new);
        let url = self.from_redis.as_ref().map(Store::check_url);
        let table = table
            .and_then(Result::err)
            .map(|error| ("table", error.to_string()));
        let url = url.and_then(Result::err).map(|error| ("from-redis", error));
        let wrong = table.or(url);
        if let Some((name, problem)) = wrong {
            return Some(format!("`--{name}`: {problem}"));
        }
        if self.source == S::Seed002 && self.tz.is_none() {
            return Some(
                "seed002 needs `--tz`, the time zone in which programs write `available_at`: that of PHP's `date.timezone`, \
                 often UTC or that of the server"
                    .to_owned(),
            );
        }
        if self.source == S::Seed004 && self.stopped_at.is_none() {
            return Some(
                "seed004 needs `--stopped-at`, the time at which the consumer of the wheel was stopped, such as \
                 2026-11-21T20:00:00Z: due times are counted from there"
                    .to_owned(),
            );
        }
        None
    }

    /// Connects to the source.
    pub async fn open(
        &self,
        config: &Config,
        clock: LedgerClock,
    ) -> anyhow::Result<Box<dyn Source>> {
        let set = |default: &'static str| self.set.as_deref().unwrap_or(default);
        let prefix = self.prefix.as_deref();
        Ok(match self.source {
            ImportSource::Seed000 => {
                let table = self.table("delay_queue", config).await?;
                let store = self.store(config).await?;
                Box::new(Seed000::open(store, set("delay_queue_job"), table))
            }
            ImportSource::Seed001 => {
                Box::new(seed001::open(self.store(config).await?, set("order")))
            }
            ImportSource::Seed002 => {
                let zone = self.tz.clone().unwrap_or(TimeZone::UTC);
                Box::new(Seed002::open(self.table("jobs", config).await?, zone))
            }
            ImportSource::Seed003 => {
                let table = self.table("tb_time_limit_task", config).await?;
                let prefix = prefix.unwrap_or(&config.redis.key_prefix);
                let store = self.store(config).await?;
                Box::new(Seed003::open(store, prefix, table, clock).await?)
            }
            ImportSource::Seed004 => {
                let now = clock.now();
                let stopped_at = self.stopped_at.map_or(now, |moment| moment.resolve(now));
                let store = self.store(config).await?;
                let default = format!("{}{}", config.redis.key_prefix, config.wheel.key);
                let prefix = prefix.unwrap_or(&default);
                Box::new(Seed004::open(
                    store,
                    prefix,
                    config.wheel.clone(),
                    stopped_at,
                ))
            }
            ImportSource::Bullmq => {
                let store = self.store(config).await?;
                let queue = self.queue.as_deref();
                Box::new(bullmq::open(store, prefix.unwrap_or("bull"), queue).await?)
            }
            ImportSource::Sidekiq => {
                let store = self.store(config).await?;
                Box::new(sidekiq::open(store, prefix, self.queue.clone()))
            }
            ImportSource::Asynq => {
                let store = self.store(config).await?;
                Box::new(asynq::open(store, self.queue.as_deref()).await?)
            }
            ImportSource::Laravel => Box::new(self.string_jobs(Framework::Laravel, config).await?),
            ImportSource::ThinkQueue => {
                Box::new(self.string_jobs(Framework::ThinkQueue, config).await?)
            }
        })
    }

    async fn string_jobs(
        &self,
        framework: Framework,
        config: &Config,
    ) -> anyhow::Result<SortedSetJobs> {
        let store = self.store(config).await?;
        let prefix = self.prefix.as_deref().unwrap_or(&config.redis.key_prefix);
        let queue = self.queue.as_deref();
        let url = self.from_redis.as_ref().map(Secret::expose);
        let is_here = url.is_none_or(|url| url == config.redis.url.expose());
        let moved_here = match is_here && !self.dry_run {
            true => config.delayed_sets(),
            false => Vec::new(),
        };
        string_jobs::open(store, framework, prefix, queue, &moved_here).await
    }

    /// Where the source was looked for, and the options that name another place.
    pub fn place(&self, config: &Config) -> String {
        let redis = (
            "redis.url",
            "--from-redis",
            &self.from_redis,
            &config.redis.url,
        );
        let mysql = (
            "ledger.url",
            "--from-mysql",
            &self.from_mysql,
            &config.ledger.url,
        );
        let places = match self.source {
            ImportSource::Seed000 | ImportSource::Seed003 => vec![redis, mysql],
            ImportSource::Seed002 => vec![mysql],
            _ => vec![redis],
        };
        let place =
            |(setting, option, given, configured): (&str, &str, &Option<Secret>, &Secret)| {
                match given {
                    Some(url) => format!("`{url}` (`{option}`)"),
                    None => format!("`{configured}` (`{setting}`; `{option}` names another)"),
                }
            };
        let places: Vec<String> = places.into_iter().map(place).collect();
        let names = match self.source {
            ImportSource::Bullmq
            | ImportSource::Sidekiq
            | ImportSource::Laravel
            | ImportSource::ThinkQueue => "; see also `--queue` and `--prefix`",
            ImportSource::Asynq => "; see also `--queue`",
            ImportSource::Seed000 | ImportSource::Seed001 => "; see also `--set`",
            ImportSource::Seed004 => "; see also `--prefix`",
            ImportSource::Seed002 | ImportSource::Seed003 => "; see also `--table`",
        };
        format!("{}{names}", places.join(", "))
    }

    async fn store(&self, config: &Config) -> anyhow::Result<Store> {
        let url = self.from_redis.as_ref().unwrap_or(&config.redis.url);
        Store::connect(url, &config.redis).await
    }

    async fn table(&self, default: &str, config: &Config) -> anyhow::Result<Table> {
        let url = self.from_mysql.as_ref().unwrap_or(&config.ledger.url);
        let table = self.table.as_deref().unwrap_or(default);
        Table::connect(url, table, &config.ledger).await
    }
}
