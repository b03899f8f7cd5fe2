//! Middleware and hooks, without servers: `cargo run --example middleware`
//!
//! A payment runs only if it was signed, for the tenant that its tag names, in the trace of its creator.

use std::time::Duration;

use lapsed::handler::{Extension, Next, SlowLog, VerifyPayload};
use lapsed::testing::TestKit;
use lapsed::{Config, HandlerError, Handlers, State, TaskClient, TaskContext, TaskType};

const SEND: TaskType<(u64,)> = TaskType::new("Payment", "send");
const PRINT: TaskType<(u64,)> = TaskType::new("Receipt", "print");

/// In a real program, from a vault or a file.
const SECRET: &str = "a secret of sixteen bytes or more";

/// Passed from a hook to the handler.
struct Tenant(String);

fn handlers(tasks: TaskClient) -> Handlers<TaskClient> {
    let mut handlers = Handlers::with_state(tasks);

    // For all tasks; the first one is outermost.
    handlers.wrap(SlowLog::after(Duration::from_secs(5)));
    handlers.wrap(|ctx: TaskContext, next: Next| async move {
        println!("  {} begins, attempt {}", ctx.key(), ctx.attempt());
        next.run(ctx).await
    });

    // For some tasks.
    handlers
        .matching("^Payment@")
        .wrap(VerifyPayload::new(SECRET));
    handlers.only(SEND).before(|ctx| async move {
        let tenant = ctx
            .tag()
            .ok_or_else(|| HandlerError::permanent("no tenant"))?;
        if tenant == "frozen" {
            let later = Duration::from_secs(3600);
            return Err(HandlerError::retry_after("tenant is frozen", later));
        }
        ctx.extensions().insert(Tenant(tenant.to_owned()));
        Ok(())
    });

    // Called after each run, also after a timeout or a panic.
    handlers.after(|ctx, outcome| println!("  {} {}", ctx.key(), outcome.as_str()));

    handlers.on(SEND, send);
    handlers.on(PRINT, |_: u64| async { Ok(()) });
    handlers
}

async fn send(
    ctx: TaskContext,
    State(tasks): State<TaskClient>,
    Extension(tenant): Extension<Tenant>,
    id: u64,
) -> Result<(), HandlerError> {
    if let Some(trace) = ctx.traceparent() {
        println!("  payment {id} for {}, traceparent: {trace}", tenant.0);
    }
    // Belongs to the same trace automatically.
    tasks
        .create(PRINT.args(id), Duration::from_secs(60))
        .await?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut kit = TestKit::build(&Config::default(), handlers);
    let tasks = kit.tasks();
    let now = Duration::ZERO;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    let signed = SEND.args(1)?.tag("shop-7").traceparent(trace)?.sign(SECRET);
    tasks.create(signed, now).await?;
    tasks
        .create(SEND.args(2)?.tag("frozen").sign(SECRET), now)
        .await?;
    tasks.create(SEND.args(3)?.tag("shop-7"), now).await?;

    println!("at {}:", kit.now());
    kit.advance(now).await;
    kit.assert_ran(SEND.args(1)).succeeded();
    kit.assert_scheduled(SEND.args(2))
        .due_in(Duration::from_secs(3600));
    kit.assert_dead(SEND.args(3))
        .with_error("payload is not authentic");

    println!("a minute later:");
    kit.advance(Duration::from_secs(60)).await;
    kit.assert_ran(PRINT.args(1)).succeeded();
    Ok(())
}
