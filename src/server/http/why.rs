//! Why a task has not run, as a caller may be told.

use super::access::Caller;
use super::app_state::AppState;
use super::problem::Problem;
use lapsed::diagnosis::{Why, WhyCause, WhyFacts};
use lapsed::ledger::TaskRecord;

/// What is known about why tasks do not start.
///
/// # Errors
/// The ledger fails.
pub async fn facts(app: &AppState, caller: &Caller) -> Result<WhyFacts, Problem> {
    let pauses = app.pauses().await?;
    let visible_to = pauses.iter().map(|pause| caller.covering_pause(pause));
    Ok(app.engine.why_facts(visible_to.collect()))
}

/// Says why a task has not run. A limited caller is not told the names of daemons that are not those of its task.
pub fn of_task(app: &AppState, caller: &Caller, facts: &WhyFacts, task: &TaskRecord) -> Why {
    let route = app.engine.route_facts(&task.key);
    let Why { cause, then } = facts.of_task(task, route.as_ref());
    Why {
        cause: visible_to(cause, caller),
        then: then.map(|cause| visible_to(cause, caller)),
    }
}

fn visible_to(cause: WhyCause, caller: &Caller) -> WhyCause {
    match cause {
        WhyCause::Away(_) if caller.is_restricted() => WhyCause::Away(Vec::new()),
        cause => cause,
    }
}
