//! Test kit: an engine without servers, whose time moves only when the test moves it.
//!
//! [`TestKit`] runs the tasks of a whole program, hours of retries within milliseconds. [`TestRun`] calls one handler.
//!
//! ```
//! use std::time::Duration;
//! use lapsed::testing::TestKit;
//! use lapsed::{Handlers, TaskType};
//!
//! const CLOSE: TaskType<(u64,)> = TaskType::new("Order", "close");
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut handlers = Handlers::new();
//! handlers.on(CLOSE, |order: u64| async move {
//!     println!("closing order {order}");
//!     Ok(())
//! });
//!
//! let mut kit = TestKit::new(handlers);
//! kit.tasks().create(CLOSE.args(42), Duration::from_secs(1800)).await?;
//! kit.assert_scheduled(CLOSE.args(42)).due_in(Duration::from_secs(1800));
//!
//! assert!(kit.advance(Duration::from_secs(1799)).await.is_empty());
//! kit.advance(Duration::from_secs(1)).await;
//! kit.assert_ran(CLOSE.args(42)).times(1).succeeded();
//! # Ok(())
//! # }
//! ```

mod kit;
mod ran;
mod run;

pub use kit::{DeadTask, START, ScheduledTask, TaskRuns, TestKit};
pub use ran::Ran;
pub use run::TestRun;
