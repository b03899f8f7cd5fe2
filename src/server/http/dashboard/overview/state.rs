//! The state of the installation: gathers the facts, and shows the verdict on them.

use std::cmp::Reverse;
use std::time::Duration;

use askama::Template;
use axum::extract::State;
use tokio::time::timeout;

use super::verdict::{self, Shown, VerdictTexts};
use super::{OverviewTexts, source};
use crate::http::app_state::AppState;
use crate::http::dashboard::frame::Frame;
use crate::http::dashboard::moment::Moment;
use crate::http::dashboard::panel::Panel;
use crate::http::problem::Problem;
use crate::http::stats_cache::Count;
use lapsed::diagnosis::{Blocked, Facts, LedgerState, Message, Phrase, Value, WhyCause, diagnose};
use lapsed::engine::{HistoryPoint, LatenessPercentiles};
use lapsed::task::{Pause, PauseKind, TaskKey, UnixMs};

/// How long the verdict waits for the ledger.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// Tasks that started late within this time start late now: minutes are told when they are over.
const LATELY: Duration = Duration::from_secs(150);

/// The latest minute in which one of a hundred tasks started later than `limit`, if any.
fn late_minute(minutes: &[HistoryPoint], limit: Option<Duration>) -> Option<&HistoryPoint> {
    let limit = limit?.as_millis();
    let is_late = |minute: &&HistoryPoint| {
        let late = minute.lateness.as_ref();
        late.is_some_and(|late| u128::from(late.p99_ms) > limit)
    };
    minutes.iter().rev().find(is_late)
}

#[derive(Template)]
#[template(path = "overview_verdict.html")]
struct VerdictPart {
    t: &'static OverviewTexts,
    v: &'static VerdictTexts,
    /// How late the tasks of the last hour started.
    on_time: Option<String>,
    /// When tasks last started late within the hour.
    late_until: Option<Moment>,
    /// The worst finding, if it is worse than a note.
    worst: Option<Shown>,
    /// The others.
    findings: Vec<Shown>,
}

pub(super) async fn alone(State(app): State<AppState>, f: Frame) -> Panel {
    panel(&app, &f).await
}

pub(super) async fn panel(app: &AppState, f: &Frame) -> Panel {
    let source = source("verdict", "stats pauses workers");
    Panel::load(f, source, async {
        let Known {
            facts,
            pauses,
            late,
            late_pull,
            late_until,
        } = known(app, f).await?;
        let found = diagnose(&facts, &app.thresholds).into_iter();
        let found = found.map(|found| verdict::shown(&found, &pauses, f));
        let mut findings: Vec<Shown> = found.collect();
        let worst = findings.first().is_some_and(|first| first.is_trouble);
        Ok(VerdictPart {
            t: OverviewTexts::of(f.language()),
            v: VerdictTexts::of(f.language()),
            on_time: verdict::on_time(late, late_pull, f),
            late_until: late_until.map(|until| f.clock(&until)),
            worst: worst.then(|| findings.remove(0)),
            findings,
        })
    })
    .await
}

/// What is worst, if something is worse than a note.
pub async fn worst(app: &AppState, f: &Frame) -> Option<Shown> {
    let known = known(app, f).await.ok()?;
    let found = diagnose(&known.facts, &app.thresholds).into_iter().next()?;
    let worst = verdict::shown(&found, &known.pauses, f);
    worst.is_trouble.then_some(worst)
}

/// What the verdict is about.
struct Known {
    facts: Facts,
    /// The pauses that the reader sees.
    pauses: Vec<Pause>,
    /// How late the tasks of the last hour started; `None` if none did.
    late: Option<LatenessPercentiles>,
    /// How late workers took tasks of pull queues in the last hour; `None` if they took none.
    late_pull: Option<LatenessPercentiles>,
    /// When tasks last started late within the hour.
    late_until: Option<UnixMs>,
}

/// Gathers what is known. A ledger that fails is one of the facts.
///
/// # Errors
/// The table is too large to say so of the caller's classes alone.
async fn known(app: &AppState, f: &Frame) -> Result<Known, Problem> {
    const HOUR: Duration = Duration::from_secs(3600);
    const MINUTE: Duration = Duration::from_secs(60);
    let (caller, engine) = (&f.caller, &app.engine);
    let (counted, ledger) = match engine.ledger_state() {
        LedgerState::Answers => {
            let count = async { Ok::<_, Problem>(app.stats_cache.count(&app.tasks).await?) };
            let counted = async { tokio::try_join!(count, app.pauses()) };
            let why = match timeout(PATIENCE, counted).await {
                Ok(Ok(counted)) => Ok(counted),
                Ok(Err(problem)) => Err(problem.detail().to_owned()),
                Err(_) => {
                    let late = Message::new(Phrase::LedgerLate, [Value::Span(PATIENCE)]);
                    Err(f.headline(&late))
                }
            };
            match why {
                Ok(counted) => (Some(counted), LedgerState::Answers),
                Err(why) => (None, LedgerState::Fails { why, since: None }),
            }
        }
        // Not asked: the answer would be late, and the question one more that waits.
        silent => (None, silent),
    };
    let answers = ledger == LedgerState::Answers;
    // What is about all classes is left out for a restricted caller.
    let sees_all = !caller.is_restricted();
    let lately = async {
        let history = engine.history();
        let minutes = history.points(HOUR, MINUTE).await;
        let hour = history.points(HOUR, HOUR).await.pop()?;
        Some((hour, minutes))
    };
    let lately = match answers && sees_all {
        true => timeout(PATIENCE, lately).await.ok().flatten(),
        false => None,
    };
    let late = lately.as_ref();
    let late = late.and_then(|(_, minutes)| late_minute(minutes, app.thresholds.late));
    let late_until = late.map(|minute| minute.at.plus(MINUTE));
    let is_late = late_until.is_some_and(|until| f.now.since(until) <= LATELY);
    let late = late.and_then(|minute| Some((minute.lateness?, MINUTE)));
    let counts = counted.as_ref();
    let counts = counts.map(|(count, _)| count.stats.seen_by(caller));
    let counts = counts.transpose()?.map(|stats| stats.counts);
    let pauses = counted
        .as_ref()
        .map_or(&[][..], |(_, pauses)| pauses.as_slice());
    let pauses = pauses
        .iter()
        .filter_map(|pause| caller.visible_pause(pause));
    let (pauses, others): (Vec<Pause>, Vec<Pause>) =
        pauses.partition(|pause| pause.kind == PauseKind::Pause);
    let own = engine.facts();
    let facts = Facts {
        ledger,
        window: HOUR,
        counts,
        lost_daemons: match sees_all {
            true => engine.gone(HOUR),
            false => Vec::new(),
        },
        blocked: counted.map_or_else(Vec::new, |(count, pauses)| blocked(app, f, &count, &pauses)),
        // The history has full minutes. Of the current one, what other daemons did is not known yet.
        died: lately.as_ref().map_or(0, |(hour, _)| {
            hour.dead + app.metrics.history().dead_in_this_minute()
        }),
        late: late.filter(|_| is_late),
        pauses: pauses.len() as u64,
        all_paused: pauses.iter().any(|pause| pause.scope.is_everything()),
        has_hold: others.iter().any(|pause| pause.kind == PauseKind::Hold),
        // If the ledger does not answer, everything that asks it fails: that is said once.
        failing: match answers && sees_all {
            true => own.failing,
            false => Vec::new(),
        },
        ..own
    };
    Ok(Known {
        facts,
        pauses,
        late: lately.as_ref().and_then(|(hour, _)| hour.lateness),
        late_pull: lately.and_then(|(hour, _)| hour.lateness_pull),
        late_until,
    })
}

/// The overdue tasks of the caller's by cause, most overdue first. With many tasks, as far as they are counted.
fn blocked(app: &AppState, f: &Frame, count: &Count, all_pauses: &[Pause]) -> Vec<Blocked> {
    /// Classes and methods that are looked at: those with most overdue tasks.
    const MOST: usize = 20;
    let visible = all_pauses
        .iter()
        .map(|pause| f.caller.covering_pause(pause));
    let facts = app.engine.why_facts(visible.collect());
    let methods = count.stats.methods.iter();
    let overdue = methods.filter(|method| method.overdue > 0);
    let keyed = overdue.filter_map(|method| Some((TaskKey::parse(&method.name).ok()?, method)));
    let mut own: Vec<_> = keyed.filter(|(key, _)| f.caller.may_touch(key)).collect();
    own.sort_by_key(|(_, method)| Reverse(method.overdue));
    let mut blocked: Vec<Blocked> = Vec::new();
    for (key, method) in own.into_iter().take(MOST) {
        let route = app.engine.route_facts(&key);
        let cause = match facts.of_due(&key, UnixMs(0), route.as_ref()) {
            cause if cause.is_kept_back() => cause,
            // What is about all classes is left out for a restricted caller.
            _ if f.caller.is_restricted() => WhyCause::Unknown,
            cause => cause,
        };
        match blocked.iter_mut().find(|known| known.cause == cause) {
            Some(known) => {
                known.tasks += method.overdue;
                known.ms_max = known.ms_max.max(method.overdue_ms_max);
                known.is_of_several = true;
            }
            None => blocked.push(Blocked {
                name: method.name.clone(),
                cause,
                tasks: method.overdue,
                ms_max: method.overdue_ms_max,
                is_of_several: false,
            }),
        }
    }
    blocked
}
