//! Why a task has not run, as a caller may be told.

use super::access::Caller;
use super::problem::Problem;
use super::site::Site;
use lapsed::diagnosis::{Why, WhyCause, WhyFacts};
use lapsed::ledger::TaskRecord;

/// What is known about why tasks do not start.
///
/// # Errors
/// The ledger fails.
pub async fn facts(site: &Site, caller: &Caller) -> Result<WhyFacts, Problem> {
    let pauses = site.pauses().await?;
    let told = pauses.iter().map(|pause| caller.covering_pause(pause));
    Ok(site.engine.why_facts(told.collect()))
}

/// Says why a task has not run. A limited caller is not told the names of daemons that are not those of its task.
pub fn of_task(site: &Site, caller: &Caller, facts: &WhyFacts, task: &TaskRecord) -> Why {
    let route = site.engine.route_facts(&task.key);
    let Why { cause, then } = facts.of_task(task, route.as_ref());
    Why {
        cause: told(cause, caller),
        then: then.map(|cause| told(cause, caller)),
    }
}

fn told(cause: WhyCause, caller: &Caller) -> WhyCause {
    match cause {
        WhyCause::Away(_) if caller.is_restricted() => WhyCause::Away(Vec::new()),
        cause => cause,
    }
}
