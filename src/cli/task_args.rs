//! Options of `schedule` that describe a task.

use std::io::Read;

use anyhow::{Context, bail};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use lapsed::IfPending;
use lapsed::contract::TaskSpec;
use lapsed::task::{
    After, CATCH_UP_LIMIT, CatchUp, Due, IfDead, Overlap, PAYLOAD_BYTES_MAX, TaskKey, Traceparent,
};

#[derive(Args)]
pub struct TaskArgs {
    /// Task key: Class@method[@argument]*
    key: Option<TaskKey>,
    /// Class, instead of a whole key
    #[arg(long, requires = "method", conflicts_with = "key")]
    class: Option<String>,
    /// Method, with --class
    #[arg(long, requires = "class")]
    method: Option<String>,
    /// Argument, with --class; repeat the option for each one
    #[arg(long = "arg", requires = "class", allow_hyphen_values = true)]
    args: Vec<String>,
    #[command(flatten)]
    when: When,
    /// Repeat at this interval, e.g. 15m. First run at --in or --at, else one interval from now
    #[arg(long, value_name = "DUR", conflicts_with_all = ["cron", "file"])]
    every: Option<String>,
    /// Repeat on this schedule: `minute hour day month weekday`, with six fields `second` first, or e.g. @daily
    #[arg(long, value_name = "EXPR", conflicts_with = "file")]
    cron: Option<String>,
    /// Time zone of the cron expression, e.g. Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE", requires = "cron")]
    tz: Option<String>,
    /// No occurrence after this time
    #[arg(long, value_name = "RFC3339", conflicts_with = "file")]
    until: Option<String>,
    /// Number of occurrences
    #[arg(long, value_name = "N", conflicts_with_all = ["until", "file"])]
    times: Option<u32>,
    /// How to handle missed occurrences [default: skip]
    #[arg(long, conflicts_with = "file", value_parser = catch_up())]
    catch_up: Option<CatchUp>,
    /// Maximum number of missed occurrences that `all` runs [default: 1000]
    #[arg(long, value_name = "N", conflicts_with = "file", value_parser = clap::value_parser!(u32).range(1..=i64::from(CATCH_UP_LIMIT)))]
    catch_up_max: Option<u32>,
    /// Whether an occurrence may start before the previous one has ended [default: skip]
    #[arg(long, conflicts_with = "file", value_parser = overlap())]
    overlap: Option<Overlap>,
    /// JSON payload, @FILE to read it from a file, or - to read it from stdin
    #[arg(long, conflicts_with = "file")]
    payload: Option<String>,
    /// Tag for listing and cancelling tasks in bulk
    #[arg(long, conflicts_with = "file")]
    tag: Option<String>,
    /// Start only when every task with this tag has ended
    #[arg(long, value_name = "TAG", conflicts_with_all = ["file", "every", "cron"])]
    after_tag: Option<String>,
    /// While a task with that tag is dead: `wait` (default), or `ignore` it
    #[arg(long, value_name = "POLICY", requires = "after_tag")]
    if_dead: Option<IfDead>,
    /// Maximum number of runs, including the first
    #[arg(long, conflicts_with = "file", value_parser = clap::value_parser!(u16).range(1..))]
    max_attempts: Option<u16>,
    /// W3C trace context: 00-<32 hex digits>-<16>-<2>
    #[arg(long, conflicts_with = "file")]
    traceparent: Option<Traceparent>,
    /// If an unfinished task has this key: `move` it (default), `keep` it as it is, or `refuse` the new one
    #[arg(
        long,
        value_name = "POLICY",
        default_value = "move",
        conflicts_with = "file",
        hide_default_value = true
    )]
    if_pending: IfPending,
    /// Make the key unique by appending ~ and 26 characters
    #[arg(long, conflicts_with = "file")]
    unique_suffix: bool,
}

#[derive(Args)]
pub struct When {
    /// Delay, e.g. 30m or 1500ms; of a recurring task, until the first run (with --cron: the first run is not earlier)
    #[arg(long, value_name = "DUR", value_parser = Due::parse_delay, allow_hyphen_values = true, conflicts_with = "at")]
    r#in: Option<Due>,
    /// Due time, e.g. 2026-11-21T20:00:00.250Z; of a recurring task, as --in
    #[arg(long, value_name = "RFC3339", value_parser = Due::parse_moment)]
    at: Option<Due>,
}

impl When {
    pub fn due(&self) -> Option<Due> {
        self.r#in.or(self.at)
    }
}

fn catch_up() -> impl TypedValueParser<Value = CatchUp> {
    PossibleValuesParser::new([
        PossibleValue::new("skip").help("Missed occurrences are dropped"),
        PossibleValue::new("once").help("One run replaces all missed occurrences"),
        PossibleValue::new("all").help("Each missed occurrence runs, one after another"),
    ])
    .map(|name| match &name[..] {
        "once" => CatchUp::Once,
        "all" => CatchUp::All,
        _ => CatchUp::Skip,
    })
}

fn overlap() -> impl TypedValueParser<Value = Overlap> {
    PossibleValuesParser::new([
        PossibleValue::new("skip")
            .help("The next occurrence is scheduled when the current one has ended"),
        PossibleValue::new("allow").help("Each occurrence is a separate task"),
    ])
    .map(|name| match &name[..] {
        "allow" => Overlap::Allow,
        _ => Overlap::Skip,
    })
}

impl TaskArgs {
    /// The due time: it is not part of [`spec`](Self::spec), since it has been parsed already.
    pub fn due(&self) -> Option<Due> {
        self.when.due()
    }

    /// Returns the task, with its payload read.
    pub fn spec(self) -> anyhow::Result<TaskSpec> {
        let Self {
            key,
            class,
            method,
            args,
            when: _,
            every,
            cron,
            tz,
            until,
            times,
            catch_up,
            catch_up_max,
            overlap,
            payload,
            tag,
            after_tag,
            if_dead,
            max_attempts,
            traceparent,
            if_pending,
            unique_suffix,
        } = self;
        let if_dead = if_dead.unwrap_or_default();
        Ok(TaskSpec {
            key: key.map(|key| key.to_string()),
            class,
            method,
            args,
            unique: unique_suffix,
            r#in: None,
            at: None,
            payload: payload.as_deref().map(read_payload).transpose()?,
            tag,
            after: after_tag.map(|tag| After { tag, if_dead }),
            max_attempts,
            if_pending: Some(if_pending),
            traceparent: traceparent.map(|trace| trace.to_string()),
            every,
            cron,
            tz,
            until,
            times,
            catch_up,
            catch_up_max,
            overlap,
        })
    }
}

fn read_payload(payload: &str) -> anyhow::Result<String> {
    match payload.strip_prefix('@') {
        Some(file) => {
            let open = std::fs::File::open(file);
            let open = open.with_context(|| format!("open payload `{file}`"))?;
            let bytes = open.metadata().map(|metadata| metadata.len()).ok();
            read_some(open, bytes).with_context(|| format!("read payload `{file}`"))
        }
        None if payload == "-" => {
            read_some(std::io::stdin(), None).context("read payload from stdin")
        }
        None => Ok(payload.to_owned()),
    }
}

/// Reads at most the maximum size of a payload.
fn read_some(from: impl Read, bytes: Option<u64>) -> anyhow::Result<String> {
    let limit = PAYLOAD_BYTES_MAX as u64;
    let mut text = String::new();
    from.take(limit + 1).read_to_string(&mut text)?;
    match bytes {
        _ if text.len() <= PAYLOAD_BYTES_MAX => Ok(text.trim_end().to_owned()),
        Some(bytes) => bail!("payload has {bytes} bytes, expected at most {limit}"),
        None => bail!("payload has more than {limit} bytes, expected at most {limit}"),
    }
}
