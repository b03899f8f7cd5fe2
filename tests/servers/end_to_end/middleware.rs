//! Middleware and hooks in a whole daemon.

use std::sync::{Arc, Mutex};

use lapsed::handler::Next;
use lapsed::task::State;
use lapsed::{Due, HandlerError, Task, TaskContext};

use crate::support::handlers::handlers;
use crate::support::rig::Rig;
use crate::support::tasks::key;
use crate::support::wait::until;

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test]
async fn no_middleware_undoes_a_completion_in_the_handlers_transaction() {
    let rig = Rig::new("").await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (mut handlers, ends) = (handlers(), Arc::clone(&seen));
    handlers.wrap(|ctx: TaskContext, next: Next| async move {
        next.run(ctx).await?;
        Err(HandlerError::new("spoilt"))
    });
    handlers.after(move |ctx, outcome| {
        let end = format!("{} {}", ctx.key(), outcome.as_str());
        ends.lock().unwrap().push(end);
    });
    let daemon = rig.daemon_with(handlers);
    daemon.create("Job@effect@1", 0).await;
    rig.until_state("Job@effect@1", State::Done).await;
    daemon.create("Job@record@1", 0).await;
    until("the other one was spoilt twice", async || {
        rig.record("Job@record@1").await.attempt >= 2
    })
    .await;
    rig.each_effect_once(1).await;
    assert_eq!(
        seen.lock().unwrap()[..2],
        ["Job@effect@1 succeeded", "Job@record@1 failed"]
    );
}

#[tokio::test]
async fn tasks_created_in_a_handlers_transaction_join_its_trace() {
    use lapsed::MysqlTask as _;
    let rig = Rig::new("").await;
    let (mut handlers, tasks) = (handlers(), rig.client().await);
    let client = tasks.clone();
    handlers.on(("Job", "parent"), move |ctx: TaskContext| {
        let tasks = client.clone();
        async move {
            let mut tx = ctx.begin().await?;
            let child = Task::new("Job", "record", ["child"])?;
            let armed = tasks.create_in(&mut tx, child, Due::NOW).await?;
            ctx.complete_in(tx).await?;
            armed.arm().await;
            Ok(())
        }
    });
    let _daemon = rig.daemon_with(handlers);
    let parent = Task::from(key("Job@parent")).traceparent(TRACE).unwrap();
    tasks.create(parent, Due::NOW).await.unwrap();
    rig.until_done(2).await;
    let trace = rig.record("Job@record@child").await.traceparent.unwrap();
    assert_eq!(trace.trace_id(), TRACE[3..35]);
    assert_ne!(trace.to_string(), TRACE, "in the span of the run");
}
