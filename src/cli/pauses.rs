//! `lapsed pause`, `resume` and `pauses`.

use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgGroup, Args};
use comfy_table::{Table, presets};
use lapsed::Config;
use lapsed::compose::Adapters;
use lapsed::ledger::{PauseAnswer, Pauses, REASON_CHARS_MAX, ReleaseAnswer};
use lapsed::task::{BlockedBy, Due, Pause, PauseKind, Paused, Scope, TaskKey, UnixMs};
use serde_json::{Value, json};

use super::EXIT_FAILED;
use super::log::stderr_line;
use super::output::{Output, say, shown};
use super::times;

#[derive(Args)]
#[command(group = ArgGroup::new("what").required(true).args(["scope", "all"]))]
pub struct PauseTasks {
    /// Class, or Class@method
    #[arg(value_name = "CLASS[@METHOD]")]
    scope: Option<Scope>,
    /// Pause everything
    #[arg(long)]
    all: bool,
    /// Resume by itself after this time, e.g. 2h; of what is paused already, from now on
    #[arg(long, value_name = "DUR", value_parser = Due::parse_delay, allow_hyphen_values = true, conflicts_with = "until")]
    r#for: Option<Due>,
    /// Resume by itself at this time, e.g. 2026-12-01T09:00:00Z
    #[arg(long, value_name = "RFC3339", value_parser = Due::parse_moment)]
    until: Option<Due>,
    /// Reason, shown to other operators
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true, value_parser = reason)]
    reason: String,
}

fn reason(text: &str) -> Result<String, String> {
    let chars = text.chars().count();
    match chars <= REASON_CHARS_MAX && !text.chars().any(char::is_control) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "has {chars} characters, expected at most {REASON_CHARS_MAX} in one line"
        )),
    }
}

impl PauseTasks {
    pub async fn run(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        let scope = self.scope.unwrap_or(Scope::EVERYTHING);
        let ledger = Adapters::new(config)?.ledger;
        let end = self.r#for.or(self.until);
        let operator = operator();
        let pausing = ledger.pause(&scope, end, &operator, &self.reason);
        let PauseAnswer {
            pause,
            already,
            end_changed,
        } = pausing.await?;
        let name = named(&scope);
        let text = match (already, pause.until) {
            (true, None) if end_changed => {
                format!(
                    "{name} was paused already, and stays so until it is resumed: {}",
                    pause.origin(times::shown)
                )
            }
            (true, Some(until)) if end_changed => {
                format!(
                    "{name} was paused already, now until {}: {}",
                    times::shown(until),
                    pause.origin(times::shown)
                )
            }
            (true, _) => format!("{name} was paused already, {}", pause.origin(times::shown)),
            (false, until) => format!(
                "{name} is paused{}: running tasks finish, and no task of it starts after the next 2 s",
                until.map_or(String::new(), |until| format!(
                    " until {}",
                    times::shown(until)
                ))
            ),
        };
        let mut value = serde_json::to_value(&pause)?;
        value["already"] = json!(already);
        output.print(&value, text)?;
        if !config.routes.is_empty() && !has_route(config, &scope) {
            stderr_line!(
                "note: no route of this configuration names {}: check that it is spelled as in the task keys",
                named(&scope)
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Whether a route seems to match tasks of this class and method.
fn has_route(config: &Config, scope: &Scope) -> bool {
    let name = scope.to_string();
    let examples = [name.clone(), format!("{name}@x"), format!("{name}@x@x")];
    config.routes.iter().any(|route| {
        let mut behind = route.matches.as_str().split(&name).skip(1);
        let names = behind.any(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'));
        let matches = examples.iter().any(|key| route.matches.is_match(key));
        scope.is_everything() || names || matches
    })
}

#[derive(Args)]
#[command(group = ArgGroup::new("what").required(true).multiple(true).args(["scope", "all", "held"]))]
pub struct Resume {
    /// Class, or Class@method, exactly as it was paused
    #[arg(value_name = "CLASS[@METHOD]", conflicts_with = "all")]
    scope: Option<Scope>,
    /// Lift the pause of everything; pauses of single classes remain
    #[arg(long)]
    all: bool,
    /// Release tasks that `listen --hold-overdue` holds for review: all, or those of a class
    #[arg(long, conflicts_with = "all")]
    held: bool,
}

impl Resume {
    pub async fn run(self, config: &Config, output: Output) -> anyhow::Result<ExitCode> {
        let scope = self.scope.unwrap_or(Scope::EVERYTHING);
        let ledger = Adapters::new(config)?.ledger;
        let was = match self.held {
            true => release(&*ledger, &scope).await?,
            false => resume(&*ledger, &scope).await?,
        };
        let still = ledger.pauses().await?.into_iter().filter(|pause| {
            let meets = pause.scope.includes(&scope) || scope.includes(&pause.scope);
            pause.kind == PauseKind::Pause && meets
        });
        let still: Vec<Pause> = still.collect();
        let stays = still.iter().any(|pause| pause.scope.includes(&scope));
        let Lifted { was, text } = was;
        let text = match stays && was.is_some() {
            true => format!("{text}; but nothing starts yet"),
            false => text,
        };
        let value = json!({ "resumed": was.is_some(), "was": was, "still": still });
        output.print(&value, text)?;
        for pause in &still {
            stderr_line!(
                "warning: still paused: {}, {}",
                named(&pause.scope),
                pause.origin(times::shown)
            );
        }
        Ok(match was.is_none() && stays {
            true => ExitCode::from(EXIT_FAILED),
            false => ExitCode::SUCCESS,
        })
    }
}

/// Result of lifting a pause, with its text.
struct Lifted {
    was: Option<Pause>,
    text: String,
}

async fn resume(ledger: &dyn Pauses, scope: &Scope) -> anyhow::Result<Lifted> {
    let was = ledger.resume(scope).await?;
    let text = match &was {
        Some(pause) => format!(
            "{} is resumed; paused {}",
            named(scope),
            pause.origin(times::shown)
        ),
        None if scope.is_everything() => "there was no pause of everything".to_owned(),
        None => format!("{} was not paused by that name", named(scope)),
    };
    Ok(Lifted { was, text })
}

async fn release(ledger: &dyn Pauses, scope: &Scope) -> anyhow::Result<Lifted> {
    let of = match scope.is_everything() {
        true => "tasks".to_owned(),
        false => format!("tasks of {}", named(scope)),
    };
    let (was, text) = match ledger.release(scope, &operator()).await? {
        ReleaseAnswer::Released(hold) => {
            let text = format!("held {of} are released; held {}", hold.origin(times::shown));
            (Some(hold), text)
        }
        ReleaseAnswer::Already(_) => (None, format!("held {of} were already released")),
        ReleaseAnswer::NoHold => (None, "nothing is held".to_owned()),
    };
    Ok(Lifted { was, text })
}

/// Lists pauses and holds.
pub async fn list(config: &Config, output: Output) -> anyhow::Result<ExitCode> {
    let pauses = Adapters::new(config)?.ledger.pauses().await?;
    if output.json {
        for pause in &pauses {
            say(&serde_json::to_string(pause)?)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if pauses.is_empty() {
        say("nothing is paused")?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["WHAT", "IS", "SINCE", "BY", "REASON"]);
    for pause in &pauses {
        let is = match (pause.kind, pause.due_before, pause.until) {
            (PauseKind::Pause, _, None) => "paused".to_owned(),
            (PauseKind::Pause, _, Some(until)) => format!("paused until {}", times::shown(until)),
            (PauseKind::Hold, before, _) => {
                let before = times::shown(before.unwrap_or(pause.since));
                format!("held if due before {before}")
            }
            (PauseKind::Release, ..) => "released".to_owned(),
        };
        let (what, since) = (pause.scope.to_string(), times::shown(pause.since));
        let (by, reason) = (shown(Some(&pause.by)), shown(Some(&pause.reason)));
        table.add_row([what, is, since, by, reason]);
    }
    say(&table.trim_fmt())?;
    Ok(ExitCode::SUCCESS)
}

/// Lines about active pauses, for `stats`.
pub fn lines(pauses: &[Pause]) -> impl Iterator<Item = String> {
    let lines = pauses.iter().map(|pause| match pause.kind {
        PauseKind::Pause => Some(format!(
            "paused: {}, {}",
            pause.scope,
            pause.origin(times::shown)
        )),
        PauseKind::Hold => Some(format!(
            "held: what was due before {}, {}",
            times::shown(pause.due_before.unwrap_or(pause.since)),
            pause.origin(times::shown)
        )),
        PauseKind::Release => None,
    });
    lines.flatten()
}

/// Warns about pauses that may affect tasks of this class and method; `None` is any. `now` is the ledger's time.
pub fn warn_of(pauses: &[Pause], class: Option<&str>, method: Option<&str>, now: UnixMs) {
    let meets = |name: Option<&str>, asked: Option<&str>| {
        name.is_none() || asked.is_none() || name == asked
    };
    for pause in pauses {
        if !meets(pause.scope.class_name(), class) || !meets(pause.scope.method_name(), method) {
            continue;
        }
        let what = match pause.kind {
            PauseKind::Pause => format!("{} is paused", named(&pause.scope)),
            PauseKind::Hold => format!(
                "what was due before {} is held for review",
                times::shown(pause.due_before.unwrap_or(pause.since))
            ),
            PauseKind::Release => continue,
        };
        let stay = match is_known(pause, now) {
            true => "stay pending",
            false => "stay pending once every daemon has seen it, within 2 s",
        };
        stderr_line!(
            "warning: {what}, {}: such tasks {stay}",
            pause.origin(times::shown)
        );
    }
}

/// The pause or hold that keeps a pending task from starting, as JSON and as text.
pub fn kept_back(pauses: &[Pause], key: &TaskKey, due: UnixMs) -> (Value, Option<String>) {
    let blocked_by = Paused::of(pauses).blocks(key, due);
    let kind = match blocked_by {
        None => return (Value::Null, None),
        Some(BlockedBy::Paused) => PauseKind::Pause,
        Some(BlockedBy::Held) => PauseKind::Hold,
    };
    let mut of_kind = pauses.iter().filter(|pause| pause.kind == kind);
    let text = of_kind
        .find(|pause| pause.scope.covers(key))
        .map(|pause| match kind {
            PauseKind::Hold => format!("it is held for review, {}", pause.origin(times::shown)),
            _ => format!(
                "{} is paused, {}",
                named(&pause.scope),
                pause.origin(times::shown)
            ),
        });
    (json!(blocked_by), text)
}

/// As [`kept_back`] for a task due at `due`, as the end of a sentence. `now` is the ledger's time.
pub fn stays_pending(pauses: &[Pause], key: &TaskKey, due: UnixMs, now: UnixMs) -> (Value, String) {
    let starts = due.max(now);
    let pauses = pauses.iter().filter(|pause| !pause.is_over(starts));
    let pauses: Vec<Pause> = pauses.cloned().collect();
    let (kept_back, why) = kept_back(&pauses, key, due);
    let Some(why) = why else {
        return (kept_back, String::new());
    };
    let older: Vec<Pause> = pauses
        .iter()
        .filter(|pause| is_known(pause, starts))
        .cloned()
        .collect();
    let but = match Paused::of(&older).blocks(key, due) {
        Some(_) => "but stays pending",
        None => "but starts only if a daemon claims it before it sees the pause, within 2 s",
    };
    (kept_back, format!(", {but}: {why}"))
}

/// Whether every daemon knows of a pause by then.
fn is_known(pause: &Pause, then: UnixMs) -> bool {
    /// 2 s after `pause` has returned, which may take a while.
    const NOTED_AFTER: Duration = Duration::from_secs(3);
    then >= pause.since.plus(NOTED_AFTER)
}

fn named(scope: &Scope) -> String {
    match scope.is_everything() {
        true => "everything".to_owned(),
        false => format!("`{scope}`"),
    }
}

/// The operator, `user@host`, as recorded with a pause.
fn operator() -> String {
    let names = ["SUDO_USER", "USER", "LOGNAME"];
    let user = names
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()));
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    match user {
        Some(user) => format!("{user}@{host}"),
        None => host.into_owned(),
    }
}

/// As [`stays_pending`] with the current pauses. A user who may only create tasks may lack the privilege to read
/// them: then the text is empty.
pub async fn stays_pending_now(adapters: &Adapters, key: &TaskKey, due: UnixMs) -> (Value, String) {
    let pauses = adapters.ledger.pauses().await.unwrap_or_default();
    let now = adapters.ledger.now().await.unwrap_or(due);
    stays_pending(&pauses, key, due, now)
}
