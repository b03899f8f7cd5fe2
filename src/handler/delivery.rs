//! A stream, a list or a channel in Redis as the target of a route. Other programs take the tasks from there.

use async_trait::async_trait;

use super::{Handler, HandlerError, TaskContext};
use crate::config::{DeliveryConfig, Place};
use crate::redis::{Deliveries, RedisError};

/// Delivers each task to Redis. The run succeeds when the server has acknowledged it.
#[derive(Debug)]
pub(super) struct Delivery {
    config: DeliveryConfig,
    deliveries: Result<Deliveries, String>,
}

impl Delivery {
    /// Creates a target from its configuration, and its connection or the reason why there is none.
    pub(super) fn new(config: DeliveryConfig, deliveries: Result<Deliveries, String>) -> Self {
        Self { config, deliveries }
    }

    async fn deliver(&self, context: &TaskContext) -> Result<(), HandlerError> {
        let key = context.key();
        let task = context.to_json_line();
        let failed = |error| self.explain(error);
        let unusable = |error| HandlerError::new(format!("{}: {error}", self.config));
        let deliveries = self.deliveries.as_ref().map_err(unusable)?;
        match &self.config.place {
            Place::Stream {
                key: name,
                entries_max,
            } => {
                let name = name.fill(key.class(), key.method());
                let (id, attempt) = (context.id(), context.attempt().to_string());
                let fields = [
                    ("id", &id[..]),
                    ("key", key.as_str()),
                    ("class", key.class()),
                    ("method", key.method()),
                    ("attempt", &attempt),
                    ("task", &task),
                ];
                let appended = deliveries.append(&name, *entries_max, &fields);
                appended.await.map_err(failed)
            }
            Place::List { key: name } => {
                let name = name.fill(key.class(), key.method());
                deliveries.push(&name, &task).await.map_err(failed)
            }
            Place::Channel {
                channel,
                require_receivers,
            } => {
                let name = channel.fill(key.class(), key.method());
                let published = deliveries.publish(&name, &task).await;
                match published.map_err(failed)? {
                    0 if *require_receivers => Err(HandlerError::new(format!(
                        "{}: `{name}` has no subscriber, and the route requires one (`require_receivers`)",
                        self.config
                    ))),
                    _ => Ok(()),
                }
            }
        }
    }

    fn explain(&self, error: RedisError) -> HandlerError {
        let remedy = match error.server_code().as_deref() {
            Some("OOM") => {
                "; Redis is full: raise its `maxmemory`, or have less kept (`maxlen`)".to_owned()
            }
            Some("READONLY") => "; let `url` name the master".to_owned(),
            Some("WRONGTYPE") => {
                "; the key holds something else: choose another, or remove it".to_owned()
            }
            Some("NOPERM") => format!("; give the user `{}`", self.rights()),
            Some("MISCONF") => "; Redis cannot write its data to disk: see its log".to_owned(),
            _ => String::new(),
        };
        let text = HandlerError::from(error);
        HandlerError::new(format!("{}: {text}{remedy}", self.config))
    }

    fn rights(&self) -> String {
        let all = |name: &crate::config::NameTemplate| name.fill("*", "*");
        match &self.config.place {
            Place::Stream { key, .. } => format!("+xadd ~{}", all(key)),
            Place::List { key } => format!("+lpush ~{}", all(key)),
            Place::Channel { channel, .. } => format!("+publish &{}", all(channel)),
        }
    }
}

#[async_trait]
impl Handler for Delivery {
    async fn run(&self, context: TaskContext) -> Result<(), HandlerError> {
        self.deliver(&context).await
    }
}
