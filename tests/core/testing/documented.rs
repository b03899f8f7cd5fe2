//! The examples of `docs/testing.md`.

use super::*;

fn handlers() -> Handlers {
    let mut handlers = Handlers::new();
    handlers.on(
        ("Order", "close"),
        |ctx: TaskContext, order: u64| async move {
            match ctx.attempt() {
                1 => Err(HandlerError::new(format!("order {order} is locked"))),
                _ => Ok(()),
            }
        },
    );
    handlers
}

#[tokio::test]
async fn an_unpaid_order_is_closed_after_half_an_hour() {
    let mut kit = TestKit::new(handlers());
    let half_an_hour = Duration::from_secs(1800);
    kit.tasks()
        .create(("Order", "close", [42]), half_an_hour)
        .await
        .unwrap();
    kit.assert_scheduled(("Order", "close", [42]))
        .due_in(half_an_hour);

    kit.advance(half_an_hour).await; // runs it: the first attempt fails
    kit.assert_scheduled(("Order", "close", [42]))
        .due_in(Duration::from_secs(15));

    kit.advance(Duration::from_secs(15)).await;
    kit.assert_ran(("Order", "close", [42]))
        .times(2)
        .succeeded();
}

async fn check_out(tasks: &TaskClient, order: u64) -> Result<(), lapsed::ClientError> {
    let task = Task::new("Order", "close", [order])?.tag("shop-7");
    tasks.create(task, Duration::from_secs(1800)).await?;
    Ok(())
}

#[tokio::test]
async fn checking_out_schedules_the_closing_of_the_order() {
    let kit = TestKit::new(Handlers::new());
    check_out(&kit.tasks(), 42).await.unwrap();
    kit.assert_scheduled(("Order", "close", [42]))
        .due_in(Duration::from_secs(1800))
        .with_tag("shop-7");
}

async fn close(ctx: TaskContext, (_order,): (u64,)) -> Result<(), HandlerError> {
    let payload: serde_json::Value = ctx.payload()?;
    match payload["paid"].as_bool() {
        Some(true) => Ok(()),
        _ => Err(HandlerError::new("not paid")),
    }
}

#[tokio::test]
async fn an_order_that_was_paid_is_left_alone() {
    let task = Task::new("Order", "close", [42])
        .unwrap()
        .payload(r#"{"paid": true}"#);
    let run = TestRun::of(task).attempt(3); // .late_by(duration)
    close(run.context().await, (42,)).await.unwrap(); // the function itself
    run.call(&handlers()).await.unwrap(); // or as it is registered, inside of its middleware
}
