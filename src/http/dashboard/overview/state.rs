//! The state of the installation: gathers the facts, and shows the verdict on them.

use std::time::Duration;

use askama::Template;
use axum::extract::State;

use super::verdict::{self, Blocked, Cause, Facts, Finding, Severity, VerdictTexts};
use super::{OverviewTexts, source};
use crate::http::dashboard::figures::Count;
use crate::http::dashboard::frame::Frame;
use crate::http::dashboard::panel::Panel;
use crate::http::divided::stats_of;
use crate::http::problem::Problem;
use crate::http::site::Site;
use crate::task::{Pause, PauseKind, Paused, TaskKey, UnixMs};

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
    let count = async { Ok::<_, Problem>(site.figures.count(&site.tasks).await?) };
    let known = tokio::try_join!(count, site.pauses());
    let trouble = match site.engine.ledger_answers() {
        true => known.as_ref().err().map(|it| it.detail().to_owned()),
        false => Some(site.engine.ledger_trouble().unwrap_or_default()),
    };
    let failing = site.engine.background().into_iter();
    // What is not divided by class is left out for a limited caller.
    let failing = failing.filter(|_| !caller.is_limited());
    let failing = failing.filter_map(|task| Some((task.name, task.error?)));
    let known = known.ok();
    let hour = Duration::from_secs(3600);
    let lately = site.engine.history().points(hour, hour).await.pop();
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
        blocked: known.and_then(|(count, pauses)| blocked(site, f, &count, &pauses)),
        dead_lately: lately.as_ref().map_or(0, |hour| hour.dead),
        late: lately.and_then(|hour| hour.lateness),
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
        ledger_trouble: trouble,
    })
}

/// Which tasks of the caller's are overdue, and why. With many tasks, as far as they are counted.
fn blocked(site: &Site, f: &Frame, count: &Count, all_pauses: &[Pause]) -> Option<Blocked> {
    let methods = count.stats.methods.iter();
    let overdue = methods.filter(|method| method.overdue > 0);
    let keyed = overdue.filter_map(|method| Some((TaskKey::parse(&method.name).ok()?, method)));
    let own = keyed.filter(|(key, _)| f.caller.may_touch(key));
    let (key, most) = own.max_by_key(|(_, method)| method.overdue)?;
    let engine = &site.engine;
    // Workers may ask another daemon.
    let queue = engine.pull_queue_of(&key);
    let queue = queue.filter(|_| engine.members() == 1 && !f.caller.is_limited());
    let is_asked = |queue: &str| {
        let queues = engine.pull().status().into_iter();
        let mut queues = queues.filter(|status| status.queue == queue);
        queues.any(|status| {
            let mut workers = status.workers.iter();
            workers.any(|worker| worker.waiting > 0 || worker.seen_ago <= status.visibility)
        })
    };
    let cause = match queue {
        _ if Paused::of(all_pauses).hinders(&key, UnixMs(0)).is_some() => Cause::Paused,
        Some(queue) if !is_asked(&queue) => Cause::NoWorker(queue.to_string()),
        _ => Cause::Unknown,
    };
    Some(Blocked {
        name: most.name.clone(),
        cause,
    })
}
