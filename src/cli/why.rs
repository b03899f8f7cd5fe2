//! `lapsed why`: why a task has not run.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use lapsed::compose::Adapters;
use lapsed::diagnosis::{Daemons, RouteFacts, Unlisted, Why, WhyCause, WhyFacts};
use lapsed::handler::Router;
use lapsed::ledger::TaskRecord;
use lapsed::membership::{Capabilities, GoneMember, Heartbeat, Member, MemberId, Readiness};
use lapsed::task::UnixMs;
use lapsed::{Config, Handlers};
use serde::Serialize;
use serde_json::{Value, json};

use super::EXIT_FAILED;
use super::log::stderr_line;
use super::named::NamedTask;
use super::output::{Output, say};
use super::times;

#[derive(Args)]
pub struct WhyTask {
    /// Task key: Class@method[@argument]*, or the id of a task
    key: NamedTask,
}

/// The answer, as the API gives it.
#[derive(Serialize)]
struct Answer {
    id: String,
    key: String,
    #[serde(flatten)]
    cause: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    then: Option<Value>,
}

impl WhyTask {
    pub async fn run(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        let adapters = Adapters::new(config)?;
        adapters.ledger.check().await?;
        let key = self.key.key(&*adapters.ledger).await?;
        let Some(task) = adapters.ledger.find(&key).await? else {
            if output.json {
                say("null")?;
            }
            stderr_line!("error: there is no task `{}`", key);
            return Ok(ExitCode::from(EXIT_FAILED));
        };
        let Why { cause, then } = judged(config, &adapters, &task).await?;
        let mut lines: Vec<String> = Vec::new();
        for (cause, but) in [(Some(&cause), ""), (then.as_ref(), "When it is due: ")] {
            let Some(cause) = cause else { continue };
            lines.push(format!("{but}{}", cause.text_with(times::shown)));
            lines.extend(cause.remedy().map(|remedy| format!("-> {remedy}")));
        }
        let answer = Answer {
            id: task.id.clone(),
            key: task.key.to_string(),
            cause: value(&cause),
            then: then.as_ref().map(value),
        };
        output.print(&answer, lines.join("\n"))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn value(cause: &WhyCause) -> Value {
    json!({
        "cause": cause.as_str(),
        "text": cause.text(),
        "since": cause.since().map(|since| since.to_string()),
        "remedy": cause.remedy(),
    })
}

/// Why a task has not run, as daemons on these adapters know.
///
/// # Errors
/// The pauses could not be read.
pub async fn judged(
    config: &Config,
    adapters: &Adapters,
    task: &TaskRecord,
) -> anyhow::Result<Why> {
    let router = Router::new(Handlers::new(), config);
    let pauses = adapters.ledger.pauses().await?;
    let now = adapters.ledger.clock().now();
    let daemons = daemons(adapters, &router, now).await;
    let facts = WhyFacts {
        daemons,
        pauses,
        ledger_gone: None,
        now,
    };
    Ok(facts.of_task(task, RouteFacts::of(&router, &task.key).as_ref()))
}

/// The daemons, as their heartbeats describe them.
async fn daemons(adapters: &Adapters, router: &Router, now: UnixMs) -> Daemons {
    let heartbeats = match adapters.membership.heartbeats().await {
        Ok(Some(heartbeats)) => heartbeats,
        Ok(None) => {
            stderr_line!("note: {}", ALONE);
            return Daemons::new(vec![as_configured(router)], Vec::new());
        }
        Err(error) => {
            stderr_line!("warning: {error}");
            return Daemons::new(Vec::new(), Vec::new()).with_unlisted(Unlisted::Unheard);
        }
    };
    let (live, gone): (Vec<Heartbeat>, Vec<Heartbeat>) =
        heartbeats.into_iter().partition(|it| it.until > now);
    let gone = gone.into_iter().map(|gone| GoneMember {
        name: gone.name,
        capabilities: Arc::new(gone.capabilities),
    });
    Daemons::new(live.into_iter().map(Member::from).collect(), gone.collect())
}

const ALONE: &str = "daemons of this ledger publish no heartbeats: this answer supposes one with the routes of this configuration; `GET /v1/tasks/{key}/why` asks the daemon itself";

/// A daemon with the routes of the configuration.
fn as_configured(router: &Router) -> Member {
    Member {
        id: MemberId(0),
        name: "a daemon with this configuration".to_owned(),
        version: String::new(),
        since: UnixMs(0),
        readiness: Readiness::Ready,
        listening: false,
        expired_only: false,
        timer: String::new(),
        capabilities: Arc::new(Capabilities {
            routes: router.skills().routes,
            ..Capabilities::default()
        }),
        idle_since: Vec::new(),
        queues: Default::default(),
        is_this: false,
    }
}
