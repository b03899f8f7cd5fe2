//! What stands around handlers, without a server: `cargo run --example middleware`
//!
//! A payment is run only if it was signed, for the tenant that its tag names, in the trace of whoever asked for it.

use std::time::Duration;

use lapsed::handler::{Next, Timing, VerifyPayload};
use lapsed::testing::TestKit;
use lapsed::{Config, HandlerError, HandlerRegistry, Task, TaskClient, TaskContext};

/// Of a vault or a file, not of the code.
const SECRET: &str = "a secret of sixteen bytes or more";

/// Handed from a hook to the handler.
struct Tenant(String);

fn handlers(tasks: TaskClient) -> HandlerRegistry {
    let mut handlers = HandlerRegistry::new();

    // Around everything, outermost first.
    handlers.wrap(Timing::slow_after(Duration::from_secs(5)));
    handlers.wrap(|ctx: TaskContext, next: Next| async move {
        println!("  {} begins, attempt {}", ctx.key(), ctx.attempt());
        next.run(ctx).await
    });

    // Around some.
    handlers
        .matching("^Payment@")
        .wrap(VerifyPayload::new(SECRET));
    handlers.only("Payment", "send").before(|ctx| async move {
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

    handlers.on("Payment", "send", move |ctx: TaskContext, (id,): (u64,)| {
        let tasks = tasks.clone();
        async move {
            let tenant = ctx.extensions().get::<Tenant>();
            let tenant = tenant.ok_or_else(|| HandlerError::new("the hook has gone"))?;
            if let Some(trace) = ctx.traceparent() {
                println!("  payment {id} for {}, traceparent: {trace}", tenant.0);
            }
            // Belongs to the same trace, by itself.
            tasks
                .create("Receipt", "print", [id], Duration::from_secs(60))
                .await?;
            Ok(())
        }
    });
    handlers.on("Receipt", "print", |_: TaskContext, (_,): (u64,)| async {
        Ok(())
    });
    handlers
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut kit = TestKit::build(&Config::default(), handlers);
    let tasks = kit.tasks();
    let now = Duration::ZERO;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    let payment = |id: u64| Task::new("Payment", "send", [id]);
    let signed = payment(1)?.tag("shop-7").traceparent(trace)?.sign(SECRET);
    tasks.create_task(signed, now).await?;
    tasks
        .create_task(payment(2)?.tag("frozen").sign(SECRET), now)
        .await?;
    tasks.create_task(payment(3)?.tag("shop-7"), now).await?;

    println!("at {}:", kit.now());
    kit.advance(now).await;
    kit.assert_ran("Payment", "send", [1]).succeeded();
    kit.assert_scheduled("Payment", "send", [2])
        .due_in(Duration::from_secs(3600));
    kit.assert_dead("Payment", "send", [3])
        .with_error("payload is not authentic");

    println!("a minute later:");
    kit.advance(Duration::from_secs(60)).await;
    kit.assert_ran("Receipt", "print", [1]).succeeded();
    Ok(())
}
