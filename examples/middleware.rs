//! What stands around handlers, without a server: `cargo run --example middleware`
//!
//! A payment is run only if it was signed, for the tenant that its tag names, in the trace of whoever asked for it.

use std::time::Duration;

use lapsed::handler::{Extension, Next, SlowLog, VerifyPayload};
use lapsed::testing::TestKit;
use lapsed::{Config, HandlerError, Handlers, State, TaskClient, TaskContext, TaskType};

const SEND: TaskType<(u64,)> = TaskType::new("Payment", "send");
const PRINT: TaskType<(u64,)> = TaskType::new("Receipt", "print");

/// Of a vault or a file, not of the code.
const SECRET: &str = "a secret of sixteen bytes or more";

/// Handed from a hook to the handler.
struct Tenant(String);

fn handlers(tasks: TaskClient) -> Handlers<TaskClient> {
    let mut handlers = Handlers::with_state(tasks);

    // Around everything, outermost first.
    handlers.wrap(SlowLog::after(Duration::from_secs(5)));
    handlers.wrap(|ctx: TaskContext, next: Next| async move {
        println!("  {} begins, attempt {}", ctx.key(), ctx.attempt());
        next.run(ctx).await
    });

    // Around some.
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

    // Sees every end, time-outs and panics included.
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
    // Belongs to the same trace, by itself.
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
