//! Pull workers as the target of a route.

use async_trait::async_trait;

use super::{Handler, HandlerError, TaskContext};

/// Accepts each task. The engine runs the middleware of the route around it before it hands the task to a worker.
#[derive(Debug)]
pub struct Pull;

#[async_trait]
impl Handler for Pull {
    async fn run(&self, _: TaskContext) -> Result<(), HandlerError> {
        Ok(())
    }
}
