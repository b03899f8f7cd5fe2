//! The state of the installation: gathers the facts, and shows the verdict on them.

use std::cmp::Reverse;
use std::time::Duration;

use askama::Template;
use axum::extract::State;
use tokio::time::timeout;

use super::verdict::{self, Blocked, Facts, Finding, Severity, VerdictTexts};
use super::{OverviewTexts, source};
use crate::engine::{HistoryPoint, WhyCause};
use crate::http::dashboard::figures::Count;
use crate::http::dashboard::frame::Frame;
use crate::http::dashboard::moment::Moment;
use crate::http::dashboard::panel::Panel;
use crate::http::divided::stats_of;
use crate::http::problem::Problem;
use crate::http::site::Site;
use crate::task::{Pause, PauseKind, TaskKey, UnixMs};

/// How long the verdict waits for the ledger.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// Tasks that started late within this time start late now: minutes are told when they are over.
const LATELY: Duration = Duration::from_secs(150);

/// The end of the latest minute in which one of a hundred tasks started later than is promised.
fn late_until(minutes: &[HistoryPoint]) -> Option<UnixMs> {
    let is_late = |minute: &&HistoryPoint| {
        let late = minute.lateness.as_ref();
        late.is_some_and(|late| late.p99_ms > verdict::PROMISED_MS)
    };
    let last = minutes.iter().rev().find(is_late)?;
    Some(last.at.plus(Duration::from_secs(60)))
}

#[derive(Template)]
#[template(
    path = "overview_verdict.html",
    config = "src/http/dashboard/templates/askama.toml"
)]
struct VerdictPart<'a> {
    f: &'a Frame,
    t: &'static OverviewTexts,
    v: &'static VerdictTexts,
    /// How late the tasks of the last hour started.
    on_time: Option<String>,
    /// When tasks last started late within the hour.
    late_until: Option<Moment>,
    /// The worst finding, if it is worse than a note.
    worst: Option<Finding>,
    /// The others.
    findings: Vec<Finding>,
}

pub(super) async fn alone(State(site): State<Site>, f: Frame) -> Panel {
    panel(&site, &f).await
}

pub(super) async fn panel(site: &Site, f: &Frame) -> Panel {
    let source = source("verdict", "stats pauses workers");
    Panel::load(f, source, async {
        let facts = facts(site, f).await?;
        let on_time = verdict::on_time(&facts, f.language());
        let mut findings = verdict::findings(&facts, f.language());
        let is_trouble = |first: &Finding| first.severity != Severity::Note;
        let worst = findings.first().is_some_and(is_trouble);
        Ok(VerdictPart {
            f,
            t: OverviewTexts::of(f.language()),
            v: VerdictTexts::of(f.language()),
            on_time,
            late_until: facts.late_until.map(|until| f.clock(&until)),
            worst: worst.then(|| findings.remove(0)),
            findings,
        })
    })
    .await
}

/// What the verdict is about. A ledger that fails is one of the facts.
///
/// # Errors
/// The table is too large to say so of the caller's classes alone.
async fn facts(site: &Site, f: &Frame) -> Result<Facts, Problem> {
    let caller = &f.caller;
    let (known, trouble) = match site.engine.ledger_answers() {
        // Not asked: the answer would be late, and the question one more that waits.
        false => (None, Some(site.engine.ledger_trouble().unwrap_or_default())),
        true => {
            let count = async { Ok::<_, Problem>(site.figures.count(&site.tasks).await?) };
            let known = async { tokio::try_join!(count, site.pauses()) };
            match timeout(PATIENCE, known).await {
                Ok(Ok(known)) => (Some(known), None),
                Ok(Err(problem)) => (None, Some(problem.detail().to_owned())),
                Err(_) => {
                    let late = VerdictTexts::of(f.language()).ledger_late;
                    (
                        None,
                        Some(f.fill(late, &[&PATIENCE.as_millis().to_string()])),
                    )
                }
            }
        }
    };
    let failing = site.engine.background().into_iter();
    // What is not divided by class is left out for a limited caller.
    let failing = failing.filter(|_| !caller.is_limited());
    let failing = failing.filter_map(|task| Some((task.name, task.error?)));
    let hour = Duration::from_secs(3600);
    let lately = async {
        let history = site.engine.history();
        let minutes = history.points(hour, Duration::from_secs(60)).await;
        let hour = history.points(hour, hour).await.pop()?;
        Some((hour, late_until(&minutes)))
    };
    let lately = match trouble {
        None => timeout(PATIENCE, lately).await.ok().flatten(),
        Some(_) => None,
    };
    let lately = lately.filter(|_| !caller.is_limited());
    let counts = known.as_ref();
    let counts = counts.map(|(count, _)| stats_of(&count.stats, caller));
    let counts = counts.transpose()?.map(|stats| stats.counts);
    let pauses = known
        .as_ref()
        .map_or(&[][..], |(_, pauses)| pauses.as_slice());
    let pauses = pauses.iter().filter_map(|pause| caller.pause_seen(pause));
    let pauses: Vec<Pause> = pauses.collect();
    let stands = |pause: &&Pause| pause.kind == PauseKind::Pause;
    Ok(Facts {
        is_listening: site.engine.is_listening(),
        is_stopping: site.engine.is_stopping(),
        counts,
        // What is not divided by class is left out for a limited caller.
        gone: match caller.is_limited() {
            true => Vec::new(),
            false => site.engine.gone(hour),
        },
        blocked: known.map_or_else(Vec::new, |(count, pauses)| {
            blocked(site, f, &count, &pauses)
        }),
        // The history has full minutes. Of the current one, what other daemons did is not known yet.
        dead_lately: lately.as_ref().map_or(0, |(hour, _)| {
            hour.dead + site.metrics.history().dead_in_this_minute()
        }),
        late_until: lately.as_ref().and_then(|(_, until)| *until),
        is_late: lately
            .as_ref()
            .is_some_and(|(_, until)| until.is_some_and(|until| f.now.since(until) <= LATELY)),
        late: lately.and_then(|(hour, _)| hour.lateness),
        pauses: pauses.iter().filter(stands).count(),
        all_paused: pauses
            .iter()
            .filter(stands)
            .any(|pause| pause.scope.is_everything()),
        has_hold: pauses.iter().any(|pause| pause.kind == PauseKind::Hold),
        // If the ledger does not answer, everything that asks it fails: that is said once.
        failing: match trouble {
            Some(_) => Vec::new(),
            None => failing.collect(),
        },
        ledger_gone: f.ledger_gone().filter(|_| trouble.is_some()),
        ledger_trouble: trouble,
    })
}

/// The overdue tasks of the caller's by cause, most overdue first. With many tasks, as far as they are counted.
fn blocked(site: &Site, f: &Frame, count: &Count, all_pauses: &[Pause]) -> Vec<Blocked> {
    /// Classes and methods that are looked at: those with most overdue tasks.
    const MOST: usize = 20;
    let told = all_pauses.iter().map(|pause| f.caller.pause_told(pause));
    let facts = site.engine.why_facts(told.collect());
    let methods = count.stats.methods.iter();
    let overdue = methods.filter(|method| method.overdue > 0);
    let keyed = overdue.filter_map(|method| Some((TaskKey::parse(&method.name).ok()?, method)));
    let mut own: Vec<_> = keyed.filter(|(key, _)| f.caller.may_touch(key)).collect();
    own.sort_by_key(|(_, method)| Reverse(method.overdue));
    let mut blocked: Vec<Blocked> = Vec::new();
    for (key, method) in own.into_iter().take(MOST) {
        let route = site.engine.route_facts(&key);
        let cause = match facts.of_due(&key, UnixMs(0), route.as_ref()) {
            WhyCause::Paused(pause) => WhyCause::Paused(pause),
            WhyCause::Held(pause) => WhyCause::Held(pause),
            // What is not divided by class is left out for a limited caller.
            _ if f.caller.is_limited() => WhyCause::Unknown,
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
